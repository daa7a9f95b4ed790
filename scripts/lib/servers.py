"""A broker and a Redis of one's own on free ports, for scripts that measure."""
import os
import re
import socket
import subprocess
import sys
from pathlib import Path


def cpu_us(pid):
    """The processor time of a process, in microseconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1e6 / os.sysconf("SC_CLK_TCK")


class Server:
    """A process that ends with the block that has started it."""

    def __init__(self, process):
        self.process = process
        self.pid = process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


class Redis(Server):
    def __init__(self, folder, *options):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"
        command = ["redis-server", "--bind", "127.0.0.1", "--port", str(self.port), "--save", "", "--dir", folder]
        super().__init__(subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL))
        while self.call("redis-cli", "ping", check=False).strip() != "PONG":
            if self.process.poll() is not None:
                sys.exit(f"{sys.argv[0]}: redis-server does not start")

    def call(self, program, *arguments, check=True):
        """The output of redis-cli or redis-benchmark."""
        command = [program, "-p", str(self.port), *arguments]
        return subprocess.run(command, check=check, capture_output=True, text=True).stdout

    def info(self, section):
        lines = self.call("redis-cli", "info", section).splitlines()
        return {key: value for key, _, value in (line.partition(":") for line in lines)}


class Broker(Server):
    def __init__(self, program, home, *flags):
        command = [program, "serve", "--port", "0", "--queue-capacity", "100000", "--log-level", "warn", *flags]
        super().__init__(subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={"HOME": home}))
        said = ""
        while not (url := re.search(r"ws://[0-9.:]+/ws", said)):
            line = self.process.stderr.readline()
            if not line:
                sys.exit(f"{sys.argv[0]}: the broker does not start: {said}")
            said += line
        self.url = url[0]
