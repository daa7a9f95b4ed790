#!/usr/bin/env python3
"""Checks the image that scripts/image builds: its content and size, that the same commit gives the same digest, and that the
broker runs in it as the chart runs it: numeric user, no capabilities, read-only root, no shell.

Run by scripts/test as root from the root of the project, after scripts/release: unshare --mount tests/image/check.py
"""
import ctypes
import hashlib
import json
import os
import re
import stat
import subprocess
import sys
import tarfile
import tempfile
import unittest
import urllib.request
from pathlib import Path

# What is released has 41 MB. scripts/test builds without optimising and allows more.
IMAGE_BYTES_MAX = int(os.environ.get("IMAGE_BYTES_MAX", "45_000_000"))
USER = 65532
PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP, CAPABILITIES = 38, 24, 41


def build(folder, name):
    """Builds the image and unpacks the archive. Returns the folder and the digest of its manifest."""
    archive = folder / f"{name}.tar"
    subprocess.run(["scripts/image", "--output", archive], check=True)
    unpacked = folder / name
    with tarfile.open(archive) as tar:
        tar.extractall(unpacked)
    index = json.loads((unpacked / "index.json").read_text())
    return unpacked, index["manifests"][0]["digest"]


def blob(image, digest):
    content = (image / "blobs" / digest.replace(":", "/")).read_bytes()
    assert hashlib.sha256(content).hexdigest() == digest.removeprefix("sha256:")
    return content


class Container:
    """The root file system of the image, mounted read-only, and a process in it."""

    def __init__(self, root):
        self.root = root

    def start(self, *args, env):
        libc = ctypes.CDLL(None, use_errno=True)

        def confine():
            os.chroot(self.root)
            os.chdir("/")
            for capability in range(CAPABILITIES):
                libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
            os.setgroups([])
            os.setresgid(USER, USER, USER)
            os.setresuid(USER, USER, USER)
            libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)

        # The process is confined between fork and exec, so that the program is found inside.
        return subprocess.Popen(
            args, env=env, preexec_fn=confine, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )


class Image(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        folder = Path(cls.scratch.name)
        cls.image, cls.digest = build(folder, "first")
        manifest = json.loads(blob(cls.image, cls.digest))
        cls.config = json.loads(blob(cls.image, manifest["config"]["digest"]))
        cls.root = folder / "root"
        cls.root.mkdir()
        for layer in manifest["layers"]:
            content = folder / "layer"
            content.write_bytes(blob(cls.image, layer["digest"]))
            with tarfile.open(content) as tar:
                # A Python before 3.11.4 has no filters, and extracts as this one does.
                tar.extraction_filter = getattr(tarfile, "tar_filter", None)
                tar.extractall(cls.root)
        # Paths with their status, links not followed.
        cls.files = {f"/{path.relative_to(cls.root)}": path.lstat() for path in cls.root.rglob("*") if not path.is_dir()}
        # A container runtime mounts these.
        for name in ["proc", "dev"]:
            (cls.root / name).mkdir(exist_ok=True)

    def test_the_same_commit_gives_the_same_digest(self):
        _, again = build(Path(self.scratch.name), "second")
        self.assertEqual(again, self.digest)

    def test_the_image_holds_the_broker_and_certificates_and_nothing_else(self):
        files = self.files
        self.assertEqual(set(files), {"/usr/bin/mcp-broker", "/etc/ssl/certs/ca-certificates.crt"})
        self.assertLessEqual(sum(status.st_size for status in files.values()), IMAGE_BYTES_MAX)
        for path, status in files.items():
            self.assertEqual(status.st_uid, 0, path)
            self.assertFalse(status.st_mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IWGRP | stat.S_IWOTH), path)

    def test_the_configuration_says_who_runs_what(self):
        config = self.config["config"]
        self.assertEqual(config["User"], f"{USER}:{USER}")
        self.assertEqual(config["Entrypoint"], ["/usr/bin/mcp-broker"])
        self.assertEqual(config["Cmd"], ["serve"])
        self.assertIn("8000/tcp", config["ExposedPorts"])
        labels = config["Labels"]
        version = re.search(r'^version = "(.*)"', Path("Cargo.toml").read_text(), re.M)[1]
        revision = subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
        self.assertEqual(labels["org.opencontainers.image.version"], version)
        self.assertEqual(labels["org.opencontainers.image.revision"], revision)
        for name in ["title", "description", "licenses", "created"]:
            self.assertTrue(labels[f"org.opencontainers.image.{name}"], name)

    def test_the_broker_runs_confined_and_answers_its_health_check(self):
        env = dict(entry.split("=", 1) for entry in self.config["config"]["Env"])
        env |= {"MCP_BROKER_HOST": "127.0.0.1", "MCP_BROKER_PORT": "0"}
        subprocess.run(["mount", "--bind", self.root, self.root], check=True)
        self.addCleanup(subprocess.run, ["umount", "--recursive", self.root], check=True)
        subprocess.run(["mount", "-t", "proc", "proc", self.root / "proc"], check=True)
        for device in ["null", "random", "urandom"]:
            (self.root / "dev" / device).touch()
            subprocess.run(["mount", "--bind", f"/dev/{device}", self.root / "dev" / device], check=True)
        subprocess.run(["mount", "--options", "remount,bind,ro", self.root], check=True)
        container = Container(self.root)
        broker = container.start("/usr/bin/mcp-broker", "serve", env=env)
        try:
            url, told = None, []
            for line in broker.stderr:
                told.append(line)
                found = re.search(r"http://127\.0\.0\.1:\d+", line)
                if found:
                    url = found[0]
                    break
            self.assertIsNotNone(url, f"the broker prints its address, not {told}")
            status = Path(f"/proc/{broker.pid}/status").read_text()
            fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
            self.assertEqual(fields["Uid"].split(), [str(USER)] * 4)
            self.assertEqual(fields["CapEff"], "0" * 16)
            self.assertEqual(fields["CapBnd"], "0" * 16)
            self.assertEqual(fields["NoNewPrivs"], "1")
            health = container.start("/usr/bin/mcp-broker", "healthcheck", env=env | {"MCP_BROKER_URL": url})
            self.assertEqual((health.wait(), health.communicate()), (0, ("", "")))
            call = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
                "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "check", "version": "1"}}}
            request = urllib.request.Request(f"{url}/mcp", json.dumps(call).encode(), {
                "Content-Type": "application/json", "Accept": "application/json, text/event-stream"})
            with urllib.request.urlopen(request, timeout=10) as answer:
                self.assertIn(b'"serverInfo"', answer.read())
            # The root is read-only, so a broker that wants to keep something is told so and writes nothing.
            disk = container.start("/usr/bin/mcp-broker", "serve", "--storage", "disk", "--data-dir", "/data", env=env)
            _, errors = disk.communicate(timeout=30)
            self.assertNotEqual(disk.returncode, 0)
            self.assertIn("/data", errors)
        finally:
            broker.terminate()
            _, rest = broker.communicate(timeout=60)
        self.assertEqual(broker.returncode, 0, rest)
        with self.assertRaises(FileNotFoundError):
            container.start("/bin/sh", "-c", "true", env=env)


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("tests/image/check.py: run as root, which mounts and confines")
    unittest.main(verbosity=1)
