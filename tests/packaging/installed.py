#!/usr/bin/env python3
"""Installs what scripts/release has built as users do, without a network, and lets clients of the official SDKs talk through it.

Run by scripts/test from the root of the project, after the release build, with the tools of requirements.txt on PATH.
"""
import base64
import csv
import hashlib
import http.server
import io
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import tomllib
import unittest
import zipfile
from pathlib import Path

ROOT = Path.cwd()
DIST = ROOT / "target/dist"
BROKER = DIST / "mcp-broker"
VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
ARCH = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
# The program itself: `node` of the Python package is a script that starts it. Can it give its process to a binary?
NODE, IN_PLACE = subprocess.check_output(["node", "-p", "`${process.execPath}\\n${!!process.execve}`"], text=True).splitlines()
IN_PLACE = IN_PLACE == "true"

# What a launcher starts in place of the broker. It catches SIGTERM and no other signal.
BINARY = """
import json, os, shutil, signal, sys
match sys.argv[1:]:
    case ["code"]:
        sys.exit(7)
    case ["copy"]:
        shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)
    case arguments:
        def end(*_):
            os.write(1, b"over\\n")
            sys.exit(3)
        signal.signal(signal.SIGTERM, end)
        print(json.dumps({"pid": os.getpid(), "arguments": arguments}), flush=True)
        while True:
            signal.pause()
"""


def npm_file(name):
    return DIST / f"npm/{name}-{VERSION}.tgz"


OUR_FILE = npm_file(f"mcp-broker-linux-{ {'amd64': 'x64', 'arm64': 'arm64'}[ARCH] }")


class NpmRegistry(http.server.ThreadingHTTPServer):
    """A registry on loopback that serves packages from their files."""

    def __init__(self, files):
        self.packages = {}
        for file in files:
            with tarfile.open(file) as archive:
                manifest = json.load(archive.extractfile("package/package.json"))
            self.packages[manifest["name"]] = (manifest, file.read_bytes())
        super().__init__(("127.0.0.1", 0), NpmRequest)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.asked = []


class NpmRequest(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        name = self.path.lstrip("/").replace("%2f", "/").replace("%2F", "/")
        self.server.asked.append(name)
        is_file = name.startswith("files/")
        manifest, content = self.server.packages.get(name.removeprefix("files/"), (None, b""))
        if manifest and not is_file:
            digest = base64.b64encode(hashlib.sha512(content).digest()).decode()
            place = {"tarball": f"{self.server.url}/files/{name}", "integrity": f"sha512-{digest}"}
            version = manifest["version"]
            versions = {version: {**manifest, "dist": place}}
            content = json.dumps({"name": name, "dist-tags": {"latest": version}, "versions": versions}).encode()
        self.send_response(200 if manifest else 404)
        self.send_header("Content-Type", "application/octet-stream" if is_file else "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


class Installed(unittest.TestCase):
    """Each test is a user with folders and a broker of their own."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="mb-"))
        self.addCleanup(shutil.rmtree, self.folder)
        for name in ["run", "state"]:
            (self.folder / name).mkdir(mode=0o700)
        kept = {name: os.environ[name] for name in ["PATH", "LANG", "TMPDIR"] if name in os.environ}
        self.environment = {
            **kept,
            "HOME": str(self.folder),
            "XDG_RUNTIME_DIR": str(self.folder / "run"),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "MCP_BROKER_PORT": "0",
            "MCP_BROKER_HEARTBEAT_INTERVAL": "100ms",
            "npm_config_cache": str(self.folder / "npm"),
            "npm_config_audit": "false",
            "npm_config_fund": "false",
            "npm_config_update_notifier": "false",
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "UV_CACHE_DIR": str(self.folder / "uv"),
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_PYTHON": sys.executable,
            "UV_OFFLINE": "1",
        }

    def tearDown(self):
        self.run_in_order(BROKER, "local", "stop")
        left = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if str(self.folder).encode() in (process / "environ").read_bytes():
                    left.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                pass
        self.assertEqual(left, [], "processes that outlive the test")

    def run_as_user(self, *command, **options):
        options = {"cwd": self.folder, "env": self.environment, "text": True, "timeout": 120, **options}
        return subprocess.run([str(word) for word in command], capture_output=True, **options)

    def run_in_order(self, *command, **options):
        done = self.run_as_user(*command, **options)
        self.assertEqual(done.returncode, 0, f"{command}: {done.stdout}{done.stderr}")
        return done.stdout

    def script(self, *words):
        """An executable file that runs these words with its arguments."""
        path = self.folder / "run-it"
        path.write_text("#!/bin/sh\nexec " + " ".join(f"'{word}'" for word in words) + ' "$@"\n')
        path.chmod(0o755)
        return path

    def assert_serves_typescript(self, program):
        self.run_in_order("node", ROOT / "tests/clients/js/typescript-v1.js", f"stdio:{program}", "http", "exchange")

    def assert_serves_python(self, program):
        python = ROOT / "target/clients/python-v2/bin/python"
        self.run_in_order(python, ROOT / "tests/clients/py/fastmcp_client.py", f"stdio:{program}", "auto")

    def test_npx_runs_the_package_of_this_platform(self):
        foreign = self.folder / "foreign"
        (self.folder / "stub").write_text("not for this platform")
        names = ["linux-amd64", "linux-arm64", "macos-amd64", "macos-arm64"]
        for name in names:
            self.run_in_order(ROOT / "packaging/packages", "platform", self.folder / "stub", name, foreign)
        files = [npm_file("mcp-broker"), OUR_FILE]
        others = [file for file in (foreign / "npm").iterdir() if file.name != OUR_FILE.name]
        self.assertEqual(len(others), 3)
        with NpmRegistry([*files, *others]) as registry:
            threading.Thread(target=registry.serve_forever, daemon=True).start()
            self.addCleanup(registry.shutdown)
            self.environment["npm_config_registry"] = registry.url
            self.assertEqual(self.run_in_order("npx", "-y", "mcp-broker", "--version"), f"mcp-broker {VERSION}\n")
            fetched = {name for name in registry.asked if name.startswith("files/@")}
            self.assertEqual(len(fetched), 1, fetched)
            self.assert_serves_typescript(self.script("npx", "-y", "mcp-broker"))

    def test_npm_installs_the_files_offline(self):
        prefix = self.folder / "prefix"
        self.run_in_order("npm", "install", "--offline", "--global", "--prefix", prefix, npm_file("mcp-broker"), OUR_FILE)
        program = prefix / "bin/mcp-broker"
        self.assertEqual(self.run_in_order(program, "--version"), f"mcp-broker {VERSION}\n")
        self.assertEqual(self.run_as_user(program, "no-such-command").returncode, 2)
        self.assert_serves_typescript(program)

    def test_npx_runs_what_a_project_has_installed_offline(self):
        (self.folder / "package.json").write_text("{}")
        self.run_in_order("npm", "install", "--offline", npm_file("mcp-broker"), OUR_FILE)
        self.assert_serves_typescript(self.script("npx", "--offline", "mcp-broker"))

    def launcher(self, binary=None, in_place=IN_PLACE):
        """The command of the launcher, with a script as its binary."""
        modules = self.folder / "node_modules"
        with tarfile.open(npm_file("mcp-broker")) as archive:
            archive.extractall(modules)
        (modules / "package").rename(modules / "mcp-broker")
        if binary:
            manifest = json.loads((modules / "mcp-broker/package.json").read_text())
            for name in manifest["optionalDependencies"]:
                file = modules / name / "bin/mcp-broker"
                file.parent.mkdir(parents=True)
                file.write_text(f"#!{sys.executable}\n{binary}")
                file.chmod(0o755)
        (self.folder / "no-execve.cjs").write_text("delete process.execve;")
        preload = [] if in_place else ["--require", self.folder / "no-execve.cjs"]
        return [NODE, *preload, modules / "mcp-broker/bin/mcp-broker.js"]

    def assert_launches(self, in_place):
        command = [str(word) for word in self.launcher(BINARY, in_place)]
        self.assertEqual(self.run_as_user(*command, "code").returncode, 7)
        content = os.urandom(3_000_000)
        self.assertEqual(self.run_as_user(*command, "copy", input=content, text=False).stdout, content)
        for wanted, answer in [(signal.SIGTERM, "over\n"), (signal.SIGHUP, "")]:
            with subprocess.Popen([*command, "a b", "c"], stdout=subprocess.PIPE, text=True, env=self.environment) as process:
                said = json.loads(process.stdout.readline())
                self.assertEqual((said["pid"] == process.pid, said["arguments"]), (in_place, ["a b", "c"]))
                process.send_signal(wanted)
                self.assertEqual(process.stdout.read(), answer)
            self.assertEqual(process.returncode, 3 if answer else -wanted)

    @unittest.skipUnless(IN_PLACE, "this Node cannot give its process to a binary")
    def test_the_launcher_becomes_the_binary(self):
        self.assert_launches(in_place=True)

    def test_the_launcher_passes_on_signals_and_the_exit_code_of_a_child(self):
        self.assert_launches(in_place=False)

    def test_the_launcher_names_the_package_that_is_missing(self):
        done = self.run_as_user(*self.launcher())
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, r"^mcp-broker: the package @mcp-broker/linux-\w+ is missing: .*--omit=optional\n$")

    def test_pip_installs_the_wheel(self):
        self.run_in_order(sys.executable, "-m", "venv", "venv")
        [wheel] = (DIST / "pypi").glob("*.whl")
        self.run_in_order("venv/bin/pip", "install", "--no-index", wheel)
        program = self.folder / "venv/bin/mcp-broker"
        self.assertEqual(self.run_in_order(program, "--version"), f"mcp-broker {VERSION}\n")
        self.assertEqual(program.read_bytes(), BROKER.read_bytes())
        self.assert_serves_python(program)
        # Where the libc is musl, too.
        musl = ["--platform", f"musllinux_1_1_{platform.machine()}", "--only-binary", ":all:", "--dest", "musl"]
        self.run_in_order("venv/bin/pip", "download", "--no-index", "--find-links", DIST / "pypi", *musl, "mcp-broker")
        self.assertNotIn("INTERP", self.run_in_order("readelf", "--wide", "--program-headers", program))

    def test_the_record_of_the_wheel_is_complete(self):
        [wheel] = (DIST / "pypi").glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            record = f"mcp_broker-{VERSION}.dist-info/RECORD"
            rows = {name: row for name, *row in csv.reader(io.TextIOWrapper(archive.open(record)))}
            self.assertEqual(sorted(rows), sorted(archive.namelist()))
            self.assertEqual(rows.pop(record), ["", ""])
            for name, (digest, size) in rows.items():
                content = archive.read(name)
                found = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                self.assertEqual((f"sha256={found}", str(len(content))), (digest, size), name)

    def test_uvx_runs_the_wheel(self):
        uvx = ["uvx", "--no-config", "--no-index", "--find-links", DIST / "pypi", "mcp-broker"]
        self.assertEqual(self.run_in_order(*uvx, "--version"), f"mcp-broker {VERSION}\n")
        self.assert_serves_python(self.script(*uvx))

    def test_the_plugin_does_what_setup_does(self):
        self.environment["PATH"] = f"{DIST}:{self.environment['PATH']}"
        with tarfile.open(DIST / f"mcp-broker-{VERSION}-claude-plugin.tar.gz") as archive:
            archive.extractall(self.folder / "marketplace")
        marketplace = json.loads((self.folder / "marketplace/.claude-plugin/marketplace.json").read_text())
        plugin = self.folder / "marketplace" / marketplace["plugins"][0]["source"]
        self.assertEqual(json.loads((plugin / ".claude-plugin/plugin.json").read_text())["version"], VERSION)
        setup = ["mcp-broker", "setup", "claude", "--print", "--json"]
        entry = json.loads(self.run_in_order(*setup))
        self.assertEqual(json.loads((plugin / ".mcp.json").read_text()), {"mcpServers": {entry["name"]: entry["entry"]}})
        hooks = json.loads((plugin / "hooks/hooks.json").read_text())["hooks"]
        expected = json.loads(self.run_in_order(*setup, "--hooks"))["hooks"]
        self.assertEqual(hooks, {event: [group] for event, group in expected.items()})
        # Without a broker a hook says nothing and succeeds. The waiter waits.
        for event, [group] in hooks.items():
            for hook in group["hooks"]:
                if "wait" not in hook["args"]:
                    told = json.dumps({"hook_event_name": event, "session_id": "one"})
                    self.assertEqual(self.run_in_order(hook["command"], *hook["args"], input=told), "")

    def test_the_command_of_the_plugin_is_the_prompt_of_the_broker(self):
        meta = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        frames = [
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": meta},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 2, "method": "prompts/get", "params": {"name": "join"}},
        ]
        with subprocess.Popen(
            [BROKER, "connect"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.environment
        ) as front:
            for frame in frames:
                front.stdin.write(json.dumps(frame) + "\n")
            front.stdin.flush()
            answers = (json.loads(line) for line in front.stdout)
            answer = next(answer for answer in answers if answer.get("id") == 2)
            front.stdin.close()
        text = answer["result"]["messages"][0]["content"]["text"]
        # What only a running broker knows.
        text = re.sub(r" (Active|Registered) now: \w+\.", "", text)
        command = (ROOT / "packaging/claude-plugin/commands/join.md").read_text()
        self.assertTrue(command.endswith(f"\n\n{text}"), text)


if __name__ == "__main__":
    unittest.main(verbosity=1)
