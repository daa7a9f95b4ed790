"""Agents with the official Python SDK v2, in every way it has to agree on a protocol version."""

from conversation import come_back, converse, push, tools
from scenario import expect, scenario, step
from v2 import PINNED, AgentV2

MODES = {"pin": PINNED, "auto": "auto", "legacy": "legacy"}


async def main(url, only=None):
    for topic in [only] if only else MODES:
        mode = MODES[topic]

        def connect(**options):
            return AgentV2.connect(url, mode=mode, **options)

        step(f"mode {mode!r}")
        alice, bob = await connect(), await connect()
        expect(alice.client.protocol_version, "2025-11-25" if mode == "legacy" else PINNED)
        if mode == "auto":
            await discovered(alice)
        await tools(alice)
        await converse(alice, bob, topic)
        agents = [alice, await come_back(alice, bob, connect, topic)]
        # The SDK has no argument for `capabilities.experimental`, where the legacy era looks for the extension.
        if alice.modern:
            agents += [await connect(), await connect(push={"window": 64, "ack": "manual"})]
            await push(*agents[-2:], topic)
        for agent in agents:
            await agent.close()


async def discovered(agent):
    step("server/discover says what the broker speaks and what it can do")
    discover = agent.client.session.discover_result
    expect(PINNED in discover.supported_versions, True)
    expect(agent.client.server_info.name, "mcp-broker")
    expect(agent.client.server_capabilities.tools is not None, True)
    expect(agent.client.server_capabilities.resources.subscribe, True)


scenario(AgentV2.sdk, main)
