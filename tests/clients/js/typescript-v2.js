// Agents with the official TypeScript SDK v2, in every mode of version negotiation.

import assert from 'node:assert/strict';

import { cancellation, comeBack, converse, endOfSubscription, push, resources, takeOver, tools } from './conversation.js';
import { question } from './question.js';
import { scenario, step } from './scenario.js';
import { AgentV2, PINNED } from './v2.js';

const MODES = [[PINNED, 'modern', 'pin'], ['auto', 'modern', 'auto'], ['legacy', 'legacy', 'legacy']];

await scenario(AgentV2.sdk, async (url, only) => {
  const modes = MODES.filter(([, , topic]) => topic === (only ?? topic));
  assert.ok(modes.length > 0, `there is no mode ${only}`);
  for (const [mode, era, topic] of modes) {
    const connect = (ack, window = 64) => AgentV2.connect(url, { mode, push: ack && { window, ack } });
    step(`version negotiation ${JSON.stringify(mode)}`);
    const [alice, bob] = [await connect(), await connect()];
    assert.equal(alice.client.getProtocolEra(), era);
    if (alice.modern) await discover(alice);
    await tools(alice);
    await converse(alice, bob, topic);
    await endOfSubscription(alice, bob, topic);
    await resources(alice, topic);
    await cancellation(await connect(), topic);
    await comeBack(alice, bob, connect, topic);
    await question(await connect(), url, topic);
    await takeOver(await connect(), connect, topic);
    const receivers = [await connect('manual'), await connect('manual', 2), await connect('auto')];
    await push(await connect(), ...receivers, topic);
  }
});

async function discover(agent) {
  step('server/discover says what the broker speaks and what it can do');
  const discovered = await agent.client.discover();
  assert.ok(discovered.supportedVersions.includes('2026-07-28'));
  assert.ok(discovered.capabilities.tools);
  assert.equal(discovered.capabilities.resources?.subscribe, true);
  assert.ok(discovered.ttlMs >= 0);
  assert.match(discovered.cacheScope, /^(public|private)$/);
  assert.equal(agent.client.getServerVersion()?.name, 'mcp-broker');
}
