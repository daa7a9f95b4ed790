"""Agents with the client of FastMCP, as it negotiates and as a legacy client."""

import json
import os

from agent import connect_command
from exchange import exchange
from fastmcp import Client
from fastmcp.client.transports import SSETransport, StdioTransport, StreamableHttpTransport
from scenario import expect, scenario

PINNED = "2026-07-28"


class FastMcpAgent:
    def __init__(self, client):
        self._client = client
        self.session_id = None

    async def call(self, tool, **arguments):
        value, is_error = await self._ask(tool, arguments)
        expect(is_error, False, f"{tool}: {value}")
        if tool == "register_session":
            self.session_id = value["session_id"]
        return value

    async def refusal(self, tool, **arguments):
        value, is_error = await self._ask(tool, arguments)
        expect(is_error, True, f"{tool} was to be refused and returned {value}")
        return value

    async def _ask(self, tool, arguments):
        if self.session_id:
            arguments = {"session_id": self.session_id, **arguments}
        result = await self._client.call_tool(tool, arguments, raise_on_error=False)
        value = json.loads(result.content[0].text)
        if not result.is_error:
            expect(result.structured_content, value, f"{tool}: text and structuredContent")
        return value, result.is_error


async def main(url, mode):
    key = os.environ.get("BROKER_KEY")
    headers = {"X-API-Key": key} if key else {}

    def client():
        if url.startswith("stdio:"):
            return Client(StdioTransport(**connect_command(url)), mode=mode)
        if mode == "sse":
            return Client(SSETransport(url, headers=headers), mode="legacy")
        return Client(StreamableHttpTransport(url, headers=headers), mode=mode)

    async with client() as first, client() as second:
        expect(first.protocol_version, PINNED if mode == "auto" else "2025-11-25")
        expect(bool(first.instructions), True, "the instructions of the broker")
        await exchange(FastMcpAgent(first), FastMcpAgent(second), mode)


scenario("FastMCP", main)
