"""Prints what a client of an official SDK sees in the lists, as JSON: lists.py URL, with mcp 1.x; lists.py URL MODE, with 2.x."""

import asyncio
import json
import sys
from contextlib import asynccontextmanager


@asynccontextmanager
async def client_v1(url):
    from mcp import ClientSession
    from mcp.client.streamable_http import streamablehttp_client

    async with streamablehttp_client(url) as (read, write, _), ClientSession(read, write) as session:
        await session.initialize()
        yield session


@asynccontextmanager
async def client_v2(url, mode):
    from mcp import Client

    async with Client(url, mode=mode) as client:
        yield client


async def main(url, mode=None):
    async with client_v1(url) if mode is None else client_v2(url, mode) as client:

        async def every(listing, member, key):
            found, cursor = [], None
            while True:
                page = await (listing(cursor=cursor) if cursor else listing())
                page = page.model_dump(by_alias=True, mode="json")
                found += [item[key] for item in page[member]]
                cursor = page.get("nextCursor")
                if not cursor:
                    return found

        print(
            json.dumps(
                {
                    "tools": await every(client.list_tools, "tools", "name"),
                    "prompts": await every(client.list_prompts, "prompts", "name"),
                    "resources": await every(client.list_resources, "resources", "uri"),
                    "templates": await every(client.list_resource_templates, "resourceTemplates", "uriTemplate"),
                }
            )
        )


asyncio.run(main(*sys.argv[1:]))
