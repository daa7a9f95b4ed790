// Conversations: messages that have a thread id, or else a correlation id, in common; and one of them as it was said.
import { html } from '../lib/preact.js';
import { allows, get } from '../lib/api.js';
import { count } from '../lib/format.js';
import { useResource } from '../lib/resource.js';
import { link, linkHere } from '../lib/router.js';
import { Filters } from '../ui/filters.js';
import { Markdown } from '../ui/markdown.js';
import { Empty, Json, Loaded, Panel, Text, Time, Words } from '../ui/parts.js';
import { Pages, Table } from '../ui/table.js';
import { Outcome, SessionLink, Subject, linkToThread } from './messages.js';

const PAGE = 50;
const NAMES_MAX = 5;
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

export const Threads = ({ route, title }) => (route.item
  ? html`<${Conversation} id=${route.item} by=${route.params.by === 'correlation' ? 'correlation_id' : 'thread_id'} cursor=${route.params.cursor} />`
  : html`<${List} params=${route.params} title=${title} />`);

// The id of a thread, where an agent has chosen it.
const wordOf = ({ thread_id: thread, correlation_id: correlation }) => (UUID.test(thread ?? correlation) ? null : thread ?? correlation);

// A session that has ended has an id alone.
const nameOf = ({ name, session_id: id }) => name ?? `${id.slice(0, 8)}…`;

function List({ params, title }) {
  const { since, cursor } = params;
  const query = { since, cursor, include: 'excerpt', limit: PAGE };
  const resource = useResource(JSON.stringify(query), (signal) => get('threads', query, signal), { topics: ['message'] });
  return html`<h1>${title}</h1>
    <${Filters} fields=${[{ name: 'since', label: 'Since', type: 'time' }]} />
    <${Panel}><${Loaded} resource=${resource} what="threads">${(data) => html`
      <${Table} caption="Threads" rows=${data.threads} keyOf=${(row) => `${row.thread_id} ${row.correlation_id}`}
        empty=${{ title: 'No thread in this time.', text: 'A message and its answers form a thread: the answers have its id as their thread_id, or as their correlation_id.' }} columns=${[
          { title: 'Thread', render: (row) => html`<a class="said-first" href=${linkToThread(row)}><${Subject} subject=${row.subject ?? wordOf(row)}
            excerpt=${row.excerpt} fallback=${row.thread_id ?? row.correlation_id} /></a>
            <div class="narrow-line faint">${count(row.messages)} ${row.messages === 1 ? 'message' : 'messages'}, <${Text} max=${60} value=${row.participants.map(nameOf).join(', ')} />, <${Time}
            at=${row.last_at} relative /></div>` },
          { title: 'Messages', isWide: true, isNumber: true, render: (row) => count(row.messages) },
          { title: 'Participants', isWide: true, render: (row) => html`<${Words} max=${5} values=${[...row.participants.map(nameOf),
            ...Array(Math.max(0, row.participants_total - row.participants.length)).fill('…')]} />` },
          { title: 'Protocols', isWide: true, render: (row) => html`<${Words} values=${row.protocols} />` },
          { title: 'First', isWide: true, render: (row) => html`<${Time} at=${row.first_at} />` },
          { title: 'Last', isWide: true, render: (row) => html`<${Time} at=${row.last_at} relative />` },
        ]} />
      <${Pages} shown=${data.threads.length} next=${data.next_cursor} />`}<//><//>`;
}

// The broker lists the newest first; a conversation is read from its beginning.
function Conversation({ id, by, cursor }) {
  const readsAll = allows('admin');
  const query = { [by]: id, include: readsAll ? 'payload' : 'excerpt', cursor, limit: PAGE };
  const resource = useResource(JSON.stringify(query), (signal) => get('messages', query, signal), { topics: ['message', 'dead_letter'] });
  return html`<p class="crumb"><a href=${link('threads')}>Threads</a></p>
    <${Loaded} resource=${resource} what="the conversation">${({ messages, next_cursor: older, payloads_kept: isKept }) => {
      const said = messages.toReversed();
      const subject = said.find((one) => one.headers.subject && !isAnswer(one))?.headers.subject;
      const names = [...new Set(said.flatMap((one) => [one.sender_name, one.recipient_id ? one.recipient_name : 'all']).filter(Boolean))];
      return html`<h1>${subject ? html`<${Text} value=${subject} />` : html`<${Text} value=${names.slice(0, NAMES_MAX).join(', ') || 'Conversation'} max=${120} />`}</h1>
        ${isKept === false && html`<div class="notice" role="status"><p>This broker keeps the text of a message until its recipient has
          read it. With <code>message_history_payloads</code> it keeps texts as long as the history.</p></div>`}
        <${Panel}>${older && html`<p class="body"><a href=${linkHere({ cursor: older })}>Older messages</a></p>`}
          ${said.length ? html`<ol class="conversation">${said.map((one) => html`<${Said} key=${one.message_id} message=${one}
              isReply=${one.sender_id !== said[0].sender_id} readsAll=${readsAll} />`)}</ol>`
            : html`<${Empty} title="No message of this thread is remembered." />`}
          ${cursor && html`<p class="body"><a href=${linkHere({})}>Newest messages</a></p>`}<//>`;
    }}<//>`;
}

const isAnswer = ({ protocol_name: name }) => name === 'human-answer';

function Said({ message, isReply, readsAll }) {
  const { headers } = message;
  return html`${isAnswer(message) && html`<${Question} id=${headers.correlation_id} />`}
    <li class=${isReply ? 'reply' : ''}><header><b><${SessionLink} id=${message.sender_id} name=${message.sender_name} /></b><span class="faint">to</span>
      ${message.recipient_id ? html`<${SessionLink} id=${message.recipient_id} name=${message.recipient_name} />` : html`<span class="faint">all</span>`}
      <span class="spacer" /><${Outcome} row=${message} /><a class="faint" href=${link('messages', message.message_id)}><${Time} at=${message.timestamp} /></a></header>
      <${Payload} message=${message} readsAll=${readsAll} /></li>`;
}

function Payload({ message, readsAll }) {
  const { payload, excerpt } = message;
  if (readsAll && payload === undefined) return html`<p class="faint">The broker no longer keeps this text.</p>`;
  if (!readsAll) {
    return excerpt ? html`<p><${Text} value=${excerpt} max=${200} /></p>` : html`<p class="faint">${excerpt === null
      ? 'The broker no longer keeps this text.' : 'Administrators, and the owner of a session, may read its texts.'}</p>`;
  }
  const text = isAnswer(message) ? answerText(payload) : typeof payload === 'string' ? payload : onlyText(payload);
  return text === null ? html`<${Json} value=${payload} label="Payload" />` : html`<${Markdown} value=${text} />`;
}

// The text of a payload that has nothing else to say.
const onlyText = (payload) => (typeof payload?.text === 'string' && Object.keys(payload).length === 1 ? payload.text : null);

// What a person answered, or how else the question ended.
function answerText(payload) {
  const wordsOf = (part) => [...(part?.selected ?? []), part?.other, part?.text].filter(Boolean).join('\n');
  const { answer } = payload;
  const parts = answer?.answers ? Object.entries(answer.answers).map(([id, part]) => `${id}: ${wordsOf(part)}`) : [wordsOf(answer)];
  return parts.filter(Boolean).join('\n') || payload.summary || payload.reason || payload.state || null;
}

// The question that an answer belongs to, for those who may read it.
function Question({ id }) {
  const { data } = useResource(`question ${id}`, (signal) => get(`questions/${encodeURIComponent(id)}`, {}, signal).catch(() => null));
  if (!data) return null;
  const texts = data.questions?.map((one) => one.question) ?? [data.question ?? data.summary];
  return html`<li><header><b><${SessionLink} id=${data.asker.session_id} name=${data.asker.name} /></b><span class="faint">asked</span>
    <${Text} value=${data.to === 'desk' ? 'the desk' : data.to} max=${40} /><span class="spacer" /><span class="faint"><${Time} at=${data.asked_at} /></span></header>
    ${texts.map((one) => html`<${Markdown} value=${one} />`)}</li>`;
}
