// What this person and agents write to each other: the conversations, one of them, and the text to send.
import { html, useEffect, useRef, useState } from '../lib/preact.js';
import { get } from '../lib/api.js';
import { count, visible } from '../lib/format.js';
import { useResource } from '../lib/resource.js';
import { go, link } from '../lib/router.js';
import { useStore } from '../lib/store.js';
import { announce } from '../ui/announce.js';
import { Markdown } from '../ui/markdown.js';
import { Empty, Failure, Json, Loading, Panel, Text, Time } from '../ui/parts.js';
import { conversations } from './model.js';
import { show } from './notify.js';
import * as session from './session.js';

const TEXT_MAX = 64 * 1024;
const NEW = 'new';

export function Messages({ route }) {
  const { item, params } = route;
  if (item === NEW) return html`<${New} to=${params.to ?? ''} />`;
  return item ? html`<${Conversation} key=${item} id=${item} />` : html`<${List} />`;
}

function useConversations() {
  const { messages, sessionId } = useStore(session.mail);
  return messages && conversations(messages, sessionId);
}

function List() {
  const mail = useStore(session.mail);
  const all = useConversations();
  return html`<div class="title-row"><h1>Messages</h1><span class="spacer" /><a class="button primary" href=${link('messages', NEW)}>Write to an agent</a></div>
    ${mail.problem && html`<${Failure} problem=${mail.problem} retry=${session.loadMail} />`}
    <${Panel}>${!all ? !mail.problem && html`<${Loading} what="messages" />` : all.length ? html`<ol class="questions">${all.map((one) => html`<li key=${one.id}>
      <a href=${link('messages', one.id)}><span class="line"><b><${Text} value=${one.name ?? 'an unnamed agent'} max=${60} /></b>
        ${one.unread > 0 && html`<span class="mine">${count(one.unread)} new</span>`}<span class="spacer" /><${Time} at=${one.last.timestamp} relative /></span>
      <span class="summary plain"><${Text} value=${wordsOf(one.last)} max=${160} /></span></a></li>`)}</ol>`
      : html`<${Empty} title="No messages.">Write to an agent: its answer appears here by itself.<//>`}
      ${mail.next && html`<p class="pages"><button type="button" class="quiet" onClick=${session.loadOlderMail}>Older messages</button></p>`}<//>`;
}

const textOf = ({ payload }) => (typeof payload === 'string' ? payload : typeof payload?.text === 'string' ? payload.text : null);
const wordsOf = (message) => textOf(message) ?? (message.payload === undefined ? 'This text is no longer kept.' : JSON.stringify(message.payload));

function Conversation({ id }) {
  const mail = useStore(session.mail);
  const found = useConversations()?.find((one) => one.id === id);
  const end = useRef(null);
  const newest = found?.messages.at(-1)?.message_id;
  useEffect(() => { end.current?.scrollIntoView({ block: 'nearest' }); }, [newest]);
  if (!mail.messages) return html`<${Back} />${mail.problem ? html`<${Failure} problem=${mail.problem} retry=${session.loadMail} />` : html`<${Loading} what="messages" />`}`;
  if (!found) return html`<${Back} /><${Panel}><${Empty} title="No message with this agent is remembered."><a href=${link('messages', NEW, { to: id })}>Write
    to it</a><//><//>`;
  const unread = found.messages.filter((one) => one.unread).map((one) => one.message_id);
  const read = () => session.markRead(unread).catch((problem) => announce(problem.message));
  const name = found.name ?? found.id;
  return html`<${Back} /><article class="panel" aria-labelledby="talk-title"><header><h1 id="talk-title"><${Text} value=${name} max=${60} /></h1>
      ${unread.length > 0 && html`<button type="button" data-key="x" onClick=${read}>Mark as read</button>`}</header>
    <ol class="conversation">${found.messages.map((one) => html`<${Said} key=${one.message_id} message=${one} own=${mail.sessionId} />`)}</ol>
    <div ref=${end} />
    <${Compose} to=${id} thread=${found.thread} label=${`Write to ${visible(name, 60)}`} after=${() => unread.length && read()} /></article>`;
}

const Back = () => html`<p class="crumb"><a href=${link('messages')}>← Messages</a></p>`;

function Said({ message, own }) {
  const isOwn = message.sender_id === own;
  const text = textOf(message);
  const state = isOwn ? { queued: 'waits for the agent', delivered: 'delivered', acknowledged: 'taken by the agent' }[message.status] ?? message.status?.replace('_', ' ')
    : message.unread ? 'new' : '';
  return html`<li class=${isOwn ? 'reply' : ''}><header><b>${isOwn ? 'You' : html`<${Text} value=${message.sender_name ?? 'an unnamed agent'} max=${60} />`}</b>
      ${message.headers.subject && html`<span><${Text} value=${message.headers.subject} max=${120} /></span>`}
      <span class="spacer" /><span class=${message.unread ? 'mine' : 'faint'}>${state}</span><span class="faint"><${Time} at=${message.timestamp} /></span></header>
    ${text !== null ? html`<${Markdown} value=${text} />` : message.payload === undefined ? html`<p class="faint">The broker no longer keeps this text.</p>`
      : html`<${Json} value=${message.payload} label="Payload" />`}</li>`;
}

// A text stays in its field until the broker has it. A repeat has the same key, so that it is sent once.
function Compose({ to, thread = null, label, after }) {
  const [state, setState] = useState({ text: '', isSending: false, problem: null });
  const key = useRef(null);
  const submit = async (event) => {
    event.preventDefault();
    if (state.isSending || !state.text.trim()) return;
    key.current ??= crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
    setState({ ...state, isSending: true, problem: null });
    try {
      await session.write({ to, text: state.text, thread_id: thread, idempotency_key: key.current });
      key.current = null;
      setState({ text: '', isSending: false, problem: null });
      announce('Sent.');
      after?.();
    } catch (problem) {
      setState({ text: state.text, isSending: false, problem });
    }
  };
  const onKeyDown = (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) submit(event);
  };
  const onInput = (event) => {
    key.current = null;
    setState({ ...state, text: event.currentTarget.value, problem: null });
  };
  return html`<form class="answer" onSubmit=${submit} onKeyDown=${onKeyDown}><label class="text"><span>${label}</span><textarea
      value=${state.text} maxlength=${TEXT_MAX} rows="3" data-text autocomplete="off" onInput=${onInput} /></label>
    ${state.problem && html`<div class="notice bad" role="alert"><p><strong>Not sent.</strong> ${visible(state.problem.message, 500)}</p></div>`}
    <div class="buttons"><button type="submit" class="primary" disabled=${state.isSending || !state.text.trim()}>${state.isSending ? 'Sending…' : 'Send'}</button>
      <span class="spacer" /><span class="faint hint"><kbd>Ctrl</kbd> <kbd>Enter</kbd> sends</span></div></form>`;
}

const AGENTS_MAX = 200;

function New({ to: given }) {
  const [to, setTo] = useState(given);
  const { data } = useResource('agents', (signal) => get('sessions', { status: 'all', sort: 'last_heartbeat', order: 'desc', limit: AGENTS_MAX }, signal));
  const agents = (data?.sessions ?? []).filter((one) => one.kind !== 'human' && one.name);
  const chosen = agents.find((one) => one.name === to.trim() || one.session_id === to.trim());
  const field = useRef(null);
  useEffect(() => { if (!given) field.current?.focus(); }, []);
  const after = async () => {
    await session.loadMail();
    const { messages } = session.mail.get();
    go(link('messages', chosen?.session_id ?? messages?.[0]?.recipient_id ?? null));
  };
  return html`<${Back} /><article class="panel" aria-labelledby="talk-title"><header><h1 id="talk-title">Write to an agent</h1></header>
    <div class="body"><label class="text"><span>To</span><input ref=${field} type="text" value=${to} list="agents" maxlength="256" autocomplete="off" spellcheck=${false}
      onInput=${(event) => setTo(event.currentTarget.value)} /></label><datalist id="agents">${agents.map((one) => html`<option value=${one.name} />`)}</datalist>
      ${chosen && chosen.status === 'disconnected' && html`<p class="faint">This agent is away: the message waits in its inbox.</p>`}</div>
    <${Compose} to=${to.trim()} label="Message" after=${after} /></article>`;
}

// Notifies the person of a new message.
export function useMailNews() {
  useEffect(() => session.onMail((fresh) => {
    const name = visible(fresh[0].sender_name ?? 'An agent', 60);
    announce(fresh.length === 1 ? `${name} writes: ${visible(wordsOf(fresh[0]), 120)}` : `${count(fresh.length)} new messages, the last from ${name}.`);
    show('messages', `${name} writes`, fresh.length === 1 ? 'A message to you.' : `${count(fresh.length)} messages to you.`, link('messages'));
  }), []);
}
