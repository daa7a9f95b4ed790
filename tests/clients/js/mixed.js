// One conversation of two eras: an agent with SDK v1 and one with SDK v2.

import { comeBack, converse, push, takeOver } from './conversation.js';
import { scenario, step } from './scenario.js';
import { AgentV1 } from './v1.js';
import { AgentV2 } from './v2.js';

await scenario('TypeScript SDK v1 and v2 together', async url => {
  const settings = [{ window: 64, ack: 'manual' }, { window: 2, ack: 'manual' }, { window: 64, ack: 'auto' }];
  for (const [Alice, Bob, topic] of [[AgentV1, AgentV2, 'old-to-new'], [AgentV2, AgentV1, 'new-to-old']]) {
    step(`${Alice.sdk} talks to ${Bob.sdk}`);
    const [alice, bob] = [await Alice.connect(url), await Bob.connect(url)];
    await converse(alice, bob, topic);
    // The session outlives not only its connection but the era of it.
    await comeBack(alice, bob, () => Alice.connect(url), topic);
    await takeOver(await Bob.connect(url), () => Alice.connect(url), topic);
    const receivers = await Promise.all(settings.map(push => Bob.connect(url, { push })));
    await push(await Alice.connect(url), ...receivers, topic);
  }
});
