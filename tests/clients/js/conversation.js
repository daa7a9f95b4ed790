// The scenarios of two agents on one broker, step by step, for every SDK.

import assert from 'node:assert/strict';

import { INBOX } from './agent.js';
import { step } from './scenario.js';

export const TOOLS = [
  'acknowledge_messages',
  'broadcast_message',
  'compatibility_matrix',
  'discover_protocols',
  'disconnect_session',
  'get_message_status',
  'get_thread',
  'heartbeat',
  'list_dead_letters',
  'list_sessions',
  'negotiate_capabilities',
  'receive_messages',
  'redrive_dead_letters',
  'register_protocol',
  'register_session',
  'search_messages',
  'send_message'
];

const SCHEMA = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  properties: { text: { type: 'string', minLength: 1 }, lines: { type: 'array', items: { type: 'string' } } },
  required: ['text'],
  additionalProperties: false
};

export async function tools(agent) {
  step('tools/list: every tool, in a stable order, with a title, schemas and hints');
  const listed = await agent.tools();
  const missing = TOOLS.filter(name => !listed.some(tool => tool.name === name));
  assert.deepEqual(missing, [], 'tools that are missing');
  for (const tool of listed) {
    assert.ok(tool.title ?? tool.annotations?.title, `${tool.name} has a title`);
    assert.ok(tool.description, `${tool.name} has a description`);
    assert.equal(tool.inputSchema.type, 'object', tool.name);
    // The result of permission_prompt is one text.
    const schema = tool.name === 'permission_prompt' ? undefined : 'object';
    assert.equal(tool.outputSchema?.type, schema, tool.name);
    for (const hint of ['readOnlyHint', 'destructiveHint', 'idempotentHint']) {
      assert.equal(typeof tool.annotations?.[hint], 'boolean', `${tool.name}: ${hint}`);
    }
  }
  const again = await agent.tools();
  assert.deepEqual(again.map(tool => tool.name), listed.map(tool => tool.name));
}

/** The id by which lists and messages name a registered session. */
const listedId = session => `${session.session_id.slice(0, -8)}00000000`;

/** Reads resources and prompts. `topic` is the topic of an earlier conversation. */
export async function resources(agent, topic) {
  const protocol = `chat-${topic}`;
  step('resources/list and resources/templates/list name what can be read');
  const { resources: listed } = await agent.client.listResources();
  assert.deepEqual(listed.map(({ uri }) => uri).sort(), [INBOX, 'broker://protocols', 'broker://sessions']);
  const { resourceTemplates } = await agent.client.listResourceTemplates();
  assert.deepEqual(resourceTemplates.map(({ uriTemplate }) => uriTemplate).sort(), [
    'broker://protocols/{name}/{version}',
    'broker://sessions/{session_id}/inbox'
  ]);

  step('sessions, protocols, one protocol and one inbox can be read; what is not there is an error');
  const { sessions } = await agent.read('broker://sessions');
  assert.ok(sessions.some(({ name }) => name === `alice-${topic}`));
  if (agent.session) assert.equal((await agent.read(`broker://sessions/${agent.session}/inbox`)).waiting, 0);
  const { protocols } = await agent.read('broker://protocols');
  assert.ok(protocols.some(({ name }) => name === protocol));
  assert.deepEqual((await agent.read(`broker://protocols/${protocol}/1.0.0`)).schema, SCHEMA);
  for (const uri of [`broker://protocols/${protocol}/9.0.0`, 'broker://nothing']) {
    await assert.rejects(agent.client.readResource({ uri }), { code: agent.resourceNotFound, data: { uri } });
  }
}

/** A full conversation of two agents that poll for their messages. `topic` keeps names on one broker apart. */
export async function converse(alice, bob, topic) {
  const [aliceName, bobName, protocol] = [`alice-${topic}`, `bob-${topic}`, `chat-${topic}`];
  const message = (text, more = {}) => ({
    recipient_id: bobName,
    protocol_name: protocol,
    protocol_version: '1.0.0',
    payload: { text },
    ...more
  });
  const status = async id => {
    const { recipients } = await alice.call('get_message_status', { message_id: id });
    assert.equal(recipients.length, 1);
    return recipients[0].status;
  };

  step('two agents register a name and what they can do');
  const a = await alice.call('register_session', {
    name: aliceName,
    capabilities: { supported_protocols: { [protocol]: ['1.0.0'] }, supported_features: ['tasks', 'drafts'] },
    metadata: { model: 'a' }
  });
  const b = await bob.call('register_session', {
    name: bobName,
    capabilities: { supported_protocols: { [protocol]: ['1.1.0'] }, supported_features: ['tasks', 'voice'] }
  });
  for (const [session, name] of [[a, aliceName], [b, bobName]]) {
    assert.equal(session.name, name);
    assert.equal(session.status, 'active');
    assert.equal(session.project_id, 'default');
    assert.equal(session.resumed, false);
    assert.equal(session.queue_size, 0);
    assert.ok(session.heartbeat_interval_seconds > 0);
    assert.equal(session.stale_after_seconds, 30);
    assert.equal(session.disconnect_after_seconds, 60);
  }
  assert.notEqual(a.session_id, b.session_id);

  step('one of them registers a protocol');
  const definition = {
    name: protocol,
    version: '1.0.0',
    schema: SCHEMA,
    capabilities: ['point_to_point', 'broadcast'],
    metadata: { author: 'alice', description: 'Short texts', tags: ['chat'] }
  };
  const registered = await alice.call('register_protocol', definition);
  assert.equal(registered.name, protocol);
  assert.equal(registered.version, '1.0.0');
  assert.ok(!Number.isNaN(Date.parse(registered.registered_at)), registered.registered_at);
  const twice = await bob.refusal('register_protocol', { ...definition, schema: { type: 'object' } });
  assert.equal(twice.code, 'protocol_exists');
  const broken = await bob.refusal('register_protocol', { ...definition, version: '1.1.0', schema: { type: 'nonsense' } });
  assert.equal(broken.code, 'invalid_schema');

  step('the other one discovers it');
  const found = await bob.call('discover_protocols', { name: protocol, version: '^1.0', include_schema: true });
  assert.equal(found.protocols.length, 1);
  assert.deepEqual(found.protocols[0].schema, SCHEMA);
  const other = await bob.call('discover_protocols', { name: protocol, version: '^2.0' });
  assert.deepEqual(other.protocols, []);

  step('each finds the other by the protocol it speaks');
  const { sessions } = await bob.call('list_sessions', { protocol, include_capabilities: true });
  assert.deepEqual(sessions.map(session => session.name).sort(), [aliceName, bobName]);
  const seen = sessions.find(session => session.name === aliceName);
  assert.equal(seen.session_id, listedId(a));
  assert.equal(seen.status, 'active');
  assert.deepEqual(seen.capabilities.supported_protocols, { [protocol]: ['1.0.0'] });

  step('they negotiate: the lower of two compatible versions, and the features that both have');
  const agreed = await alice.call('negotiate_capabilities', {
    target_session_id: bobName,
    required_protocols: [{ name: protocol, version: '1.0.0' }]
  });
  assert.equal(agreed.compatible, true);
  assert.deepEqual(agreed.supported_protocols, { [protocol]: '1.0.0' });
  assert.deepEqual(agreed.feature_intersections, ['tasks']);
  assert.deepEqual(agreed.unsupported_features, { ours: ['drafts'], theirs: ['voice'] });
  assert.deepEqual(agreed.incompatibilities, []);
  const { rows } = await alice.call('compatibility_matrix', { session_ids: [a.session_id, b.session_id] });
  assert.equal(rows.length, 1);
  assert.equal(rows[0].compatible, true);

  step(`${bobName} subscribes to ${bob.inbox} and is told of a message sent to its name`);
  await bob.subscribe();
  const sent = await alice.call('send_message', message('hello', { headers: { correlation_id: 'c-1', priority: 'high' } }));
  assert.equal(sent.status, 'queued');
  await bob.told(bob.inbox).next();
  assert.equal(await status(sent.message_id), 'queued');
  assert.equal(await bob.unread(), 1);
  assert.equal((await bob.read(bob.inbox)).waiting, 1);

  step('it receives the message, and the status says delivered, not more');
  const received = await bob.call('receive_messages', { acknowledge: 'manual' });
  assert.equal(received.remaining, 0);
  assert.equal(received.messages.length, 1);
  const [hello] = received.messages;
  assert.equal(hello.message_id, sent.message_id);
  assert.equal(hello.project_id, 'default');
  assert.equal(hello.sender_id, listedId(a));
  assert.equal(hello.sender_name, aliceName);
  assert.equal(hello.recipient_id, listedId(b));
  assert.equal(hello.protocol_name, protocol);
  assert.equal(hello.protocol_version, '1.0.0');
  assert.deepEqual(hello.payload, { text: 'hello' });
  assert.equal(hello.headers.priority, 'high');
  assert.equal(hello.headers.correlation_id, 'c-1');
  assert.equal(hello.delivery_count, 1);
  assert.ok(!Number.isNaN(Date.parse(hello.timestamp)), hello.timestamp);
  assert.equal(await status(sent.message_id), 'delivered');

  step('it acknowledges the message, and the status says acknowledged');
  const acknowledged = await bob.call('acknowledge_messages', { message_ids: [sent.message_id] });
  assert.deepEqual(acknowledged.unknown, []);
  assert.equal(await status(sent.message_id), 'acknowledged');
  const nothing = await bob.call('receive_messages', {});
  assert.deepEqual(nothing.messages, []);

  step('a long poll waits, lets other calls overtake it, and ends with the message');
  const poll = await bob.poll({ acknowledge: 'immediate' });
  assert.equal((await bob.call('heartbeat')).status, 'active');
  // Progress is sent once per heartbeat interval, which is short when this runs as a test.
  if (b.heartbeat_interval_seconds <= 1) {
    const [first, second] = [await poll.progress.next(), await poll.progress.next()];
    assert.ok(0 < first.progress && first.progress < second.progress, `${first.progress}, ${second.progress}`);
  }
  const answered = await alice.call('send_message', message('wake up', { wait_for: 'acknowledged', timeout_seconds: 10 }));
  assert.equal(answered.status, 'acknowledged');
  assert.deepEqual((await poll.answer).messages.map(({ payload }) => payload), [{ text: 'wake up' }]);

  step('order within a priority, and the next call acknowledges what the last one returned');
  for (const text of ['one', 'two', 'three']) await alice.call('send_message', message(text));
  const urgent = await alice.call('send_message', message('zero', { headers: { priority: 'urgent' } }));
  const first = await bob.call('receive_messages', { limit: 3, acknowledge: 'on_next' });
  assert.deepEqual(first.messages.map(({ payload }) => payload.text), ['zero', 'one', 'two']);
  assert.equal(first.remaining, 1);
  const rest = await bob.call('receive_messages', { acknowledge: 'on_next' });
  assert.deepEqual(rest.messages.map(({ payload }) => payload.text), ['three']);
  assert.equal(await status(urgent.message_id), 'acknowledged');
  assert.deepEqual((await bob.call('receive_messages', { acknowledge: 'on_next' })).messages, []);

  step('a repeated idempotency key sends nothing twice');
  const once = message('once', { headers: { idempotency_key: `k-${topic}` } });
  const key = await alice.call('send_message', once);
  assert.equal((await alice.call('send_message', once)).message_id, key.message_id);
  const kept = await bob.call('receive_messages', { acknowledge: 'immediate' });
  assert.equal(kept.messages.length, 1);

  step('a payload that violates the schema is refused and says where');
  const invalid = await alice.refusal('send_message', { ...message(''), payload: { text: 5, extra: true } });
  assert.equal(invalid.code, 'payload_invalid');
  assert.match(JSON.stringify(invalid), /\/text/);
  for (const [wrong, code] of [
    [{ recipient_id: `nobody-${topic}` }, 'session_not_found'],
    [{ protocol_name: `no-${protocol}` }, 'protocol_not_found'],
    [{ headers: { priority: 'loud' } }, 'invalid_argument']
  ]) {
    assert.equal((await alice.refusal('send_message', message('x', wrong))).code, code, JSON.stringify(wrong));
  }
  assert.deepEqual((await bob.call('receive_messages', {})).messages, []);

  step('an unknown tool is a JSON-RPC error');
  await assert.rejects(alice.callTool({ name: 'no_such_tool', arguments: {} }), { code: -32602 });

  step('a broadcast reaches whom its filter lets through, and not its sender');
  const cast = await alice.call('broadcast_message', {
    protocol_name: protocol,
    protocol_version: '1.0.0',
    payload: { text: 'to all' },
    capability_filter: { protocols: { [protocol]: '^1.0' }, features: ['voice'] }
  });
  assert.deepEqual([cast.recipients, cast.failed, cast.failures], [1, 0, []]);
  assert.equal(cast.delivered + cast.queued, 1);
  const heard = await bob.call('receive_messages', { acknowledge: 'immediate' });
  assert.equal(heard.messages.length, 1);
  assert.equal(heard.messages[0].message_id, cast.message_id);
  assert.equal(heard.messages[0].recipient_id, null);
  assert.deepEqual((await alice.call('receive_messages', {})).messages, []);

  step('the answer goes the other way, by session id');
  await bob.call('send_message', { ...message('and you?'), recipient_id: a.session_id });
  const answer = await alice.call('receive_messages', { wait_seconds: 10, acknowledge: 'immediate', session_id: a.session_id });
  assert.deepEqual(answer.messages.map(({ payload }) => payload), [{ text: 'and you?' }]);

  step('no message was pushed to an agent that did not declare the extension, and no frame was unreadable');
  assert.equal(bob.pushed.count, 0);
  assert.deepEqual([...alice.problems, ...bob.problems], []);
}

/** An agent that cancels its calls, and sends to itself. `topic` is the topic of an earlier conversation. */
export async function cancellation(agent, topic) {
  step('a long poll that is cancelled takes no message with it');
  const name = `impatient-${topic}`;
  await agent.call('register_session', { name });
  const signal = new AbortController();
  const { answer } = await agent.poll({}, signal.signal);
  signal.abort('changed my mind');
  await assert.rejects(answer);
  await agent.call('heartbeat');
  for (let tries = 1; ; tries += 1) {
    const { message_id } = await agent.call('send_message', {
      recipient_id: name,
      protocol_name: `chat-${topic}`,
      protocol_version: '1.0.0',
      payload: { text: 'still there' }
    });
    const { messages } = await agent.call('receive_messages', { acknowledge: 'manual' });
    if (messages.some(message => message.message_id === message_id && message.delivery_count === 1)) break;
    // Over HTTP a message can arrive before the cancellation. Then the poll has returned it and is finished.
    assert.ok(!agent.ordered && tries === 1, `${JSON.stringify(messages)} and not ${message_id}`);
  }
  // The SDK drops progress that arrives after the cancellation.
  const crossed = ({ message }) => message.includes('progress notification for an unknown token');
  assert.deepEqual(agent.problems.filter(problem => !crossed(problem)), []);
}

/** Bob unsubscribes from his inbox. */
export async function endOfSubscription(alice, bob, topic) {
  const say = text =>
    alice.call('send_message', {
      recipient_id: `bob-${topic}`,
      protocol_name: `chat-${topic}`,
      protocol_version: '1.0.0',
      payload: { text }
    });
  step('after the end of a subscription nothing is told any more');
  // An update of the inbox under its other URI arrives after the earlier updates.
  if (!bob.stateless) {
    await bob.subscribe(bob.namedInbox);
    await say('loudly');
    await bob.told(bob.namedInbox).next();
  }
  await bob.unsubscribe();
  // In one era a subscription ends by a notification: an answer to a later request proves that it has been handled.
  await bob.call('heartbeat');
  const told = bob.told(bob.inbox).count;
  await say('quietly');
  if (!bob.stateless) await bob.told(bob.namedInbox).next();
  const received = await bob.call('receive_messages', { wait_seconds: 10, acknowledge: 'immediate' });
  assert.equal(received.messages.at(-1).payload.text, 'quietly');
  assert.equal(bob.told(bob.inbox).count, told);
  assert.deepEqual(bob.problems, []);
}

/** A name outlives its connection: an agent that registers it again has the same inbox. Returns that agent. */
export async function comeBack(alice, bob, reconnect, topic) {
  const [bobName, protocol] = [`bob-${topic}`, `chat-${topic}`];
  step(`${bobName} hangs up, is sent a message, and finds it when it comes back under its name`);
  await bob.close();
  const sent = await alice.call('send_message', {
    recipient_id: bobName,
    protocol_name: protocol,
    protocol_version: '1.0.0',
    payload: { text: 'while you were out' }
  });
  assert.equal(sent.status, 'queued');
  const back = await reconnect();
  const session = await back.call('register_session', {
    name: bobName,
    capabilities: { supported_protocols: { [protocol]: ['1.1.0'] }, supported_features: [] }
  });
  assert.equal(session.resumed, true);
  assert.equal(session.queue_size, 1);
  const kept = await back.call('receive_messages', { acknowledge: 'immediate' });
  assert.deepEqual(kept.messages.map(({ payload }) => payload.text), ['while you were out']);
  return back;
}

/** The last agent that registers a name owns it. The earlier connection is closed; behind a front its calls are refused. */
export async function takeOver(older, connect, topic) {
  const name = `taken-${topic}`;
  step('an agent that registers a name again has it from then on');
  await older.call('register_session', { name });
  const newer = await connect();
  const second = await newer.call('register_session', { name });
  assert.equal(second.resumed, true);
  if (older.ordered && !older.hasFront) {
    await older.gone;
    // The transport of SDK v1 does not expose the close code.
    const { closeCode = 4001 } = older.transport;
    assert.equal(closeCode, 4001);
  } else {
    assert.equal((await older.refusal('heartbeat')).code, 'session_taken_over');
  }
  assert.equal((await newer.call('heartbeat')).status, 'active');
  if (older.hasFront) {
    step('the earlier agent takes the name back by registering it, and not otherwise');
    assert.equal((await older.call('register_session', { name })).resumed, true);
    assert.equal((await older.call('heartbeat')).status, 'active');
    assert.equal((await newer.refusal('heartbeat')).code, 'session_taken_over');
    await older.close();
  }
  await newer.close();
}

/**
 * A sender and three receivers that declared the push extension: one with a window of 64, one with a window of 2, one
 * that leaves the acknowledging to the broker.
 */
export async function push(sender, wide, narrow, automatic, topic) {
  const protocol = `push-${topic}`;
  const name = who => `${who}-${topic}`;
  const send = (who, number, more = {}) =>
    sender.call('send_message', {
      recipient_id: name(who),
      protocol_name: protocol,
      protocol_version: '1.0.0',
      payload: { number },
      ...more
    });
  const untilAcknowledged = { wait_for: 'acknowledged', timeout_seconds: 10 };
  const numbers = messages => messages.map(({ payload }) => payload.number);
  const take = async (agent, count) => {
    const messages = [];
    while (messages.length < count) messages.push(await agent.pushed.next());
    return messages;
  };

  step('a sender and three agents that can be pushed messages');
  await sender.call('register_session', { name: name('sender') });
  for (const [agent, who] of [[wide, 'wide'], [narrow, 'narrow'], [automatic, 'automatic']]) {
    await agent.call('register_session', {
      name: name(who),
      capabilities: { supported_protocols: { [protocol]: ['1.0.0'] }, supported_features: [] }
    });
    await agent.expectPushes();
  }
  await sender.call('register_protocol', {
    name: protocol,
    version: '1.0.0',
    schema: { type: 'object', properties: { number: { type: 'integer' } }, required: ['number'] }
  });

  step('a pushed message is delivered, and acknowledged when its receiver says so by notification');
  const delivered = await send('wide', 1, { wait_for: 'delivered', timeout_seconds: 10 });
  assert.equal(delivered.status, 'delivered');
  const pushed = await wide.pushed.next();
  assert.equal(pushed.message_id, delivered.message_id);
  assert.equal(pushed.sender_name, name('sender'));
  assert.equal(pushed.delivery_count, 1);
  assert.deepEqual(pushed.payload, { number: 1 });
  const waiting = send('wide', 2, untilAcknowledged);
  const second = await wide.pushed.next();
  await wide.acknowledge({ message_ids: [pushed.message_id, second.message_id] });
  assert.equal((await waiting).status, 'acknowledged');
  const { recipients } = await sender.call('get_message_status', { message_id: pushed.message_id });
  assert.equal(recipients[0].status, 'acknowledged');

  step('one acknowledgement covers everything up to a message');
  const burst = [3, 4, 5, 6].map(number => send('wide', number, untilAcknowledged));
  const four = await take(wide, 4);
  assert.deepEqual(sender.ordered ? numbers(four) : numbers(four).sort(), [3, 4, 5, 6]);
  await wide.acknowledge({ up_to: four[3].message_id });
  for (const answer of burst) assert.equal((await answer).status, 'acknowledged');

  step('no more than the window is unacknowledged');
  for (const number of [1, 2, 3, 4]) await send('narrow', number);
  const two = await take(narrow, 2);
  assert.deepEqual(numbers(two), [1, 2]);
  // A message pushed beyond the window would have arrived before this answer.
  assert.equal((await narrow.call('heartbeat')).status, 'active');
  assert.equal(narrow.pushed.count, 2);
  await narrow.acknowledge({ message_ids: [two[0].message_id] });
  const third = await narrow.pushed.next();
  assert.equal((await narrow.call('heartbeat')).status, 'active');
  assert.equal(narrow.pushed.count, 3);
  await narrow.acknowledge({ up_to: third.message_id });
  const fourth = await narrow.pushed.next();
  await narrow.acknowledge({ up_to: fourth.message_id });
  assert.deepEqual(numbers([third, fourth]), [3, 4]);

  step('ack auto acknowledges what was written to the socket');
  assert.equal((await send('automatic', 1, untilAcknowledged)).status, 'acknowledged');
  assert.deepEqual((await automatic.pushed.next()).payload, { number: 1 });

  step('a broadcast is pushed to all of them, once');
  const cast = await sender.call('broadcast_message', {
    protocol_name: protocol,
    protocol_version: '1.0.0',
    payload: { number: 7 }
  });
  for (const agent of [wide, narrow, automatic]) {
    const heard = await agent.pushed.next();
    assert.equal(heard.message_id, cast.message_id);
    assert.equal(heard.recipient_id, null);
    await agent.acknowledge({ message_ids: [heard.message_id] });
    assert.equal((await agent.call('heartbeat')).queue_size, 0);
  }
  assert.deepEqual([wide, narrow, automatic].map(agent => agent.pushed.count), [7, 5, 2]);
  assert.deepEqual([sender, wide, narrow, automatic].flatMap(agent => agent.problems), []);
}
