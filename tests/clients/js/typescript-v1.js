// Agents with the official TypeScript SDK v1 (legacy era).

import assert from 'node:assert/strict';

import { cancellation, comeBack, converse, endOfSubscription, push, resources, takeOver, tools } from './conversation.js';
import { exchange } from './exchange.js';
import { question } from './question.js';
import { scenario } from './scenario.js';
import { AgentV1 } from './v1.js';

await scenario(AgentV1.sdk, async (url, mode = 'http', part = 'all') => {
  assert.match(`${mode} ${part}`, /^(http|sse) (all|exchange)$/);
  const sse = mode === 'sse';
  const connect = (ack, window = 64) => AgentV1.connect(url, { sse, push: ack && { window, ack } });
  const [alice, bob] = [await connect(), await connect()];
  if (part === 'exchange') return exchange(alice, bob, 'v1');
  await tools(alice);
  await converse(alice, bob, 'v1');
  await endOfSubscription(alice, bob, 'v1');
  await resources(alice, 'v1');
  await cancellation(await connect(), 'v1');
  await comeBack(alice, bob, connect, 'v1');
  await question(await connect(), url, `v1-${mode}`);
  // A client of 2024-11-05 loses its stream and with it its session; its SDK reports no error.
  if (!sse) await takeOver(await connect(), connect, 'v1');
  const receivers = [await connect('manual'), await connect('manual', 2), await connect('auto')];
  await push(await connect(), ...receivers, 'v1');
});
