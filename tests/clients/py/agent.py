"""What the scenarios need of a client, whichever SDK is behind it."""

import asyncio
import json
import os
from collections import defaultdict

from scenario import Events, expect

INBOX = "broker://inbox"
PUSH = "dev.mcp-broker/push"
UNREAD = "dev.mcp-broker/unread"
PUSHED = "notifications/dev.mcp-broker/message"
ACKNOWLEDGE = "notifications/dev.mcp-broker/ack"


def connect_command(url):
    """The command of a server over stdio: `stdio:PROGRAM`, in the environment of the scenario."""
    return {"command": url.removeprefix("stdio:"), "args": ["connect"], "env": dict(os.environ)}


class Refused(Exception):
    """A failure inside a tool: the error object of the broker."""


class Agent:
    """A client of one of the SDKs. The subclass brings `run` and the requests that its SDK spells differently."""

    modern = False

    def __init__(self):
        self.told = defaultdict(Events)  # by URI, each notifications/resources/updated
        self.pushed = Events()  # each message that was pushed
        self.problems = []  # what the SDK could not read
        self.session_id = None  # of its session, once it has registered
        self._hang_up = asyncio.Event()

    @classmethod
    async def connect(cls, url, **options):
        agent = cls(**options)
        # Whether the broker reads frames in the order in which they are sent. HTTP requests may overtake each other.
        agent.ordered = not url.startswith("http:")
        ready = asyncio.get_running_loop().create_future()
        # One task owns the connection: a cancel scope must be left in the task that entered it.
        agent._task = asyncio.create_task(agent._live(url, ready))
        await ready
        return agent

    async def _live(self, url, ready):
        try:
            async with self.run(url):
                ready.set_result(None)
                await self._hang_up.wait()
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    async def close(self):
        self._hang_up.set()
        await self._task

    @property
    def stateless(self):
        """Whether the broker knows nothing of it between two requests, so that each has to name the session."""
        return self.modern and not self.ordered

    @property
    def inbox(self):
        """Its inbox. Who is not known by the connection has to say whose it is."""
        return self.named_inbox if self.stateless else INBOX

    @property
    def named_inbox(self):
        return f"broker://sessions/{self.session_id}/inbox"

    async def call(self, tool, *, progress=None, **arguments):
        """Calls a tool; its result, which the SDK has checked against the outputSchema."""
        value, is_error = await self._ask(tool, arguments, progress)
        if is_error:
            raise Refused(f"{tool} was refused: {value}")
        if tool == "register_session":
            self.session_id = value["session_id"]
        return value

    async def poll(self, **arguments):
        """Begins a long poll; the broker is waiting with it then. What it will answer, and the progress it tells of."""
        progress = Events()

        async def on_progress(value, total, message):
            progress.push(value)

        poll = self.call("receive_messages", wait_seconds=20, progress=on_progress, **arguments)
        answer = asyncio.create_task(poll)
        await asyncio.sleep(0)
        # If frames are read in order, the answer to a later request proves it too, and sooner.
        begun = asyncio.create_task(self.call("heartbeat") if self.ordered else progress.next())
        done, _ = await asyncio.wait([answer, begun], return_when=asyncio.FIRST_COMPLETED)
        for outcome in done:
            outcome.result()
        return answer, progress

    async def refusal(self, tool, **arguments):
        """Calls a tool that must refuse; the error object."""
        value, is_error = await self._ask(tool, arguments, None)
        expect(is_error, True, f"{tool} was to be refused and returned {value}")
        expect(type(value["message"]), str, "an error has a message")
        return value

    async def unread(self):
        """How many messages wait, as the `_meta` of every tool result says."""
        return (await self.call_tool("heartbeat", self.named({}))).meta.get(UNREAD)

    def named(self, arguments):
        """What a tool, or a notification of ours, is told: over stateless HTTP also for whom."""
        if self.stateless and self.session_id:
            return {"session_id": self.session_id, **arguments}
        return arguments

    async def _ask(self, tool, arguments, progress):
        result = (await self.call_tool(tool, self.named(arguments), progress)).model_dump(by_alias=True)
        expect(result["content"][0]["type"], "text", f"{tool} answers with text too")
        value = json.loads(result["content"][0]["text"])
        if not result["isError"]:
            expect(result["structuredContent"], value, f"{tool}: text and structuredContent")
        return value, result["isError"]
