"""Wakes the real Claude Code and the real Codex, which run offline against a scripted model server.

Each scenario configures a client by `mcp-broker setup`, starts it in a terminal, lets it come to rest, sends it a message, and
waits until the client starts a turn by itself in which the agent reads the message. `scripts/real-clients` runs it.
"""

import argparse
import json
import os
import queue
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

    def broker(self, *arguments):
        """Runs a command of the broker and returns its output."""
        done = subprocess.run([self.wrapper, *arguments], env=self.environment, cwd=self.project, capture_output=True, text=True)
        if done.returncode != 0:
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


SCENARIOS = {"inbox": inbox, "hook": hook, "queue": codex_queue, "call": lasting_call}


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
    print(f"ok {name}: a turn began {seconds:.2f} s after the message was sent")
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
