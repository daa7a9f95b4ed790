"""Agents with the official Python SDK v1 (legacy era)."""

from conversation import come_back, converse, push, tools
from exchange import exchange
from scenario import expect, scenario
from v1 import AgentV1


async def main(url, mode="http", part="all"):
    expect(mode in ("http", "sse") and part in ("all", "exchange"), True, f"there is a {mode} {part}")

    def connect(**options):
        return AgentV1.connect(url, sse=mode == "sse", **options)

    alice, bob = await connect(), await connect()
    if part == "exchange":
        await exchange(alice, bob, "v1")
        agents = [alice, bob]
    else:
        await tools(alice)
        await converse(alice, bob, "v1")
        agents = [alice, await come_back(alice, bob, connect, "v1")]
        agents += [await connect(), await connect(push={"window": 64, "ack": "manual"})]
        await push(*agents[-2:], "v1")
    for agent in agents:
        await agent.close()


scenario(AgentV1.sdk, main)
