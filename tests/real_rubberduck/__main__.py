"""Drives the real programs of rubberduck-mcp, unchanged, against the rubberduck port of a broker.

    git clone https://github.com/superiorsd10/rubberduck-mcp && (cd rubberduck-mcp && npm i && npx tsc)
    python3 tests/real_rubberduck --broker target/debug/mcp-broker --rubberduck rubberduck-mcp

It is not part of scripts/test: the programs are on no registry, and their port, 8765, cannot be changed. Written for 1.1.2.
"""

import argparse
import json
import re
import subprocess
import threading
import time
from pathlib import Path

# Longest wait for a text of a program, in seconds.
PATIENCE = 20
THOUGHTS = 30


class Program:
    """A process whose output is kept."""

    def __init__(self, *command, error=subprocess.STDOUT, output=subprocess.PIPE):
        self.name = " ".join(str(word) for word in command)
        self.said = ""
        self.changed = threading.Condition()
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=error, text=True)
        source = self.process.stdout if output == subprocess.PIPE else self.process.stderr
        threading.Thread(target=self._read, args=(source,), daemon=True).start()

    def _read(self, source):
        for line in source:
            with self.changed:
                self.said += line
                self.changed.notify_all()

    def says(self, text):
        """Waits until the program has printed a text."""
        with self.changed:
            if not self.changed.wait_for(lambda: text in self.said, PATIENCE):
                raise TimeoutError(f"{self.name} did not say {text!r}:\n{self.said}")

    def writes(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def kill(self):
        self.process.kill()
        self.process.wait()


class Agent(Program):
    """`rubberduck-mcp start`, and the client that has started it."""

    def __init__(self, server):
        super().__init__("node", server, "start")
        self.last_id = 0
        start = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        self.request("initialize", start)
        self.says('"serverInfo"')
        self.writes(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}))

    def request(self, method, params):
        self.last_id += 1
        self.writes(json.dumps({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}))

    def calls(self, tool, **arguments):
        self.request("tools/call", {"name": tool, "arguments": arguments})


def run(broker, server):
    """A question that is shown and answered, yaps while they come, and a question that waits for a console."""
    programs = []

    def start(program):
        programs.append(program)
        return program

    try:
        flags = ("serve", "--port", "0", "--rubberduck-port", "8765")
        start(Program(broker, *flags, output=subprocess.DEVNULL, error=subprocess.PIPE)).says("is listening")
        console = start(Program("node", server, "cli"))
        console.says("Waiting for LLM interactions")
        alice, bob = start(Agent(server)), start(Agent(server))

        alice.calls("clarify", question="Async or threads?", context="the port", urgency="high")
        console.says("Async or threads?")
        console.writes("async please")
        alice.says("Human Response: async please")
        assert console.said.count("Async or threads?") == 1, "it is shown once, although the console has two connections"
        assert "async please" not in bob.said, "the answer is for its asker alone"

        for number in range(THOUGHTS):
            alice.calls("yap", message=f"thought {number} of a busy agent")
            time.sleep(0.1)
            if number == THOUGHTS // 2:
                console.says("thought 0 ")
        console.says(f"thought {THOUGHTS - 1} ")
        shown = [int(number) for number in re.findall(r"thought (\d+) of", console.said)]
        assert shown == list(range(THOUGHTS)), f"complete and in order: {shown}"

        console.kill()
        bob.calls("clarify", question="Who is there?")
        console = start(Program("node", server, "cli"))
        console.says("Who is there?")
        console.writes("me again")
        bob.says("Human Response: me again")
    finally:
        for program in programs:
            program.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", type=Path, required=True, help="the binary")
    parser.add_argument("--rubberduck", type=Path, required=True, help="the built folder of rubberduck-mcp")
    arguments = parser.parse_args()
    run(arguments.broker, arguments.rubberduck / "dist/server.js")
    print("rubberduck-mcp: a question, an answer, yaps and a question without a console: right")


main()
