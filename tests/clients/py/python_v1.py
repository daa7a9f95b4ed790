"""Agents with the official Python SDK v1 (legacy era)."""

from conversation import come_back, converse, push, tools
from scenario import scenario
from v1 import AgentV1


async def main(url):
    alice, bob = await AgentV1.connect(url), await AgentV1.connect(url)
    await tools(alice)
    await converse(alice, bob, "v1")
    agents = [alice, await come_back(alice, bob, lambda: AgentV1.connect(url), "v1")]
    agents += [await AgentV1.connect(url), await AgentV1.connect(url, push={"window": 64, "ack": "manual"})]
    await push(*agents[-2:], "v1")
    for agent in agents:
        await agent.close()


scenario(AgentV1.sdk, main)
