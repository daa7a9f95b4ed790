// The page as a console of one person: the stream, what is known of the desk, and what the person says of itself.
import { actsAs, apiUrl, call, chosenProject, get, me } from '../lib/api.js';
import { createSetting, createStore } from '../lib/store.js';
import { openStream } from '../lib/stream.js';
import { emptyDesk, newsOf, withList, withQuestion, withYap } from './model.js';

const LIST_LIMIT = 200;
// The broker counts a person as present for five minutes after a sign.
const ACTIVE_EVERY_MS = 60_000;
const ASKERS_EVERY_MS = 20_000;
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

function hearDesk({ console: id, ...summary }) {
  const before = desk.get();
  desk.set({ ...before, summary, console: id ?? before.console });
  // The broker knows a new connection as a new console.
  if (id && id !== before.console && (presence.get().paused || presence.get().away)) tellPresence(presence.get());
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
