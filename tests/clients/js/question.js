// A question to a person whose call the SDK cuts after its timeout.

import assert from 'node:assert/strict';

import { step } from './scenario.js';

const HUMAN = { 'Content-Type': 'application/json', 'X-Human': 'mara' };

/** Asks with `timeout: 2000`, and reads the answer that came later. `topic` keeps names on one broker apart. */
export async function question(agent, url, topic) {
  // The address of REST is not known where a front finds the broker.
  if (agent.hasFront || process.env.BROKER_KEY) return;
  const rest = new URL('/api/v1/', url.replace(/^ws/, 'http'));
  const text = `Is ${topic} cut?`;
  const asked = { question: text, idempotency_key: `cut-${topic}` };

  step('a call that waits for a person is cut after two seconds, and its question lives');
  await agent.call('register_session', { name: `asker-${topic}` });
  await assert.rejects(agent.call('clarify', asked, { timeout: 2000 }), /timed? ?out/i);
  const { questions } = await (await fetch(new URL('questions?state=pending', rest), { headers: HUMAN })).json();
  const open = questions.filter(({ summary }) => summary === text);
  assert.equal(open.length, 1);
  const id = open[0].question_id;

  step('the same question with the same key waits on and is cut again');
  await assert.rejects(agent.call('clarify', asked, { timeout: 2000 }), /timed? ?out/i);

  step('the answer waits in the inbox, and is read by its question');
  const body = JSON.stringify({ text: 'it lives' });
  const answered = await fetch(new URL(`questions/${id}/answer`, rest), { method: 'POST', headers: HUMAN, body });
  assert.equal(answered.status, 200, await answered.text());
  const { messages } = await agent.call('receive_messages', { wait_seconds: 10 });
  assert.deepEqual(
    messages.map(({ protocol_name, payload }) => [protocol_name, payload.question_id, payload.answer.text]),
    [['human-answer', id, 'it lives']]
  );
  const read = await agent.call('get_answer', { question_id: id });
  assert.deepEqual([read.state, read.answer.text], ['answered', 'it lives']);
  assert.deepEqual((await agent.call('receive_messages', {})).messages, []);
}
