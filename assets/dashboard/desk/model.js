// What the page knows of the desk, and what follows from it. Pure: events and lists come in, a new state comes out.

const YAPS_KEPT = 200;
const CLOSED_KEPT = 50;
const MESSAGES_KEPT = 1_000;
const URGENCY = { high: 0, medium: 1, low: 2 };

export const emptyDesk = {
  // The id of this page's console; null until the broker has told it.
  console: null,
  // Humans, consoles and numbers; null until they are known.
  summary: null,
  // Open questions by id, in their form for lists.
  questions: new Map(),
  // The questions that were closed while the page was open, the newest last.
  closed: new Map(),
  // In the order of the broker, the newest last.
  yaps: [],
};

export const isOpen = (question) => question.state === 'pending';

// Whether the agent that asks is not connected: the answer waits for it.
export const isGone = ({ asker }) => asker?.status === 'disconnected';

const known = (desk, id) => desk.questions.get(id) ?? desk.closed.get(id);

// The state after a question has come. One that is older than what is known changes nothing.
export function withQuestion(desk, question) {
  const before = known(desk, question.question_id);
  if (before && before.revision > question.revision) return desk;
  const questions = new Map(desk.questions);
  const closed = new Map(desk.closed);
  questions.delete(question.question_id);
  closed.delete(question.question_id);
  if (isOpen(question)) {
    questions.set(question.question_id, question);
  } else {
    closed.set(question.question_id, question);
    if (closed.size > CLOSED_KEPT) closed.delete(closed.keys().next().value);
  }
  return { ...desk, questions, closed };
}

// The state after the list of all open questions has come. What was open when the request began and is not in the list is
// closed; what has come since then stays.
export function withList(desk, list, idsBefore) {
  const listed = new Set(list.map((one) => one.question_id));
  const questions = new Map([...desk.questions].filter(([id]) => listed.has(id) || !idsBefore.has(id)));
  return list.reduce(withQuestion, { ...desk, questions });
}

// The state after a yap has come. One that is known changes nothing.
export function withYap(desk, yap) {
  const at = desk.yaps.findLastIndex((one) => one.seq <= yap.seq);
  if (desk.yaps[at]?.seq === yap.seq) return desk;
  return { ...desk, yaps: desk.yaps.toSpliced(at + 1, 0, yap).slice(-YAPS_KEPT) };
}

// The messages of a person by the session on the other side: `{id, name, messages: the oldest first, last, unread, thread}`. The
// conversation with the newest message is the first one; an answer in it goes into the thread of that message.
export function conversations(messages, own) {
  const byPeer = new Map();
  for (const message of messages) {
    const isOwn = message.sender_id === own;
    const id = isOwn ? message.recipient_id : message.sender_id;
    if (!id) continue;
    if (!byPeer.has(id)) byPeer.set(id, { id, name: null, messages: [], last: message, unread: 0, thread: message.thread_id });
    const found = byPeer.get(id);
    found.name ??= isOwn ? message.recipient_name : message.sender_name;
    found.unread += message.unread ? 1 : 0;
    found.messages.unshift(message);
  }
  return [...byPeer.values()];
}

// The list of a person's messages, the newest first, after a page of it has come. What is older than the page stays behind it, and
// a text that was known stays although the broker no longer keeps it.
export function withMessages(known, page) {
  const before = new Map(known.map((one) => [one.message_id, one.payload]));
  const ids = new Set(page.map((one) => one.message_id));
  const oldest = page.at(-1)?.timestamp ?? '';
  return [...page.map((one) => (one.payload === undefined ? { ...one, payload: before.get(one.message_id) } : one)), ...known.filter((one) => !ids.has(one.message_id) && one.timestamp <= oldest)].slice(0, MESSAGES_KEPT);
}

// The more urgent first, then the older.
export function ordered(questions) {
  return [...questions].sort((one, other) => URGENCY[one.urgency] - URGENCY[other.urgency]
    || Date.parse(one.asked_at) - Date.parse(other.asked_at) || (one.question_id < other.question_id ? -1 : 1));
}

// Who has a question: `{human, does: 'claimed' | 'typing' | 'offered', isMine}`; null for none. What is offered to another
// console of the person is the person's as well.
export function holder(question, human) {
  const { claimed_by: claim, offered_to: offer } = question;
  const found = claim ?? offer;
  if (!found) return null;
  return { human: found.human, does: !claim ? 'offered' : claim.typing ? 'typing' : 'claimed', isMine: found.human === human };
}

// Why a person is told of a change of a question: `offered`, `addressed` or `high`; null for none.
export function newsOf(before, question, consoleId, human) {
  if (!isOpen(question)) return null;
  const isOffered = (one) => Boolean(consoleId) && one?.offered_to?.console === consoleId;
  if (isOffered(question) && !isOffered(before) && before?.claimed_by?.human !== human) return 'offered';
  if (question.handover?.to === human && before?.handover?.at !== question.handover.at) return 'addressed';
  if (before) return null;
  if (question.to === human) return 'addressed';
  return question.urgency === 'high' ? 'high' : null;
}

// The questions of a form; a single question is a form of one, without a name.
export function itemsOf(question) {
  const items = question.questions ?? [{ ...question, id: '', required: true }];
  return items.map((item) => ({ ...item, options: (item.options ?? []).map((option) =>
    (typeof option === 'string' ? { value: option, label: option } : option)) }));
}

// What is filled in: by the name of the question. `isOther`: the text `other` stands in place of an option.
export const emptyPart = { selected: [], isOther: false, other: '', text: '' };

// The member of an object that an agent or a person may have named: `constructor` and `__proto__` are names like others.
const own = (object, name) => (object && Object.hasOwn(object, name) ? object[name] : undefined);

export const partAt = (parts, id) => own(parts, id) ?? emptyPart;

export const answerAt = (answer, id) => own(answer?.answers, id);

const filled = (text) => (text.trim() ? text : null);
const isFilled = (part) => Boolean(part.selected.length || (part.isOther && filled(part.other)) || filled(part.text));

export const isEmpty = (question, parts, images = []) => !images.length
  && !itemsOf(question).some(({ id }) => isFilled(partAt(parts, id)));

// The names of the questions that an answer needs and that are not filled in.
export const missing = (question, parts, images = []) => (question.questions
  ? itemsOf(question).filter(({ id, required }) => required && !isFilled(partAt(parts, id))).map(({ id }) => id)
  : isEmpty(question, parts, images) ? [''] : []);

// The names of the questions of a form that have no answer.
export const unanswered = (question, parts) => (question.questions
  ? itemsOf(question).filter(({ id }) => !isFilled(partAt(parts, id))).map(({ id }) => id) : []);

// The part after an option was chosen, or was taken back.
export function chosen(part, item, value) {
  if (!item.multi_select) return { ...part, selected: [value], isOther: false };
  const selected = part.selected.includes(value) ? part.selected.filter((one) => one !== value) : [...part.selected, value];
  // In the order of the options.
  return { ...part, selected: item.options.map((one) => one.value).filter((one) => selected.includes(one)) };
}

// The part after the text in place of an option was chosen, or was taken back.
export const choseOther = (part, item, isOther = !part.isOther) => ({ ...part, isOther: item.multi_select ? isOther : true,
  selected: item.multi_select ? part.selected : [] });

function answerPart(part) {
  return { selected: part.selected, other: part.isOther ? filled(part.other) : null, text: filled(part.text) };
}

// The body of an answer.
export function answerOf(question, parts, images = []) {
  const body = { via: 'web' };
  if (images.length) body.images = images.map(({ mime, data }) => ({ mime, data }));
  if (!question.questions) return { ...answerPart(partAt(parts, '')), ...body };
  const given = itemsOf(question).map(({ id }) => [id, partAt(parts, id)]).filter(([, part]) => isFilled(part));
  return { answers: Object.fromEntries(given.map(([id, part]) => [id, answerPart(part)])), ...body };
}

// Whether what is filled in is the answer that the question has.
export function isAnswer(question, parts) {
  const { answer } = question;
  if (!answer) return false;
  /** @type {any} */
  const given = answerOf(question, parts);
  const same = (one, other) => (one?.other ?? null) === (other?.other ?? null) && (one?.text ?? null) === (other?.text ?? null)
    && (one?.selected ?? []).join('\n') === (other?.selected ?? []).join('\n');
  return question.questions ? itemsOf(question).every(({ id }) => same(own(given.answers, id), answerAt(answer, id))) : same(given, answer);
}

// What is filled in as the text that the broker keeps for the same person. The draft of a single question is its text, which
// every console can show; that of a form is JSON.
export function draftText(question, parts) {
  if (!question.questions) return (partAt(parts, '')).text;
  const given = itemsOf(question).map(({ id }) => [id, partAt(parts, id)]).filter(([, part]) => isFilled(part));
  return given.length ? JSON.stringify(Object.fromEntries(given)) : '';
}

// What is filled in, from a text that the broker has kept. A text that is no draft of this form goes into its first field.
export function partsOfDraft(question, text) {
  const [first] = itemsOf(question);
  if (!question.questions) return { '': { ...emptyPart, text } };
  const read = parse(text);
  const given = itemsOf(question).filter(({ id }) => own(read, id) && typeof own(read, id) === 'object')
    .map(({ id, options }) => [id, partOf(own(read, id), options)]);
  return given.length ? Object.fromEntries(given) : { [first.id]: { ...emptyPart, text } };
}

function partOf(value, options) {
  const text = (name) => (typeof value?.[name] === 'string' ? value[name] : '');
  const selected = options.map((one) => one.value).filter((one) => Array.isArray(value?.selected) && value.selected.includes(one));
  return { selected, isOther: value?.isOther === true, other: text('other'), text: text('text') };
}

function parse(text) {
  try { return JSON.parse(text); } catch { return null; }
}
