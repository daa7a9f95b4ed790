// Messages with search and filters, and the life of one message.
import { html, useState } from '../lib/preact.js';
import { allows, call, get } from '../lib/api.js';
import { count, duration, visible, words } from '../lib/format.js';
import { useResource } from '../lib/resource.js';
import { link } from '../lib/router.js';
import { skeleton } from '../lib/skeleton.js';
import { ask } from '../ui/dialog.js';
import { Filters } from '../ui/filters.js';
import { Empty, Failure, Facts, Id, Json, Loaded, Loading, Panel, Status, Text, Time } from '../ui/parts.js';
import { Pages, Table } from '../ui/table.js';

const STATUS = ['queued', 'delivered', 'acknowledged', 'expired', 'dead_lettered'];

export const Messages = ({ route, title }) => (route.item
  ? html`<${Life} id=${route.item} />` : html`<${List} params=${route.params} title=${title} />`);

// The sender of the broker's own messages, which is no session.
const BROKER = '00000000-0000-0000-0000-000000000000';

export const isSession = (id) => Boolean(id) && id !== BROKER;

export const SessionLink = ({ id, name }) => (id === BROKER ? html`<span class="faint"><${Text} value=${name} /></span>` : name
  ? html`<a href=${link('sessions', id)}><${Text} value=${name} max=${40} /></a>`
  : html`<${Id} value=${id} what="session id" href=${link('sessions', id)} />`);

// The conversation of a message or a thread. The message that began one has its own id as that of its thread.
export const linkToThread = ({ thread_id: thread, correlation_id: correlation, headers }) => (headers && !headers.thread_id && headers.correlation_id
  ? link('threads', headers.correlation_id, { by: 'correlation' })
  : thread ? link('threads', thread) : link('threads', correlation, { by: 'correlation' }));

// What a message is about: its subject, and its first words as far as the caller may read them. Beside a subject JSON says nothing.
export const Subject = ({ subject, excerpt: words, fallback }) => shownSubject(subject, subject && words?.startsWith('{') ? '' : words, fallback);

const shownSubject = (subject, excerpt, fallback) => html`${subject && html`<b><${Text} value=${subject} max=${80} /></b>${excerpt && ' '}`}${
  excerpt ? html`<span class=${subject ? 'faint' : ''}><${Text} value=${excerpt} max=${160} /></span>` : !subject && html`<span class="faint">${
  excerpt === null ? 'text not kept' : html`<${Text} value=${fallback} max=${40} />`}</span>`}`;

const sender = (row) => html`<${SessionLink} id=${row.sender_id} name=${row.sender_name} />`;
const recipient = (row) => (row.recipient_id ? html`<${SessionLink} id=${row.recipient_id} name=${row.recipient_name} />`
  : html`<span class="faint">all (broadcast)</span>`);

function List({ params, title }) {
  const { q, session, status, protocol, priority, thread_id, correlation_id, since, until, cursor } = params;
  const query = { q, session, status, protocol, priority, thread_id, correlation_id, since, until, cursor, include: 'excerpt', limit: 50 };
  const resource = useResource(JSON.stringify(query), (signal) => get('messages', query, signal), { topics: ['message', 'dead_letter'] });
  const choice = (values) => [['', 'All'], ...values.map((one) => [one, words(one)])];
  return html`<div class="title-row"><h1>${title}</h1><span class="spacer" />${allows('member')
      && html`<button type="button" onClick=${() => send(resource.refresh)}>Send a message</button>`}</div>
    <${Filters} fields=${[{ name: 'q', label: 'Search', type: 'search', hint: 'sender, recipient, protocol' },
      { name: 'session', label: 'Session', type: 'text', hint: 'name or id' },
      { name: 'status', label: 'Status', type: 'select', options: choice(STATUS) },
      { name: 'priority', label: 'Priority', type: 'select', options: choice(['low', 'normal', 'high', 'urgent']) },
      { name: 'protocol', label: 'Protocol', type: 'text' }, { name: 'thread_id', label: 'Thread', type: 'text' },
      { name: 'correlation_id', label: 'Correlation id', type: 'text' },
      { name: 'since', label: 'From', type: 'time' }, { name: 'until', label: 'To', type: 'time' }]} />
    <${Panel}><${Loaded} resource=${resource} what="messages">${(data) => html`
      <${Table} caption="Messages, newest first" rows=${data.messages} keyOf=${(row) => row.message_id}
        empty=${{ title: 'No message on this page matches.', text: data.next_cursor ? 'Older messages are on the next page.'
          : 'The history keeps the messages of the last hours.' }} columns=${[
          { title: 'Accepted', render: (row) => html`<a href=${link('messages', row.message_id)}><${Time} at=${row.timestamp} /></a>` },
          { title: 'From', isWide: true, render: sender },
          { title: 'To', isWide: true, render: recipient },
          { title: 'Message', render: (row) => html`<div class="narrow-line">${sender(row)} <span class="faint">to</span> ${recipient(row)}</div>
            <a class="said-first" href=${linkToThread(row)}><${Subject} subject=${row.headers.subject} excerpt=${row.excerpt} fallback=${row.protocol_name} /></a>
            <div class="narrow-line"><${Outcome} row=${row} /></div>` },
          { title: 'Status', isWide: true, render: (row) => html`<${Outcome} row=${row} />${row.headers.priority !== 'normal' && html`<div class="faint">${
            row.headers.priority}</div>`}` },
          { title: 'Protocol', isWide: true, render: (row) => html`<span class="unbroken"><${Text} value=${row.protocol_name} max=${24} />
            ${' '}<span class="faint">${row.protocol_version}</span></span>` },
          { title: 'Thread', isWidest: true, render: (row) => html`<a href=${linkToThread(row)}><${Text} max=${18}
            value=${row.headers.thread_id ?? row.headers.correlation_id ?? row.thread_id} /></a>` },
          { title: 'Id', isWidest: true, render: (row) => html`<${Id} value=${row.message_id} what="message id" href=${link('messages', row.message_id)} />` },
        ]} />
      <${Pages} shown=${data.messages.length} next=${data.next_cursor} />`}<//><//>`;
}

// What every session speaks. The broker does not list it.
const TEXT = 'text 1.0.0';

const protocolOf = (chosen) => {
  const [name, version] = chosen.split(' ');
  return { name, version };
};

function SendFields() {
  const [chosen, setChosen] = useState(TEXT);
  const { name, version } = protocolOf(chosen);
  const protocols = useResource('protocols to send', (signal) => get('protocols', { limit: 200 }, signal));
  const sessions = useResource('sessions to send', (signal) => get('sessions', { status: 'all', limit: 200 }, signal));
  const definition = useResource(`schema ${chosen}`, (signal) => (chosen === TEXT ? Promise.resolve(null)
    : get(`protocols/${encodeURIComponent(name)}/${encodeURIComponent(version)}`, {}, signal)));
  const known = (protocols.data?.protocols ?? []).map((one) => `${one.name} ${one.version}`).filter((one) => one !== TEXT);
  const schema = !definition.isStale && definition.data?.schema;
  const field = (of, label, attributes) => html`<label><span>${label}</span><input name=${of} type="text" autocomplete="off" spellcheck=${false}
    maxlength="256" ...${attributes} /></label>`;
  return html`${field('from', 'From', { required: true, value: 'operator', list: 'send-sessions' })}
    ${field('recipient', 'To (name or id; empty: to all)', { list: 'send-sessions' })}
    <datalist id="send-sessions">${(sessions.data?.sessions ?? []).filter((one) => one.name).map((one) => html`<option value=${one.name} />`)}</datalist>
    <label><span>Protocol</span><select name="protocol" value=${chosen} onChange=${(event) => setChosen(event.currentTarget.value)}>${[TEXT, ...known]
      .map((one) => html`<option value=${one} selected=${one === chosen}>${visible(one, 80)}</option>`)}</select></label>
    ${chosen === TEXT ? html`<label key="text"><span>Text</span><textarea name="text" class="prose" rows="4" required maxlength="65536" /></label>`
      : html`<label key=${`${chosen} ${Boolean(schema)}`}><span>Payload (JSON)</span><textarea name="payload" rows="8" spellcheck=${false} required
        value=${JSON.stringify(schema ? skeleton(schema) : {}, null, 2)} /></label>`}`;
}

// A message from a session that the caller owns, or that the broker makes for it.
function send(after) {
  ask({ title: 'Send a message', verb: 'Send',
    text: html`<p>A session with the name of the sender is made if there is none.</p>`,
    fields: html`<${SendFields} />`,
    run: async ({ form }) => {
      const { name, version } = protocolOf(form.protocol);
      let payload = { text: form.text };
      try {
        if (form.protocol !== TEXT) payload = JSON.parse(form.payload);
      } catch (error) {
        throw new Error(`The payload is not JSON: ${error.message}`);
      }
      const said = await call('POST', 'messages', { body: { from: form.from, protocol_name: name, protocol_version: version, payload,
        ...(form.recipient.trim() ? { recipient_id: form.recipient.trim() } : {}) } });
      return said.status ? `The message is ${words(said.status)}.` : `The message went to ${count(said.recipients)} sessions.`;
    }, after });
}

export function Outcome({ row }) {
  if (row.status) return html`<${Status} value=${row.status} />`;
  const counts = Object.entries(row.recipients ?? {}).filter(([, number]) => number);
  if (!counts.length) return html`<span class="faint">not known</span>`;
  return html`<span class="badges">${counts.map(([status, number]) => html`<${Status} value=${status}
    label=${`${count(number)} ${words(status)}`} />`)}</span>`;
}

function Life({ id }) {
  const load = (signal) => get(`messages/${encodeURIComponent(id)}`, {}, signal);
  const resource = useResource(id, load, { topics: ['message', 'dead_letter'],
    concerns: (event) => (event.message_id ?? event.message?.message_id) === id });
  return html`<p class="crumb"><a href=${link('messages')}>Messages</a></p><h1>Life of a message</h1>
    <${Loaded} resource=${resource} what="the message">${(life) => html`<${Envelope} life=${life} id=${id} />
      ${life.incomplete && html`<div class="notice warn" role="status"><p>The history no longer has every step of this message.</p></div>`}
      ${!life.recipients.length && html`<${Panel}><${Empty} title="No recipient is known." /><//>`}
      <div class="columns">${life.recipients.map((one) => html`<${Recipient} key=${one.session_id} recipient=${one}
        accepted=${life.accepted_at ?? life.message?.timestamp} />`)}</div>
      ${life.next_cursor && html`<p class="faint">The message has more recipients than these ${count(life.recipients.length)}.</p>`}
      ${allows('admin') && html`<${Payload} id=${id} />`}`}<//>`;
}

function Envelope({ life, id }) {
  const { message } = life;
  return html`<${Panel} title="Message"><${Facts} items=${[
    ['Id', html`<${Id} value=${id} what="message id" />`],
    ['Accepted', html`<${Time} at=${life.accepted_at ?? message?.timestamp} />`],
    ...(message ? [['From', html`<${SessionLink} id=${message.sender_id} name=${message.sender_name} />`],
      ['Protocol', html`<a href=${link('protocols', message.protocol_name, {}, message.protocol_version)}><${Text} value=${message.protocol_name}
        max=${60} /> ${message.protocol_version}</a>`],
      ['Priority', message.headers.priority],
      message.headers.subject && ['Subject', html`<${Text} value=${message.headers.subject} />`],
      ['Thread', html`<a href=${link('threads', life.thread_id)}>${life.thread_id === message.message_id ? 'The conversation that it began'
        : html`<${Text} value=${life.thread_id} />`}</a>`],
      message.headers.correlation_id && ['Correlation id', html`<a href=${link('threads', message.headers.correlation_id, { by: 'correlation' })}>
        <${Text} value=${message.headers.correlation_id} /></a>`],
      message.headers.reply_to && ['Reply to', html`<${Text} value=${message.headers.reply_to} />`],
      message.headers.ttl_seconds && ['Lives for', duration(message.headers.ttl_seconds)],
      message.headers.idempotency_key && ['Idempotency key', html`<${Text} value=${message.headers.idempotency_key} />`]] : [])]} /><//>`;
}

// Every step of the message for one recipient, with the time since its acceptance.
function Recipient({ recipient, accepted }) {
  const from = Date.parse(accepted);
  const steps = accepted ? [{ event: 'accepted', at: accepted }, ...recipient.events] : recipient.events;
  return html`<${Panel} title=${html`<${SessionLink} id=${recipient.session_id} name=${recipient.name} />`}
    actions=${recipient.status && html`<${Status} value=${recipient.status} />`}>
    <ol class="timeline">${steps.map((step) => html`<li><${Status} value=${step.event} /><span class="when"><${Time} at=${step.at} />${
      step.event !== 'accepted' && !Number.isNaN(from) ? ` (after ${duration(Math.max(0, (Date.parse(step.at) - from) / 1000))})` : ''}</span>
      <div class="faint">${[step.delivery && `delivery ${step.delivery}`, step.reason && `because: ${words(step.reason)}`,
        step.from && `from ${step.from}`, ...lensesDid(step.transformed)].filter(Boolean).join(', ')}</div></li>`)}</ol><//>`;
}

// What lenses did to a message for a delivery.
function lensesDid(transformed) {
  if (!transformed) return [];
  const { from, to, loss, defaulted = [], more } = transformed;
  const places = (did, list) => list.length > 0 && `${did} ${visible(list.join(' '), 400)}`;
  return [to && `transformed from ${from} to ${to}`, places('lost', loss), places('made up', defaulted), more && 'and more'];
}

// The payload is fetched when an administrator asks for it.
export function Payload({ id }) {
  const [state, setState] = useState(null);
  const show = async () => {
    setState({ isLoading: true });
    try {
      const { message } = await get(`messages/${encodeURIComponent(id)}`, { include: 'payload' });
      setState({ payload: message?.payload });
    } catch (problem) {
      setState({ problem });
    }
  };
  return html`<${Panel} title="Payload" actions=${!state && html`<button type="button" onClick=${show}>Show the payload</button>`}>
    ${state?.isLoading && html`<${Loading} what="the payload" />`}
    ${state?.problem && html`<${Failure} problem=${state.problem} retry=${show} />`}
    ${state && 'payload' in state && html`<div class="body">${state.payload === undefined
      ? html`<p class="faint">The broker no longer has the payload.</p>` : html`<${Json} value=${state.payload} label="Payload" />`}</div>`}
    ${!state && html`<div class="body faint">Payloads are shown to administrators who ask for them.</div>`}<//>`;
}
