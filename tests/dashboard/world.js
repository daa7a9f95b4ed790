// A broker in which every view has something to show.
import { Agent, NOTE } from './agent.js';
import { FAKE_BACKEND } from './broker.js';

export const NAMES = ['planner', 'coder-1', 'coder-2', 'coder-3', 'reviewer', 'tester', 'writer', 'release-manager'];

/** The configuration of its backends: one that is ready, one that cannot be started. */
export const BACKENDS = `
[backends.files]
command = ${JSON.stringify(FAKE_BACKEND)}
args = ["--era", "modern"]

[backends.search]
command = "no-such-program"
`;

export async function populate(broker) {
  await broker.rest('POST', 'protocols', NOTE);
  await broker.rest('POST', 'protocols', { ...NOTE, version: '1.1.0', capabilities: ['point_to_point'],
    metadata: { author: 'The platform team', description: 'A short text from one agent to another', tags: ['chat'] } });
  for (const review of reviews()) await broker.rest('POST', 'protocols', review);
  await broker.rest('POST', 'projects', { project_id: 'acme', name: 'Acme', description: 'A second tenant', tags: ['customer'] });
  await broker.until(async () => (await broker.rest('GET', 'backends/files')).tools > 0, 'the tools of the backend');
  const agents = {};
  for (const [at, name] of NAMES.entries()) {
    agents[name] = await Agent.connect(broker, name, { reads: name !== 'writer', metadata: { team: at % 2 ? 'blue' : 'green' },
      capabilities: { supported_protocols: at % 2 ? { note: ['1.0.0'] } : { note: ['1.0.0', '1.1.0'], review: ['2.0.0'] },
        supported_features: ['streaming'] } });
  }
  const interpreter = await Agent.connect(broker, 'interpreter', { reads: false });
  for (let job = 1; job <= 3; job += 1) await agents.planner.send('interpreter', `job ${job}`, { correlation_id: 'translation' });
  await interpreter.close();
  await broker.rest('DELETE', 'sessions/interpreter?forget=true');
  for (let at = 0; at < 24; at += 1) {
    const [from, to] = [NAMES[at % 5], NAMES[(at * 3 + 1) % 6]];
    if (from !== to) await agents[from].send(to, `message ${at}`, { correlation_id: `feature-${at % 4}`, priority: at % 6 ? 'normal' : 'high' });
  }
  for (let at = 0; at < 5; at += 1) await agents.planner.send('writer', `chapter ${at}`, { thread_id: 'manual', subject: 'How to print' });
  return agents;
}

/** Two versions of `review`, and the lens between them. */
function reviews() {
  const review = (version, required) => ({ name: 'review', version, metadata: { tags: ['code'] },
    schema: { type: 'object', properties: Object.fromEntries(required.map((name) => [name, { type: 'string' }])), required } });
  const lens = [{ op: 'rename', path: '/text', to: 'body' }, { op: 'add', path: '/urgency', value: 'normal' }];
  return [review('1.0.0', ['text']), { ...review('2.0.0', ['body', 'urgency']), from: '1.0.0', lens }];
}

/** A review of the first version, which a session that declares the second gets transformed. Returns the id of the message. */
export async function review({ planner }) {
  const { message_id: id } = await planner.call('send_message', { recipient_id: 'coder-2', protocol_name: 'review', protocol_version: '1.0.0',
    payload: { text: 'Please read the parser.' } });
  return id;
}

/** A conversation of two agents, whose first message has no header, and a question with the answer of a person. */
export async function converse(broker, { planner, 'coder-1': coder }) {
  const { message_id: began } = await planner.send('coder-1', 'Which endpoint lists the **orders** of one customer?');
  await coder.send('planner', 'GET /orders, with pages:\n\n```\ncurl -fsS "$shop/orders?customer=7"\n```', { thread_id: began });
  await planner.send('coder-1', 'Thank you.', { thread_id: began });
  const { question_id: asked } = await planner.call('clarify', { question: 'Async or threads?', options: ['async', 'threads'], wait_seconds: 0 });
  await broker.rest('POST', `questions/${asked}/answer`, { selected: ['threads'], text: 'Use threads: they are easier to debug.' }, { 'X-Human': 'mara' });
  return { began, asked };
}

export const closeAll = (agents) => Promise.all(Object.values(agents).map((agent) => agent.close()));
