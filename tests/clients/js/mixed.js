// One conversation of two eras: an agent with SDK v1 and one with SDK v2, on one transport or on two.

import { comeBack, converse, push, takeOver } from './conversation.js';
import { scenario, step } from './scenario.js';
import { AgentV1 } from './v1.js';
import { AgentV2 } from './v2.js';

await scenario('TypeScript SDK v1 and v2 together', async (urlV1, urlV2 = urlV1) => {
  const agents = [
    { sdk: AgentV1.sdk, connect: options => AgentV1.connect(urlV1, options) },
    { sdk: AgentV2.sdk, connect: options => AgentV2.connect(urlV2, options) }
  ];
  const settings = [{ window: 64, ack: 'manual' }, { window: 2, ack: 'manual' }, { window: 64, ack: 'auto' }];
  for (const [from, to, topic] of [[...agents, 'old-to-new'], [...agents.toReversed(), 'new-to-old']]) {
    step(`${from.sdk} talks to ${to.sdk}`);
    const [alice, bob] = [await from.connect(), await to.connect()];
    await converse(alice, bob, topic);
    // The session outlives its connection and the era of that connection.
    await comeBack(alice, bob, from.connect, topic);
    await takeOver(await to.connect(), from.connect, topic);
    const receivers = await Promise.all(settings.map(push => to.connect({ push })));
    await push(await from.connect(), ...receivers, topic);
  }
});
