"""How a scenario runs: one line per step, 30 seconds at most, exit code 0 or 1."""

import asyncio
import logging
import sys
import traceback
import warnings

DEADLINE_SECONDS = 30

_current = "start"
_complaints: list[str] = []


def step(text):
    """Names what the lines that follow are about."""
    global _current
    _current = text
    print(f"  - {text}", flush=True)


def expect(actual, expected, about=""):
    if actual != expected:
        raise AssertionError(f"{about}: {actual!r}, expected {expected!r}")


def expect_no_complaints():
    """What an SDK cannot read, it logs and drops."""
    expect(_complaints, [], "logged by the SDK")


class _Complaints(logging.Handler):
    def emit(self, record):
        _complaints.append(f"{record.name}: {record.getMessage()}")


def scenario(name, body):
    """Runs `body` with the arguments of the script: where a broker is, and what is to be run of the scenario."""
    if len(sys.argv) < 2:
        sys.exit(f"usage: {sys.argv[0]} ws://HOST:PORT/ws|http://HOST:PORT/mcp ...")
    # The SDKs deprecate v1's transport and the subscriptions of the legacy era; both are tested here.
    warnings.simplefilter("ignore")
    logging.getLogger().addHandler(_Complaints(logging.WARNING))
    print(name, *sys.argv[1:], flush=True)

    async def bounded():
        await asyncio.wait_for(body(*sys.argv[1:]), DEADLINE_SECONDS)

    try:
        asyncio.run(bounded())
    except Exception:
        print(f"FAILED {name}: {_current}", file=sys.stderr)
        traceback.print_exc()
        print("".join(f"  logged: {line}\n" for line in _complaints), file=sys.stderr)
        sys.exit(1)
    print(f"ok {name}", flush=True)


class Events:
    """What arrives by itself, in order, for whoever asks for the next."""

    def __init__(self):
        self.count = 0
        self._waiting = asyncio.Queue()

    def push(self, event):
        self.count += 1
        self._waiting.put_nowait(event)

    async def next(self):
        return await self._waiting.get()
