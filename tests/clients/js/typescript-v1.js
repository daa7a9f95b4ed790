// Agents with the official TypeScript SDK v1 (legacy era).

import { comeBack, converse, push, resources, takeOver, tools } from './conversation.js';
import { scenario } from './scenario.js';
import { AgentV1 } from './v1.js';

const connect = (url, ack, window = 64) => AgentV1.connect(url, ack && { push: { window, ack } });

await scenario(AgentV1.sdk, async url => {
  const [alice, bob] = [await connect(url), await connect(url)];
  await tools(alice);
  await converse(alice, bob, 'v1');
  await resources(alice, 'v1');
  await comeBack(alice, bob, () => connect(url), 'v1');
  await takeOver(await connect(url), () => connect(url), 'v1');
  const receivers = [await connect(url, 'manual'), await connect(url, 'manual', 2), await connect(url, 'auto')];
  await push(await connect(url), ...receivers, 'v1');
});
