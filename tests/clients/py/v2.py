"""The official SDK v2, over Streamable HTTP, stdio or a WebSocket transport of our own: it has none any more."""

import asyncio
from contextlib import asynccontextmanager
from typing import Any, Literal

import anyio
import mcp_types as types
from mcp import Client, MCPError
from mcp.client import ClientExtension, NotificationBinding
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.message import SessionMessage
from pydantic import BaseModel
from websockets.asyncio.client import connect

from agent import ACKNOWLEDGE, PUSH, PUSHED, Agent, connect_command

PINNED = "2026-07-28"


@asynccontextmanager
async def websocket_transport(url):
    incoming, read = anyio.create_memory_object_stream(0)
    write, outgoing = anyio.create_memory_object_stream(0)

    async def receive():
        async with incoming:
            async for text in socket:
                try:
                    frame = SessionMessage(types.jsonrpc_message_adapter.validate_json(text, by_name=False))
                except ValueError as unreadable:
                    frame = unreadable
                await incoming.send(frame)

    async def send():
        async with outgoing:
            async for frame in outgoing:
                await socket.send(frame.message.model_dump_json(by_alias=True, exclude_unset=True))

    async with connect(url, subprotocols=["mcp"]) as socket, anyio.create_task_group() as tasks:
        tasks.start_soon(receive)
        tasks.start_soon(send)
        yield read, write
        tasks.cancel_scope.cancel()


def transport_of(url):
    if url.startswith("stdio:"):
        return stdio_client(StdioServerParameters(**connect_command(url)))
    return websocket_transport(url) if url.startswith("ws:") else url


class Pushed(BaseModel):
    message: dict[str, Any]


class Push(ClientExtension):
    """The broker's extension: messages come to the client instead of being asked for."""

    identifier = PUSH

    def __init__(self, settings, pushed):
        self._settings, self._pushed = settings, pushed

    def settings(self):
        return self._settings

    def notifications(self):
        return [NotificationBinding(method=PUSHED, params_type=Pushed, handler=self._on_message)]

    async def _on_message(self, params):
        self._pushed.push(params.message)


class Acknowledge(types.Notification[dict[str, Any], Literal[ACKNOWLEDGE]]):
    method: Literal[ACKNOWLEDGE] = ACKNOWLEDGE


class AgentV2(Agent):
    sdk = "Python SDK v2"
    RpcError = MCPError

    def __init__(self, push=None, mode=PINNED):
        super().__init__()
        self.push, self.mode = push, mode
        self._listening = {}

    @property
    def modern(self):
        return self.mode != "legacy"

    @asynccontextmanager
    async def run(self, url):
        extensions = [Push(self.push, self.pushed)] if self.push else None
        client = Client(
            transport_of(url),
            mode=self.mode,
            client_info=types.Implementation(name="scenario-v2", version="1.0.0"),
            message_handler=self._on_message,
            extensions=extensions,
        )
        async with client as self.client:
            yield

    async def _on_message(self, message):
        if isinstance(message, Exception):
            self.problems.append(message)
        elif isinstance(message, types.ResourceUpdatedNotification):
            self.told[message.params.uri].push(message)

    async def call_tool(self, tool, arguments, progress=None):
        return await self.client.call_tool(tool, arguments, progress_callback=progress)

    async def tools(self):
        return [tool.model_dump(by_alias=True) for tool in (await self.client.list_tools()).tools]

    async def read(self, uri):
        return [content.text for content in (await self.client.read_resource(uri)).contents]

    async def subscribe(self, uri):
        if not self.modern:
            return await self.client.subscribe_resource(uri)
        acknowledged = asyncio.get_running_loop().create_future()
        self._listening[uri] = asyncio.create_task(self._listen(uri, acknowledged))
        done, _ = await asyncio.wait([acknowledged, self._listening[uri]], return_when=asyncio.FIRST_COMPLETED)
        for outcome in done:
            outcome.result()

    async def _listen(self, uri, acknowledged):
        async with self.client.listen(resource_subscriptions=[uri]) as subscription:
            acknowledged.set_result(subscription.honored)
            async for _ in subscription:
                pass  # `_on_message` is told as well, and also of what the subscription takes for a repetition

    async def unsubscribe(self, uri):
        if not self.modern:
            return await self.client.unsubscribe_resource(uri)
        listening = self._listening.pop(uri)
        listening.cancel()
        await asyncio.wait([listening])

    async def close(self):
        # A subscription that is open when its connection ends raises an error that must be retrieved.
        for uri in list(self._listening):
            await self.unsubscribe(uri)
        await super().close()

    async def expect_pushes(self):
        """A modern client is pushed messages while it is subscribed."""
        if self.modern:
            await self.subscribe(self.inbox)

    async def acknowledge(self, **params):
        await self.client.session.send_notification(Acknowledge(params=self.named(params)))
