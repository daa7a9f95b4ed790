"""Agents with the official Python SDK v1 (legacy era)."""

from conversation import come_back, converse, push, tools
from scenario import expect, scenario
from v1 import AgentV1


async def main(url, mode=None):
    expect(mode in (None, "sse"), True, f"there is a mode {mode}")

    def connect(**options):
        return AgentV1.connect(url, sse=mode == "sse", **options)

    alice, bob = await connect(), await connect()
    await tools(alice)
    await converse(alice, bob, "v1")
    agents = [alice, await come_back(alice, bob, connect, "v1")]
    agents += [await connect(), await connect(push={"window": 64, "ack": "manual"})]
    await push(*agents[-2:], "v1")
    for agent in agents:
        await agent.close()


scenario(AgentV1.sdk, main)
