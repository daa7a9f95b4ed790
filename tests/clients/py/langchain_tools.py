"""Agents with the adapters of LangChain, in both ways that they have: a connection for each call, which is the default,
and one connection for all."""

import json
import os
from contextlib import AsyncExitStack

from agent import connect_command
from exchange import exchange
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from scenario import expect, scenario


class LangChainAgent:
    """Calls tools as an agent of LangChain does."""

    def __init__(self, tools):
        self._tools = {tool.name: tool for tool in tools}
        self.session_id = None

    async def call(self, tool, **arguments):
        value, status = await self._ask(tool, arguments)
        expect(status, "success", f"{tool}: {value}")
        if tool == "register_session":
            self.session_id = value["session_id"]
        return value

    async def refusal(self, tool, **arguments):
        value, status = await self._ask(tool, arguments)
        expect(status, "error", f"{tool} was to be refused and returned {value}")
        return value

    async def _ask(self, tool, arguments):
        # A connection that ends with its call has no session of its own: each call names one, as the tool descriptions ask a model to.
        if self.session_id:
            arguments = {"session_id": self.session_id, **arguments}
        call = {"type": "tool_call", "id": tool, "name": tool, "args": arguments}
        message = await self._tools[tool].ainvoke(call)
        content = message.content if isinstance(message.content, str) else message.content[0]["text"]
        value = json.loads(content)
        if message.status == "success":
            expect(message.artifact["structured_content"], value, f"{tool}: text and structuredContent")
        return value, message.status


async def main(url, transport, connections):
    key = os.environ.get("BROKER_KEY")
    place = {"url": url, "headers": {"X-API-Key": key} if key else None}
    server = {"transport": transport, **(connect_command(url) if transport == "stdio" else place)}

    if connections == "each":
        agents = [LangChainAgent(await MultiServerMCPClient({"broker": server}).get_tools()) for _ in range(2)]
        return await exchange(*agents, "each")
    expect(connections, "one")
    client = MultiServerMCPClient({"broker": server})
    async with AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(client.session("broker")) for _ in range(2)]
        agents = [LangChainAgent(await load_mcp_tools(session)) for session in sessions]
        await exchange(*agents, "one")


scenario("LangChain MCP adapters", main)
