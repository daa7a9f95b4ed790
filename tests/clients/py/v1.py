"""The official SDK v1 with the transports it ships."""

from contextlib import asynccontextmanager

import mcp.types as types
from mcp import ClientSession, McpError
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamablehttp_client
from mcp.client.websocket import websocket_client
from mcp.shared.message import SessionMessage
from pydantic import AnyUrl

from agent import ACKNOWLEDGE, PUSH, PUSHED, Agent, connect_command


class AgentV1(Agent):
    sdk = "Python SDK v1"
    RpcError = McpError

    def __init__(self, push=None, sse=False):
        super().__init__()
        self.push = push
        self._http = sse_client if sse else streamablehttp_client

    @asynccontextmanager
    async def run(self, url):
        if url.startswith("stdio:"):
            transport = stdio_client(StdioServerParameters(**connect_command(url)))
        else:
            transport = (websocket_client if self.ordered else self._http)(url)
        async with transport as (read, self._write, *_):
            reader = PushReader(read, self.pushed)
            async with DeclaringSession(reader, self._write, message_handler=self._on_message) as self.session:
                self.session.push = self.push
                await self.session.initialize()
                yield

    async def _on_message(self, message):
        if isinstance(message, Exception):
            self.problems.append(message)
        elif isinstance(message.root, types.ResourceUpdatedNotification):
            self.told[str(message.root.params.uri)].push(message)

    async def call_tool(self, tool, arguments, progress=None):
        return await self.session.call_tool(tool, arguments, progress_callback=progress)

    async def tools(self):
        return [tool.model_dump(by_alias=True) for tool in (await self.session.list_tools()).tools]

    async def read(self, uri):
        return [content.text for content in (await self.session.read_resource(AnyUrl(uri))).contents]

    async def subscribe(self, uri):
        await self.session.subscribe_resource(AnyUrl(uri))

    async def unsubscribe(self, uri):
        await self.session.unsubscribe_resource(AnyUrl(uri))

    async def expect_pushes(self):
        """A connection is all that a legacy client needs to be pushed messages."""

    async def acknowledge(self, **params):
        notification = types.JSONRPCNotification(jsonrpc="2.0", method=ACKNOWLEDGE, params=params)
        await self._write.send(SessionMessage(types.JSONRPCMessage(notification)))


class DeclaringSession(ClientSession):
    """The SDK has no argument for `capabilities.experimental`."""

    push = None

    async def send_request(self, request, *arguments, **options):
        if self.push and isinstance(request.root, types.InitializeRequest):
            request.root.params.capabilities.experimental = {PUSH: self.push}
        return await super().send_request(request, *arguments, **options)


class PushReader:
    """The SDK drops notifications that are not its own, so pushed messages are taken out of the stream before it."""

    def __init__(self, stream, pushed):
        self._stream, self._pushed = stream, pushed

    async def __aenter__(self):
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exception):
        return await self._stream.__aexit__(*exception)

    def __aiter__(self):
        return self

    async def __anext__(self):
        while True:
            item = await self._stream.__anext__()
            message = getattr(getattr(item, "message", None), "root", None)
            if getattr(message, "method", None) != PUSHED:
                return item
            self._pushed.push(message.params["message"])
