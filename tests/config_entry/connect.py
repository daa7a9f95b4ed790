"""Connects with the entry of a client's file, which is the argument, and prints the tools of the broker."""

import asyncio
import json
import sys

from fastmcp import Client


async def main():
    async with Client(json.loads(sys.argv[1])) as client:
        for tool in await client.list_tools():
            print(tool.name)


asyncio.run(main())
