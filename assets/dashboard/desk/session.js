// The page as a console of one person: the stream, what is known of the desk, and what the person says of itself.
import { actsAs, apiUrl, call, chosenProject, get, me } from '../lib/api.js';
import { createSetting, createStore } from '../lib/store.js';
import { openStream } from '../lib/stream.js';
import { emptyDesk, newsOf, withList, withMessages, withQuestion, withYap } from './model.js';

const LIST_LIMIT = 200;
// The broker counts a person as present for five minutes after a sign.
const ACTIVE_EVERY_MS = 60_000;
const ASKERS_EVERY_MS = 20_000;
const MAIL_LIMIT = 50;
const MAIL_EVERY_MS = 1_000;
const MAIL_READ_MAX = 500;
const LATE_READS_MAX = 5;
// What comes within this time of the first connection was there before, and is no news.
const FIRST_LIST_MS = 1_000;
// The broker says that a person types for ten seconds after a keystroke, and does not say when the person stops.
const TYPING_MS = 12_000;

export const desk = createStore(emptyDesk);
// `connecting`, `live` or `lost`.
export const connection = createStore('connecting');
// Why the broker refuses the console; null if it does not.
export const refusal = createStore(null);
// Counts the times at which the page may have missed changes.
export const missedCount = createStore(0);
// What the person says: paused consoles get no offers.
export const presence = createStore({ paused: false, away: false });
// The name that the person gave. Keys of the scope `answer` have one of their own.
export const givenName = createSetting('mcp-broker-desk-name', '');
// The roles that the person gave, separated by commas: questions to one of them are for this person as well.
export const givenRoles = createSetting('mcp-broker-desk-roles', '');

export const humanOf = (caller, given) => caller?.human || given || null;

const emptyMail = { messages: null, sessionId: null, waiting: 0, next: null, problem: null };
// What this person and agents have written to each other, the newest first; `messages` is null until they are known.
export const mail = createStore(emptyMail);
const mailListeners = new Set();
// Called with the messages that have come, the newest first.
export const onMail = (listener) => {
  mailListeners.add(listener);
  return () => mailListeners.delete(listener);
};

const newsListeners = new Set();
export const onNews = (listener) => {
  newsListeners.add(listener);
  return () => newsListeners.delete(listener);
};

// Shows the questions for a person until the returned function is called.
export function attach(human) {
  const isNamedByKey = Boolean(me.get()?.human);
  actsAs.set(isNamedByKey ? null : human);
  desk.set(emptyDesk);
  mail.set(emptyMail);
  inboxSeen = '';
  refusal.set(null);
  connection.set('connecting');
  let wasLost = false;
  let newsFrom = Infinity;
  const address = () => apiUrl('events', { topics: 'questions,yaps,desk', console: human, project: chosenProject(),
    roles: isNamedByKey ? null : givenRoles.get() });
  const closeStream = openStream(address, ['desk', 'question', 'yap', 'gap'], {
    onEvent: (name, event) => {
      if (name === 'desk') hearDesk(event);
      if (name === 'question') hearQuestion(event, human, performance.now() > newsFrom);
      if (name === 'yap') desk.set(withYap(desk.get(), event));
      if (name === 'gap') readAgain();
    },
    onOpen: () => {
      connection.set('live');
      refusal.set(null);
      newsFrom = Math.min(newsFrom, performance.now() + FIRST_LIST_MS);
      if (wasLost) readAgain();
      wasLost = false;
    },
    onLost: () => {
      wasLost = true;
      connection.set('lost');
    },
    onRefused: (problem) => refusal.set(problem),
  });
  const stopSigns = giveSigns();
  const typing = setInterval(endTyping, 2_000);
  const askers = setInterval(lookForAskers, ASKERS_EVERY_MS);
  return () => {
    closeStream();
    clearInterval(typing);
    clearInterval(askers);
    stopSigns();
  };
}

function hearDesk({ console: id, inbox, ...summary }) {
  const before = desk.get();
  const seen = inbox && `${id} ${inbox.waiting} ${inbox.changes}`;
  if (inbox && seen !== inboxSeen) {
    inboxSeen = seen;
    mail.set({ ...mail.get(), waiting: inbox.waiting });
    loadMail();
  }
  desk.set({ ...before, summary, console: id ?? before.console });
  // The broker knows a new connection as a new console.
  if (id && id !== before.console && (presence.get().paused || presence.get().away)) tellPresence(presence.get());
}

// What the broker said of the inbox when it was read last.
let inboxSeen = '';
let readingMail = null;
let isMailStale = false;
let lateReads = 0;

// Reads the newest messages. A call while one is under way reads once more afterwards.
export async function loadMail() {
  if (readingMail) {
    isMailStale = true;
    return readingMail;
  }
  readingMail = readMail().finally(() => { readingMail = null; });
  await readingMail;
  if (isMailStale) {
    isMailStale = false;
    await new Promise((resolve) => setTimeout(resolve, MAIL_EVERY_MS));
    return loadMail();
  }
}

async function readMail() {
  try {
    const page = await get('desk/messages', { limit: MAIL_LIMIT });
    const before = mail.get();
    const known = new Set((before.messages ?? []).map((one) => one.message_id));
    mail.set({ messages: withMessages(before.messages ?? [], page.messages), sessionId: page.session_id, waiting: page.waiting,
      next: before.messages?.length > MAIL_LIMIT ? before.next : page.next_cursor ?? null, problem: null });
    // Redis writes the history after the message: a waiting message may not be in it yet.
    const unread = page.messages.filter((one) => one.unread).length;
    lateReads = unread < Math.min(page.waiting, MAIL_LIMIT) && lateReads < LATE_READS_MAX ? lateReads + 1 : 0;
    if (lateReads) setTimeout(loadMail, MAIL_EVERY_MS);
    const fresh = page.messages.filter((one) => one.unread && !known.has(one.message_id));
    if (before.messages && fresh.length) for (const listener of mailListeners) listener(fresh);
  } catch (problem) {
    mail.set({ ...mail.get(), problem });
  }
}

export async function loadOlderMail() {
  const { next } = mail.get();
  if (!next) return;
  const page = await get('desk/messages', { limit: MAIL_LIMIT, cursor: next });
  const { messages, ...rest } = mail.get();
  const known = new Set(messages.map((one) => one.message_id));
  mail.set({ ...rest, messages: withMessages([], [...messages, ...page.messages.filter((one) => !known.has(one.message_id))]), next: page.next_cursor ?? null });
}

export async function write({ to, text, thread_id: thread, idempotency_key: key }) {
  const sent = await call('POST', 'desk/messages', { body: { to, text, ...(thread ? { thread_id: thread } : {}), idempotency_key: key } });
  // An agent may have taken the message, and with it the text, before the list is read.
  const { messages, ...rest } = mail.get();
  mail.set({ ...rest, messages: [{ message_id: sent.message_id, payload: { text }, timestamp: '', sender_id: rest.sessionId, headers: {} }, ...(messages ?? [])] });
  await loadMail();
}

export async function markRead(ids) {
  for (let at = 0; at < ids.length; at += MAIL_READ_MAX) await call('POST', 'desk/messages/read', { body: { message_ids: ids.slice(at, at + MAIL_READ_MAX) } });
  await loadMail();
}

// No event tells that an agent has left: the list says how it was when its question changed last.
async function lookForAskers() {
  const ids = new Set(desk.get().questions.keys());
  if (document.hidden || connection.get() !== 'live' || !ids.size || ids.size > LIST_LIMIT) return;
  const page = await get('questions', { state: 'pending', limit: LIST_LIMIT }).catch(() => null);
  if (page) desk.set(page.questions.filter((one) => desk.get().questions.has(one.question_id)).reduce(withQuestion, desk.get()));
}

const typedAt = new Map();

function endTyping() {
  for (const [id, at] of typedAt) {
    if (performance.now() - at < TYPING_MS) continue;
    typedAt.delete(id);
    const question = desk.get().questions.get(id);
    if (question?.claimed_by?.typing) desk.set(withQuestion(desk.get(), { ...question, claimed_by: { ...question.claimed_by, typing: false } }));
  }
}

function hearQuestion(question, human, isNews) {
  const before = desk.get().questions.get(question.question_id);
  if (question.claimed_by?.typing) typedAt.set(question.question_id, performance.now());
  const after = withQuestion(desk.get(), question);
  if (after === desk.get()) return;
  desk.set(after);
  if (!isNews) return;
  const reason = newsOf(before, question, after.console, human);
  for (const listener of newsListeners) listener({ before, question, reason });
}

// Puts the answer of a request into what is known, without waiting for its event.
export function learn(question) {
  if (question?.question_id) desk.set(withQuestion(desk.get(), question));
  return question;
}

let reading = null;
// Reads all open questions. A second call while one is under way reads once more afterwards.
async function readAgain() {
  missedCount.set(missedCount.get() + 1);
  reading?.abort();
  const mine = new AbortController();
  reading = mine;
  const idsBefore = new Set(desk.get().questions.keys());
  const list = [];
  let cursor = null;
  try {
    do {
      const page = await get('questions', { state: 'pending', limit: LIST_LIMIT, cursor }, mine.signal);
      list.push(...page.questions);
      cursor = page.next_cursor;
    } while (cursor);
    desk.set(withList(desk.get(), list, idsBefore));
  } catch {
    // The stream is lost as well, and its return reads again.
  }
}

const changeConsole = (body, isLast = false) => {
  const { console: id } = desk.get();
  return id ? call('PUT', `desk/consoles/${encodeURIComponent(id)}`, { body, isLast }) : Promise.resolve();
};

// Says whether the person is away or takes no offers.
export async function tellPresence(next) {
  await changeConsole(next);
  presence.set(next);
}

// Tells the broker that the person is there: keys, pointer, and a page that comes to the front.
function giveSigns() {
  let lastAt = -ACTIVE_EVERY_MS;
  const sign = () => {
    const now = performance.now();
    if (document.hidden || now - lastAt < ACTIVE_EVERY_MS || connection.get() !== 'live') return;
    lastAt = now;
    changeConsole({ active: true }).catch(() => { lastAt = -ACTIVE_EVERY_MS; });
  };
  const kinds = ['keydown', 'pointerdown', 'visibilitychange', 'focus'];
  for (const kind of kinds) addEventListener(kind, sign, { passive: true, capture: true });
  // The broker learns of a broken connection later than of this: offers go to others at once.
  const leave = () => { changeConsole({ away: true }, true).catch(() => {}); };
  const comeBack = ({ persisted }) => { if (persisted) changeConsole(presence.get()).catch(() => {}); };
  addEventListener('pagehide', leave);
  addEventListener('pageshow', comeBack);
  return () => {
    for (const kind of kinds) removeEventListener(kind, sign, { capture: true });
    removeEventListener('pagehide', leave);
    removeEventListener('pageshow', comeBack);
  };
}

const pathOf = (id, what) => `questions/${encodeURIComponent(id)}${what ? `/${what}` : ''}`;

export const loadQuestion = (id, signal) => get(pathOf(id), {}, signal).then(learn);

// What a person does with a question. Each returns the question as it then is.
const act = (id, what, body = {}, headers = {}) => call('POST', pathOf(id, what), { body, headers }).then(learn);
const withConsole = () => (desk.get().console ? { console: desk.get().console } : {});

// The questions that were answered on this page since it was loaded.
export const answeredHere = new Set();
export async function answer(id, body) {
  const answered = await call('POST', pathOf(id, 'answer'), { body });
  answeredHere.add(id);
  return learn(answered);
}
export const decline = (id, reason) => act(id, 'decline', { ...(reason ? { reason } : {}), via: 'web' });
export const handOver = (id, to, note) => act(id, 'handover', { to, ...(note ? { note } : {}) });
export const release = (id) => act(id, 'release');
export const typed = (id) => act(id, 'typed', withConsole());
// With a revision the claim fails if the question has changed since then.
export const claim = (id, revision = null) => act(id, 'claim', withConsole(),
  revision === null ? {} : { 'If-Match': `"${revision}"` });

export const loadDraft = (id) => get(pathOf(id, 'draft')).then((found) => found?.text ?? '');
export const saveDraft = (id, text, isLast = false) => call('PUT', pathOf(id, 'draft'), { body: { text }, isLast });
