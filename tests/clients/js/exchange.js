// The minimal scenario (register, send, receive, acknowledge) for clients that only call tools.

import assert from 'node:assert/strict';

import { step } from './scenario.js';

/** One message in each direction. `topic` keeps names on one broker apart. */
export async function exchange(alice, bob, topic) {
  const [aliceName, bobName, protocol] = [`alice-${topic}`, `bob-${topic}`, `chat-${topic}`];

  step('two agents register under their names');
  for (const [agent, name] of [[alice, aliceName], [bob, bobName]]) {
    const session = await agent.call('register_session', { name });
    assert.deepEqual([session.name, session.resumed, session.queue_size], [name, false, 0]);
  }
  await alice.call('register_protocol', {
    name: protocol,
    version: '1.0.0',
    schema: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] }
  });

  for (const [from, to, name] of [[alice, bob, bobName], [bob, alice, aliceName]]) {
    step(`a message to ${name} waits, is delivered, and is acknowledged`);
    const message = {
      recipient_id: name,
      protocol_name: protocol,
      protocol_version: '1.0.0',
      payload: { text: `hello ${name}` }
    };
    const status = async id => (await from.call('get_message_status', { message_id: id })).recipients[0].status;
    const sent = await from.call('send_message', message);
    assert.equal(await status(sent.message_id), 'queued');
    const { messages, remaining } = await to.call('receive_messages', { acknowledge: 'manual', wait_seconds: 1 });
    assert.equal(remaining, 0);
    assert.deepEqual(messages.map(({ message_id, payload }) => [message_id, payload]), [[sent.message_id, message.payload]]);
    assert.equal(await status(sent.message_id), 'delivered');
    const acknowledged = await to.call('acknowledge_messages', { message_ids: [sent.message_id] });
    assert.deepEqual([acknowledged.acknowledged, acknowledged.unknown], [1, []]);
    assert.equal(await status(sent.message_id), 'acknowledged');
    assert.deepEqual((await to.call('receive_messages', {})).messages, []);
  }

  step('what is refused says why');
  const nobody = await alice.refusal('send_message', {
    recipient_id: `nobody-${topic}`,
    protocol_name: protocol,
    protocol_version: '1.0.0',
    payload: { text: 'x' }
  });
  assert.equal(nobody.code, 'session_not_found');
}
