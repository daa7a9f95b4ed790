"""Runs the real Claude Code and the real Codex, offline against a scripted model server. `scripts/real-clients` starts it.

A scenario that wakes configures a client by `mcp-broker setup`, starts it in a terminal, lets it come to rest, sends it a
message, and waits until the client starts a turn by itself in which the agent reads the message. `permission` has people
decide about a tool of the client; `conversation` plays that of the README in both orders. Both do so over every transport.
"""

import argparse
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from model_server import Call, ModelServer
from terminal import Terminal

# Longest wait for a turn that a wake starts, in seconds.
WAKE_MAX = 20
# What the text of every wake begins with.
WAKE_TEXT = "mcp-broker: 1 message waits"
KEY = "sk-ant-api03-scripted-00000000000000000000"


def answer(turn):
    """The script of the model: read the inbox when a wake says so, and end the turn otherwise."""
    if "Do not answer the request" in turn.text:
        # Codex asks for a title.
        return "Notes"
    if turn.is_result:
        return "I have read it." if "payload" in turn.text else "done"
    if WAKE_TEXT in turn.text:
        return Call("receive_messages")
    if "wait for mail" in turn.text:
        return Call("receive_messages", {"wait_seconds": 60})
    if "say how notes look" in turn.text:
        return Call("register_protocol", {"name": "note", "version": "1.0.0", "schema": {"type": "object"}})
    return "hello"


class World:
    """A home folder, a broker of its own, and a model server. Nothing of it is left behind."""

    def __init__(self, broker):
        self.folder = Path(tempfile.mkdtemp(prefix="mb-real-", dir="/var/tmp"))
        self.folder.chmod(0o711)
        self.home = self.folder / "home"
        self.project = self.home / "shop"
        self.project.mkdir(parents=True)
        runtime = self.folder / "run"
        runtime.mkdir(mode=0o700)
        programs = self.folder / "bin"
        programs.mkdir()
        # Codex starts a server without most of its own environment, so the program sets what is to hold for all of them.
        self.wrapper = programs / "mcp-broker"
        self.binary = broker
        self.wake("auto")
        self.environment = {
            "HOME": str(self.home),
            "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin",
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
        }
        self.model = ModelServer(answer)
        self.last_screen = ""

    def use(self, terminal, scenario):
        """The result of a scenario in a terminal, which ends with it."""
        try:
            return scenario(self, terminal)
        except BaseException:
            self.last_screen = terminal.screen()
            raise
        finally:
            terminal.close()

    def wake(self, setting):
        """Sets how fronts wake their clients."""
        runtime = self.folder / "run"
        script = f'#!/bin/sh\nXDG_RUNTIME_DIR={runtime} MCP_BROKER_WAKE={setting} exec {self.binary} "$@"\n'
        self.wrapper.write_text(script)
        self.wrapper.chmod(0o755)

    def broker(self, *arguments, allowed=(0,)):
        """Runs a command of the broker and returns its output."""
        done = subprocess.run([self.wrapper, *arguments], env=self.environment, cwd=self.project, capture_output=True, text=True)
        if done.returncode not in allowed:
            raise RuntimeError(f"mcp-broker {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def set_up(self, client, *options):
        """Runs `mcp-broker setup`, and names the wrapper in what it wrote instead of the binary."""
        self.broker("setup", client, *options)
        for file in self.home.glob(".*"):
            self._name_wrapper(file)
        for file in self.home.glob(".*/*"):
            self._name_wrapper(file)

    def _name_wrapper(self, file):
        if file.is_file() and str(self.binary) in (text := file.read_text()):
            file.write_text(text.replace(str(self.binary), str(self.wrapper)))

    def wait_for_agent(self, seconds=30):
        """The name of the one agent that is connected."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            status = subprocess.run(
                [self.wrapper, "status", "--json"], env=self.environment, capture_output=True, text=True
            )
            agents = json.loads(status.stdout or "{}").get("agents") or []
            if agents:
                return agents[0]["name"]
            time.sleep(0.1)
        raise TimeoutError(f"no agent has registered: {status.stdout}{status.stderr}")

    def send(self, recipient):
        payload = '{"text": "the build is green"}'
        self.broker("send", "--from", "bob", "--to", recipient, "--protocol", "note", "--version", "1.0.0", payload)

    def close(self):
        self.model.close()
        if (self.folder / "bin" / "codex").exists():
            stop = ["codex", "app-server", "daemon", "stop"]
            subprocess.run(stop, env=self.environment, capture_output=True)
        subprocess.run([self.wrapper, "local", "stop"], env=self.environment, capture_output=True)
        # Codex keeps a process that looks for updates.
        subprocess.run(["pkill", "-KILL", "-f", str(self.folder)], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def start_claude(world, program, hooks=False):
    """Claude Code as a user has it after `mcp-broker setup claude`."""
    settings = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
        "projects": {str(world.project): {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}},
    }
    (world.home / ".claude.json").write_text(json.dumps(settings))
    world.set_up("claude")
    if hooks:
        world.set_up("claude", "--hooks")
    environment = world.environment | {
        "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{world.model.port}",
        "ANTHROPIC_API_KEY": KEY,
        "DISABLE_AUTOUPDATER": "1",
        # A call that lasts longer goes on in the background.
        "CLAUDE_CODE_MCP_AUTO_BACKGROUND_MS": "3000",
    }
    command = [program, "--permission-mode", "default", "--allowedTools", "mcp__broker"]
    terminal = Terminal("claude", command, environment, str(world.project))
    terminal.wait_for(["\u276f"])
    return terminal


def start_codex(world, program):
    """Codex as a user has it after `mcp-broker setup codex`."""
    folder = world.home / ".codex"
    folder.mkdir()
    (folder / "config.toml").write_text(
        f"""model = "scripted"
model_provider = "scripted"

[model_providers.scripted]
name = "scripted"
base_url = "http://127.0.0.1:{world.model.port}/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"

[projects."{world.project}"]
trust_level = "trusted"
"""
    )
    world.set_up("codex")
    (world.folder / "bin" / "codex").symlink_to(program)
    environment = world.environment | {"SCRIPTED_KEY": KEY}
    terminal = Terminal("codex", ["codex", "--dangerously-bypass-approvals-and-sandbox"], environment, str(world.project))
    terminal.wait_for(["\u203a"])
    return terminal


def ask(world, terminal, text, seconds=30):
    """Types a prompt and waits until the model has ended the turn."""
    terminal.type(text)
    terminal.wait_for([text])
    terminal.press("Enter")
    world.model.next_turn(text, seconds)


def expect_wake(world, started_at):
    """Waits for the turn that a wake starts, and until the agent has read the message in it."""
    world.model.next_turn(WAKE_TEXT, WAKE_MAX)
    seconds = time.monotonic() - started_at
    world.model.next_turn("the build is green", WAKE_MAX)
    return seconds


def woken_when_idle(world, terminal):
    # Codex names its conversation in its calls: before the first one it has no session.
    ask(world, terminal, "say how notes look")
    world.model.next_turn("registered_at", 30)
    agent = world.wait_for_agent()
    started_at = time.monotonic()
    world.send(agent)
    return expect_wake(world, started_at)


def inbox(world, options):
    """Rung 1: the inbox socket of Claude Code."""
    world.wake("inbox")
    return world.use(start_claude(world, options.claude), woken_when_idle)


def hook(world, options):
    """Rung 3: hooks of Claude Code with asyncRewake."""
    world.wake("off")
    return world.use(start_claude(world, options.claude, hooks=True), woken_when_idle)


def codex_queue(world, options):
    """Rung 4: the queue of Codex."""
    return world.use(start_codex(world, options.codex), woken_when_idle)


def lasting_call(world, options):
    """Rung 6: a call of Claude Code that lasts is moved to the background, and its result starts a turn."""

    def scenario(world, terminal):
        ask(world, terminal, "say how notes look")
        world.model.next_turn("registered_at", 30)
        agent = world.wait_for_agent()
        ask(world, terminal, "wait for mail")
        # The client ends the turn when it has moved the call to the background.
        world.model.next_turn("background", 30)
        started_at = time.monotonic()
        world.send(agent)
        world.model.next_turn("the build is green", WAKE_MAX)
        return time.monotonic() - started_at

    world.wake("off")
    return world.use(start_claude(world, options.claude), scenario)


def claude_settings(world):
    """The files by which Claude Code starts without questions."""
    settings = {
        "hasCompletedOnboarding": True,
        "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
        "projects": {str(world.project): {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}},
    }
    (world.home / ".claude.json").write_text(json.dumps(settings))


def entries(world):
    """The entry of the broker for each transport of Claude Code."""
    world.broker("local", "start")
    http = json.loads(world.broker("status", "--json"))["http"]
    return {
        "stdio": {"type": "stdio", "command": str(world.wrapper), "args": ["connect"]},
        "http": {"type": "http", "url": f"{http}/mcp"},
        "ws": {"type": "ws", "url": f"{http.replace('http', 'ws', 1)}/ws"},
    }


def start_print(world, program, model, entry, prompt, *flags):
    """Claude Code that carries out one prompt and ends."""
    config = json.dumps({"mcpServers": {"broker": entry}})
    environment = world.environment | {
        "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{model.port}",
        "ANTHROPIC_API_KEY": KEY,
        "DISABLE_AUTOUPDATER": "1",
    }
    command = [program, "-p", prompt, "--strict-mcp-config", "--mcp-config", config, *flags]
    return subprocess.Popen(
        command, env=environment, cwd=world.project, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(process, seconds=90):
    """What the program has written, once it has ended."""
    try:
        return process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        raise TimeoutError(f"Claude Code does not end: {process.communicate()[0]}") from None


def awaited(what, look, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.1)
    raise TimeoutError(f"timed out: {what}")


def permission(world, options):
    """A person allows and denies what Claude Code asks by permission_prompt."""
    started_at = time.monotonic()
    claude_settings(world)
    for way, entry in entries(world).items():
        for decision in ("allow", "deny"):
            made = world.project / f"{way}-{decision}"

            def script(turn, made=made):
                return turn.text if turn.is_result else Call("Bash", {"command": f"touch {made}", "description": "make a file"})

            model = ModelServer(script)
            prompt = start_print(world, options.claude, model, entry, "make it", "--permission-prompt-tool", "mcp__broker__permission_prompt")

            def asked():
                # 3: no question is open.
                questions = world.broker("desk", "list", "--json", allowed=(0, 3)).splitlines()
                return questions and json.loads(questions[0])["question_id"]

            try:
                question = awaited(f"{way}: a question about {made.name}", asked)
                world.broker("desk", "answer", question, "--select", decision)
                output = finish(prompt)
            except BaseException:
                prompt.kill()
                print(prompt.communicate()[0], *(f"  turn: {turn.text[-300:]!r}" for turn in model.all_turns), sep="\n")
                raise
            finally:
                model.close()
            if made.exists() != (decision == "allow"):
                raise RuntimeError(f"{way} {decision}: {output}")
    return time.monotonic() - started_at


class Part:
    """The script of a model that plays one part of the conversation of the README."""

    def __init__(self, name):
        self.name = name
        self.session = None
        self.said = []

    def __call__(self, turn):
        self.said.append(turn.text)
        if found := re.search(r'"session_id":"([0-9a-f-]{36})"', turn.text.replace("\\", "")):
            self.session = self.session or found.group(1)
        return getattr(self, self.name)(turn.text)

    def call(self, tool, **arguments):
        return Call(tool, arguments | {"session_id": self.session})

    def send(self, recipient, text, **arguments):
        chat = {"protocol_name": "chat", "protocol_version": "1.0.0", "payload": {"text": text}}
        return self.call("send_message", recipient_id=recipient, **chat, **arguments)

    def alice(self, text):
        if self.session is None:
            return Call("register_session", {"name": "alice"})
        if "registered_at" not in "".join(self.said):
            schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
            return self.call("register_protocol", name="chat", version="1.0.0", schema=schema)
        if "session_not_found" in text and "if_unknown" in text:
            return self.send("bob", "hello, who are you?", if_unknown="keep")
        if "registered_at" in text:
            return self.send("bob", "hello, who are you?")
        return "he is bob" if "I am bob" in text else self.call("receive_messages", wait_seconds=50)

    def bob(self, text):
        if self.session is None:
            return Call("register_session", {"name": "bob"})
        if "who are you" in text:
            return self.send("alice", "I am bob")
        return "answered" if "message_id" in text else self.call("receive_messages", wait_seconds=50)


def conversation(world, options):
    """The conversation of the README, whoever comes first."""
    started_at = time.monotonic()
    claude_settings(world)
    for way in ("stdio", "http", "ws"):
        for order in (("alice", "bob"), ("bob", "alice")):
            world.broker("local", "stop")
            shutil.rmtree(world.home / ".local" / "state" / "mcp-broker" / "data", ignore_errors=True)
            entry = entries(world)[way]
            parts = {name: Part(name) for name in order}
            models = {name: ModelServer(part) for name, part in parts.items()}
            running = {}
            try:
                for name in order:
                    flags = ("--allowedTools", "mcp__broker")
                    running[name] = start_print(world, options.claude, models[name], entry, f"Join the broker as {name}.", *flags)
                    # The first has done what it can before the other comes.
                    done = "message_id" if name == "alice" else '"session_id'
                    awaited(f"{way} {order}: {name}", lambda name=name, done=done: done in "".join(parts[name].said).replace("\\", ""))
                outputs = {name: finish(process) for name, process in running.items()}
            except BaseException:
                for name, part in parts.items():
                    print(f"  {way} {order} {name}: {[text[-300:] for text in part.said]}")
                raise
            finally:
                for process in running.values():
                    process.kill()
                for model in models.values():
                    model.close()
            if "he is bob" not in outputs["alice"]:
                raise RuntimeError(f"{way} {order}: {outputs}")
    return time.monotonic() - started_at


SCENARIOS = {
    "inbox": inbox,
    "hook": hook,
    "queue": codex_queue,
    "call": lasting_call,
    "permission": permission,
    "conversation": conversation,
}


def run(name, options):
    world = World(Path(options.broker).resolve())
    try:
        seconds = SCENARIOS[name](world, options)
    except (queue.Empty, TimeoutError, RuntimeError) as error:
        print(f"FAILED {name}: {type(error).__name__} {error}")
        for turn in world.model.all_turns:
            print(f"  turn: {turn.text[-200:]!r}")
        print(world.last_screen)
        return False
    finally:
        world.close()
    print(f"ok {name}: {seconds:.2f} s")
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", required=True, help="the binary of the broker")
    parser.add_argument("--claude", required=True, help="the binary of Claude Code")
    parser.add_argument("--codex", required=True, help="the binary of Codex")
    parser.add_argument("scenario", nargs="*", help=f"of {', '.join(SCENARIOS)}; all without any")
    options = parser.parse_args()
    unknown = set(options.scenario) - set(SCENARIOS)
    if unknown:
        parser.error(f"unknown scenario: {', '.join(unknown)}")
    results = [run(name, options) for name in options.scenario or SCENARIOS]
    sys.exit(0 if all(results) else 1)


main()
