// EventSource, as browsers have it, follows the events of a broker through its restart. The arguments are the binary and an
// empty folder for its data.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import process from 'node:process';
import { createInterface } from 'node:readline';

import { EventSource } from 'eventsource';

import { Events, scenario, step } from './scenario.js';

/** The running broker. It ends with the scenario. */
let broker;
process.on('exit', () => broker?.kill('SIGKILL'));

/** Starts a broker on the folder; returns its port once it listens. */
async function startBroker(binary, folder) {
  const args = ['serve', '--port', '0', '--storage', 'disk', '--data-dir', folder, '--log-format', 'json'];
  broker = spawn(binary, args, { stdio: ['ignore', 'ignore', 'pipe'] });
  for await (const line of createInterface(broker.stderr)) {
    const address = /is listening: http:\/\/127\.0\.0\.1:(\d+)/.exec(line);
    if (address) {
      broker.stderr.resume();
      return Number(address[1]);
    }
  }
  throw new Error('the broker does not start');
}

/** An address that stays while brokers come and go; `target` is the port behind it. */
async function startProxy() {
  const proxy = createServer(client => {
    const server = connect(proxy.target, '127.0.0.1');
    for (const [one, other] of [[client, server], [server, client]]) {
      one.on('error', () => other.destroy());
      one.on('close', () => other.destroy());
      one.pipe(other);
    }
  });
  await once(proxy.listen(0, '127.0.0.1'), 'listening');
  return proxy;
}

async function post(port, path, body) {
  const answer = await fetch(`http://127.0.0.1:${port}/api/v1/${path}`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(body)
  });
  assert.ok(answer.ok, `${path}: ${answer.status} ${await answer.clone().text()}`);
  return answer.json();
}

const note = { from: 'reporter', protocol_name: 'note', protocol_version: '1.0.0', payload: {} };

/** Sends ten messages from a session to itself; returns their ids. */
async function send(port) {
  const ids = [];
  while (ids.length < 10) ids.push((await post(port, 'messages', { ...note, recipient_id: note.from })).message_id);
  return ids;
}

await scenario('event-source', async (binary, folder) => {
  const proxy = await startProxy();
  proxy.target = await startBroker(binary, folder);
  await post(proxy.target, 'protocols', { name: 'note', version: '1.0.0', schema: { type: 'object' } });
  // A message to all makes the session of its sender, and reaches no other.
  await post(proxy.target, 'messages', note);

  step('events arrive while messages are sent');
  const accepted = new Events();
  const source = new EventSource(`http://127.0.0.1:${proxy.address().port}/api/v1/events?topics=message`);
  source.addEventListener('message', event => {
    const data = JSON.parse(event.data);
    if (data.event === 'accepted') accepted.push(data.message.message_id);
  });
  source.addEventListener('gap', event => assert.fail(`a gap: ${event.data}`));
  await new Promise(resolve => source.addEventListener('open', resolve));
  const sent = await send(proxy.target);
  const seen = [];
  while (seen.length < 5) seen.push(await accepted.next());

  step('the broker restarts, and messages are sent before the client is back');
  broker.kill('SIGTERM');
  await once(broker, 'exit');
  const port = await startBroker(binary, folder);
  sent.push(...await send(port));
  proxy.target = port;

  step('the client returns by itself and misses nothing');
  while (seen.length < sent.length) seen.push(await accepted.next());
  assert.deepEqual(seen, sent);
  source.close();
  proxy.close();
});
