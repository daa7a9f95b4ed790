"""What the scenarios need of a client, whichever SDK is behind it."""

import asyncio
import json

from scenario import Events, expect

INBOX = "broker://inbox"
PUSH = "dev.mcp-broker/push"
UNREAD = "dev.mcp-broker/unread"
PUSHED = "notifications/dev.mcp-broker/message"
ACKNOWLEDGE = "notifications/dev.mcp-broker/ack"


class Refused(Exception):
    """A failure inside a tool: the error object of the broker."""


class Agent:
    """A client of one of the SDKs. The subclass brings `run` and the requests that its SDK spells differently."""

    def __init__(self):
        self.updated = Events()  # the URI of each notifications/resources/updated
        self.pushed = Events()  # each message that was pushed
        self.problems = []  # what the SDK could not read
        self._hang_up = asyncio.Event()

    @classmethod
    async def connect(cls, url, **options):
        agent = cls(**options)
        ready = asyncio.get_running_loop().create_future()
        # The connection lives in one task: its cancel scopes must be left where they were entered.
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

    async def call(self, tool, **arguments):
        """Calls a tool; its result, which the SDK has checked against the outputSchema."""
        value, is_error = await self._ask(tool, arguments)
        if is_error:
            raise Refused(f"{tool} was refused: {value}")
        return value

    async def refusal(self, tool, **arguments):
        """Calls a tool that must refuse; the error object."""
        value, is_error = await self._ask(tool, arguments)
        expect(is_error, True, f"{tool} was to be refused and returned {value}")
        expect(type(value["message"]), str, "an error has a message")
        return value

    async def unread(self):
        """How many messages wait, as the `_meta` of every tool result says."""
        return (await self.call_tool("heartbeat", {})).meta.get(UNREAD)

    async def _ask(self, tool, arguments):
        result = (await self.call_tool(tool, arguments)).model_dump(by_alias=True)
        expect(result["content"][0]["type"], "text", f"{tool} answers with text too")
        value = json.loads(result["content"][0]["text"])
        if not result["isError"]:
            expect(result["structuredContent"], value, f"{tool}: text and structuredContent")
        return value, result["isError"]
