#!/usr/bin/env python3
"""Checks what installs the broker: Dockerfile, compose.yaml, systemd unit, Debian package, formula, packages of npm and PyPI,
plugin, entry of the MCP registry, workflows, bill of materials; and that the tests can be set up on the oldest system promised.

Run by scripts/test from the root of the project, with the tools of requirements.txt on PATH.
"""
import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest
from importlib.machinery import SourceFileLoader
from importlib.metadata import Distribution
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import yaml
from pip._vendor.packaging.specifiers import SpecifierSet

ROOT = Path.cwd()
MANIFEST = tomllib.loads((ROOT / "Cargo.toml").read_text())
VERSION = MANIFEST["workspace"]["package"]["version"]
LOADER = SourceFileLoader("packages", str(ROOT / "packaging/packages"))
PACKAGES = module_from_spec(spec_from_loader("packages", LOADER))
# It has no cache beside it.
sys.dont_write_bytecode = True
LOADER.exec_module(PACKAGES)
# The Python of Debian 12, the oldest system on which scripts/test runs.
PYTHON_OLDEST = "3.11.2"


def run(*command, **options):
    """The completed process; its output is text."""
    options.setdefault("cwd", ROOT)
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)


def settings():
    """The variables of all settings, from the table that is made from the code."""
    table = (ROOT / "docs/configuration.md").read_text()
    return set(re.findall(r"`(MCP_BROKER_[A-Z0-9_]+)`", table))


class Packaging(unittest.TestCase):
    def assertPasses(self, *command, **options):
        done = run(*command, **options)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_hadolint_finds_nothing_in_the_dockerfile(self):
        self.assertPasses("hadolint", "Dockerfile")

    def test_the_context_of_the_image_has_what_the_dockerfile_copies(self):
        text = (ROOT / "Dockerfile").read_text()
        allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
        for words in re.findall(r"^COPY (?!--from)(.*)$", text, re.M):
            for source in words.split()[:-1]:
                if source == "." or source.startswith("target/dist"):
                    continue
                self.assertTrue((ROOT / source).exists(), source)
                self.assertTrue(any(source.split("/")[0] == entry.split("/")[0] for entry in allowed), source)

    def test_compose_names_settings_and_files_that_exist(self):
        compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
        known = settings()
        for name, service in compose["services"].items():
            for variable in service.get("environment", {}):
                self.assertIn(variable, known, name)
            for volume in service.get("volumes", []):
                source = volume.split(":")[0]
                if source.startswith("./") and not source.startswith("./helm/"):
                    self.assertTrue((ROOT / source).is_file(), source)
            dependencies = service.get("depends_on", [])
            for dependency in dependencies:
                self.assertIn(dependency, compose["services"], name)

    def test_the_balancer_of_compose_is_accepted_by_haproxy(self):
        text = (ROOT / "packaging/compose/haproxy.cfg").read_text()
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "haproxy.cfg"
            config.write_text(text)
            self.assertPasses("haproxy", "-c", "-f", config)
        compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
        servers = re.findall(r"^  server \S+ (\S+):8000$", text, re.M)
        self.assertEqual(servers, [name for name in compose["services"] if name.startswith("broker-")])

    def test_the_example_configuration_has_known_keys(self):
        example = tomllib.loads((ROOT / "packaging/broker.toml").read_text())
        for key in example:
            self.assertIn(f"MCP_BROKER_{key.upper()}", settings())

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    def test_systemd_accepts_the_unit_and_calls_it_well_confined(self):
        with tempfile.TemporaryDirectory() as folder:
            unit = Path(folder) / "mcp-broker.service"
            text = (ROOT / "packaging/mcp-broker.service").read_text()
            # The program is not installed here.
            unit.write_text(text.replace("/usr/bin/mcp-broker", "/bin/true"))
            done = run("systemd-analyze", "verify", "--man=no", unit)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            done = run("systemd-analyze", "security", "--offline=true", "--threshold=15", unit)
            self.assertEqual(done.returncode, 0, done.stdout[-2000:])

    def test_the_debian_package_has_files_that_exist(self):
        package = MANIFEST["package"]["metadata"]["deb"]
        for source, _, mode in package["assets"]:
            self.assertTrue(source.startswith("target/dist/") or (ROOT / source).is_file(), source)
            self.assertRegex(mode, "^[67][45][45]$")
        units = package["systemd-units"]
        self.assertTrue((ROOT / units["unit-scripts"] / f"{units['unit-name']}.service").is_file())
        targets = {"/" + target + Path(source).name for source, target, _ in package["assets"]}
        self.assertLessEqual(set(package["conf-files"]), targets)

    def test_the_operations_guide_explains_every_alert(self):
        rules = yaml.safe_load((ROOT / "helm/mcp-broker/files/alerts.yaml").read_text())
        alerts = {rule["alert"]: rule["labels"]["severity"] for group in rules["groups"] for rule in group["rules"]}
        guide = (ROOT / "docs/operations.md").read_text()
        self.assertEqual(dict(re.findall(r"^\| `(McpBroker\w+)` \| (\w+) \|", guide, re.M)), alerts)

    def test_the_formula_of_a_release_is_complete(self):
        with tempfile.TemporaryDirectory() as folder:
            for system in ["linux", "macos"]:
                for arch in ["amd64", "arm64"]:
                    (Path(folder) / f"mcp-broker-9.8.7-{system}-{arch}.tar.gz").write_text(f"{system} {arch}")
            formula = self.assertPasses("packaging/formula", "9.8.7", folder)
        self.assertNotIn("@", formula)
        self.assertEqual(formula.count(f"{PACKAGES.REPOSITORY}/releases/download/v9.8.7/mcp-broker-9.8.7-"), 4)
        self.assertEqual(len(set(re.findall(r'sha256 "([0-9a-f]{64})"', formula))), 4)

    def test_every_package_has_one_name_and_one_description(self):
        owner = PACKAGES.OWNER
        for file in ["Dockerfile", "packaging/mcp-broker.rb.in", "packaging/mcp-broker.service"]:
            self.assertIn(PACKAGES.DESCRIPTION, (ROOT / file).read_text(), file)
        known = {f"github.com/{owner}/mcp-broker", f"ghcr.io/{owner}/mcp-broker", f"ghcr.io/{owner}/charts"}
        tracked = self.assertPasses("git", "ls-files", "*.md", "*.y*ml", "*.json", "*.js", "packaging", "Dockerfile", "Cargo.toml")
        for file in tracked.splitlines():
            text = (ROOT / file).read_text()
            names = re.findall(r"ghcr\.io/[\w${}.-]+/[\w-]+|github\.com/[\w-]+/mcp-broker\b", text)
            self.assertLessEqual(set(names), known, file)

    def test_the_same_inputs_give_the_same_packages(self):
        with tempfile.TemporaryDirectory() as folder:
            binary = Path(folder) / "binary"
            binary.write_bytes(bytes(range(256)) * 1000)
            outputs = []
            for name in ["one", "two"]:
                output = Path(folder) / name
                for platform in PACKAGES.PLATFORMS:
                    self.assertPasses("packaging/packages", "platform", binary, platform, output)
                self.assertPasses("packaging/packages", "common", output)
                files = [path for path in output.rglob("*") if path.is_file()]
                outputs.append({path.relative_to(output): path.read_bytes() for path in files})
            self.assertEqual(outputs[0], outputs[1])
            # Five of npm, four wheels, the plugin, the entry of the registry.
            self.assertEqual(len(outputs[0]), 11)

    def test_the_files_of_the_plugin_are_current(self):
        for name, content in PACKAGES.plugin_files().items():
            self.assertEqual((ROOT / name).read_bytes(), content, f"{name}: run packaging/packages plugin")

    def test_the_plugin_and_the_entry_of_the_registry_follow_their_schemas(self):
        """skillsaw has the schemas of the registry, and knows what Claude Code documents of plugins and marketplaces."""
        with tempfile.TemporaryDirectory() as folder:
            self.assertPasses("packaging/packages", "common", folder)
            [archive] = Path(folder).glob("*-claude-plugin.tar.gz")
            shutil.unpack_archive(archive, folder)

            def lint(name):
                return run("skillsaw", "lint", "--strict", "--no-progress", "--no-custom-rules", Path(folder) / name)

            plugin = "packaging/claude-plugin"
            for name in [".", plugin]:
                done = lint(name)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("marketplace, mcp-registry", lint(".").stdout)
            # It finds what is wrong.
            for name, old, new in [
                ("server.json", '"stdio"', '"pigeon"'),
                (".claude-plugin/marketplace.json", '"source"', '"sauce"'),
                (f"{plugin}/.claude-plugin/plugin.json", '"name"', '"nom"'),
                (f"{plugin}/hooks/hooks.json", "SessionStart", "SessionStarts"),
            ]:
                text = (Path(folder) / name).read_text()
                self.assertIn(old, text, name)
                (Path(folder) / name).write_text(text.replace(old, new, 1))
                self.assertNotEqual(lint(".").returncode, 0, name)
                (Path(folder) / name).write_text(text)

    def test_pinned_python_packages_run_on_the_oldest_python(self):
        environments = sorted((ROOT / "target/clients").glob("*/lib/python*/site-packages"))
        self.assertGreater(len(environments), 5)
        for environment in environments:
            for folder in environment.glob("*.dist-info"):
                wanted = Distribution.at(folder).metadata.get("Requires-Python", "")
                self.assertTrue(SpecifierSet(wanted).contains(PYTHON_OLDEST), f"{folder}: Python {wanted}")

    def test_actionlint_finds_nothing_in_the_workflows(self):
        workflows = sorted((ROOT / ".github/workflows").glob("*.yml"))
        self.assertEqual(len(workflows), 2)
        self.assertPasses("node", "tests/packaging/workflows.js", *workflows)

    def test_the_workflows_of_ci_run_what_developers_run(self):
        workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
        commands = [step["run"] for step in workflow["jobs"]["test"]["steps"] if "run" in step]
        self.assertEqual(commands, [".ci/run"])

    def test_nothing_is_published_before_the_tests_have_passed(self):
        jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
        self.assertEqual([step["run"] for step in jobs["test"]["steps"] if "run" in step], [".ci/run"])

        def needed(name):
            needs = jobs[name].get("needs", [])
            needs = [needs] if isinstance(needs, str) else needs
            return {*needs, *(job for need in needs for job in needed(need))}

        publishing = [name for name, job in jobs.items() if "write" in job.get("permissions", {}).values()]
        self.assertEqual(publishing, ["image", "chart", "npm", "pypi", "registry", "publish"])
        for name in publishing:
            self.assertLessEqual({"version", "test"}, needed(name), name)

    def test_the_bill_of_materials_lists_what_is_linked(self):
        bill = json.loads(self.assertPasses("scripts/sbom"))
        self.assertEqual(self.assertPasses("scripts/sbom"), json.dumps(bill, indent=2) + "\n")
        self.assertEqual(bill["metadata"]["component"]["version"], VERSION)
        names = {component["name"] for component in bill["components"]}
        self.assertLessEqual({"actix", "actix-web", "redis", "mcp-broker-actors"}, names)
        self.assertFalse(names & {"proptest", "mcp-broker-load", "rmcp"}, "only for tests")
        references = [component["bom-ref"] for component in bill["components"]]
        self.assertEqual(len(references), len(set(references)))
        for component in bill["components"]:
            self.assertIn("licenses", component, component["name"])
            is_ours = component["name"].startswith("mcp-broker")
            self.assertEqual("hashes" in component, not is_ours, component["name"])
        known = {*references, bill["metadata"]["component"]["bom-ref"]}
        for entry in bill["dependencies"]:
            self.assertLessEqual({entry["ref"], *entry["dependsOn"]}, known)


if __name__ == "__main__":
    unittest.main(verbosity=1)
