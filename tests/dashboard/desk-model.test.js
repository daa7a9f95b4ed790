// What the desk knows and what follows from it, without a browser and without a broker.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { answerAt, answerOf, chosen, choseOther, conversations, draftText, emptyDesk, emptyPart, holder, isAnswer, itemsOf, missing, newsOf, ordered, partAt, partsOfDraft,
  unanswered, withList, withMessages, withQuestion, withYap } from '../../assets/dashboard/desk/model.js';
import { safeAddress } from '../../assets/dashboard/lib/format.js';

const question = (id, more = {}) => ({ question_id: id, revision: 1, state: 'pending', urgency: 'medium', to: 'desk',
  asked_at: '2026-11-24T10:00:00Z', offered_to: null, claimed_by: null, handover: null, ...more });
const ids = (questions) => [...questions].map((one) => one.question_id);

test('the more urgent come first, then the older, and equals in the order of their ids', () => {
  const all = [question('low', { urgency: 'low', asked_at: '2026-11-24T08:00:00Z' }), question('b'), question('a'),
    question('old', { asked_at: '2026-11-24T09:00:00Z' }), question('high', { urgency: 'high', asked_at: '2026-11-24T11:00:00Z' })];
  assert.deepEqual(ids(ordered(all)), ['high', 'old', 'a', 'b', 'low']);
});

test('an older revision changes nothing, whether the question is open or closed', () => {
  const desk = withQuestion(emptyDesk, question('q', { revision: 3, urgency: 'high' }));
  assert.equal(withQuestion(desk, question('q', { revision: 2 })), desk);
  const closed = withQuestion(desk, question('q', { revision: 4, state: 'answered' }));
  assert.deepEqual([closed.questions.size, closed.closed.size], [0, 1]);
  assert.equal(withQuestion(closed, question('q', { revision: 3 })), closed, 'a late event does not open it again');
});

test('a list removes what was closed while the stream was lost, and keeps what has come since', () => {
  let desk = [question('stays'), question('gone')].reduce(withQuestion, emptyDesk);
  const before = new Set(desk.questions.keys());
  desk = withQuestion(desk, question('new'));
  desk = withList(desk, [question('stays', { revision: 5 })], before);
  assert.deepEqual(ids(desk.questions.values()).sort(), ['new', 'stays']);
  assert.equal(desk.questions.get('stays').revision, 5);
});

test('yaps stand in the order of the broker, once each', () => {
  const desk = [3, 1, 2, 3, 1].reduce((now, seq) => withYap(now, { seq, message: `yap ${seq}` }), emptyDesk);
  assert.deepEqual(desk.yaps.map((one) => one.seq), [1, 2, 3]);
  let many = emptyDesk;
  for (let seq = 1; seq <= 500; seq += 1) many = withYap(many, { seq });
  assert.deepEqual([many.yaps.length, many.yaps[0].seq], [200, 301]);
});

test('a question is mine when it is offered to this person, or claimed by this person, at any console', () => {
  const offered = question('q', { offered_to: { human: 'mara', console: 'c1' } });
  assert.deepEqual(holder(offered, 'mara'), { human: 'mara', does: 'offered', isMine: true });
  assert.equal(holder(offered, 'lena').isMine, false);
  const claimed = question('q', { claimed_by: { human: 'mara', console: 'c9', typing: true } });
  assert.deepEqual(holder(claimed, 'mara'), { human: 'mara', does: 'typing', isMine: true });
  assert.deepEqual(holder(claimed, 'lena'), { human: 'mara', does: 'typing', isMine: false });
  assert.equal(holder(question('q'), 'mara'), null);
});

test('a person is told of an offer, of a question by name or by handover, and of an urgent one; once each', () => {
  const offered = question('q', { offered_to: { human: 'mara', console: 'c1' } });
  assert.equal(newsOf(undefined, offered, 'c1', 'mara'), 'offered');
  assert.equal(newsOf(offered, { ...offered, revision: 2 }, 'c1', 'mara'), null);
  assert.equal(newsOf(undefined, offered, 'c2', 'mara'), null, 'the other console of the person tells');
  assert.equal(newsOf(undefined, question('q', { to: 'mara' }), 'c1', 'mara'), 'addressed');
  assert.equal(newsOf(undefined, question('q', { urgency: 'high' }), 'c1', 'mara'), 'high');
  assert.equal(newsOf(undefined, question('q'), 'c1', 'mara'), null);
  const handed = question('q', { handover: { from: 'lena', to: 'mara', note: null, at: '2026-11-24T10:05:00Z' } });
  assert.equal(newsOf(question('q'), handed, 'c1', 'mara'), 'addressed');
  assert.equal(newsOf(handed, handed, 'c1', 'mara'), null);
  assert.equal(newsOf(question('q'), question('q', { state: 'answered' }), 'c1', 'mara'), null);
});

const SINGLE = { question_id: 'q', question: 'Drop it?', options: ['drop', { value: 'keep', label: 'Keep' }], multi_select: false };
const FORM = { question_id: 'f', questions: [{ id: 'region', question: 'Where?', options: ['eu', 'us'], required: true },
  { id: 'features', question: 'What?', options: ['a', 'b', 'c'], multi_select: true }, { id: 'why', question: 'Why?' }] };

test('one option, or the text in place of one; several options stand in the order of the question', () => {
  const [item] = itemsOf(SINGLE);
  const drop = chosen(emptyPart, item, 'drop');
  assert.deepEqual(chosen(drop, item, 'keep').selected, ['keep']);
  const other = { ...choseOther(drop, item), other: 'rename it' };
  assert.deepEqual([other.selected, other.isOther], [[], true]);
  assert.equal(chosen(other, item, 'drop').isOther, false);
  const features = itemsOf(FORM)[1];
  const both = ['c', 'a'].reduce((part, value) => chosen(part, features, value), emptyPart);
  assert.deepEqual(both.selected, ['a', 'c']);
  assert.deepEqual(chosen(both, features, 'a').selected, ['c']);
  assert.deepEqual(choseOther(both, features).selected, ['a', 'c']);
});

test('the body of an answer has what is filled in, and an image as it is sent', () => {
  const parts = { '': { selected: ['drop'], isOther: false, other: 'not chosen', text: 'dump it first\nto s3' } };
  assert.deepEqual(answerOf(SINGLE, parts, [{ mime: 'image/png', data: 'AA==', url: 'blob:x' }]), { selected: ['drop'], other: null,
    text: 'dump it first\nto s3', images: [{ mime: 'image/png', data: 'AA==' }], via: 'web' });
  assert.deepEqual(answerOf(SINGLE, { '': { ...emptyPart, text: '  ' } }), { selected: [], other: null, text: null, via: 'web' });
  assert.deepEqual(answerOf(FORM, { region: { ...emptyPart, selected: ['eu'] }, why: { ...emptyPart, text: ' ' } }),
    { answers: { region: { selected: ['eu'], other: null, text: null } }, via: 'web' });
});

test('what an answer lacks is named', () => {
  assert.deepEqual(missing(SINGLE, {}), ['']);
  assert.deepEqual(missing(SINGLE, {}, [{ mime: 'image/png', data: 'AA==' }]), []);
  assert.deepEqual(missing(FORM, { why: { ...emptyPart, text: 'because' } }), ['region']);
  assert.deepEqual(missing(FORM, { region: { ...emptyPart, selected: ['us'] } }), []);
  assert.deepEqual(missing(FORM, { region: { ...emptyPart, isOther: true, other: ' ' } }), ['region']);
  assert.deepEqual(unanswered(FORM, { region: { ...emptyPart, selected: ['us'] } }).includes('region'), false);
  assert.deepEqual([unanswered(FORM, {}), unanswered(SINGLE, {})], [itemsOf(FORM).map(({ id }) => id), []]);
});

test('what is filled in is told from what was answered', () => {
  const parts = { '': { ...emptyPart, selected: ['drop'], text: 'dump it' } };
  const answered = (answer) => ({ ...SINGLE, answer: { selected: [], other: null, text: null, answers: null, images: [], ...answer } });
  assert.equal(isAnswer(answered({ selected: ['drop'], text: 'dump it' }), parts), true);
  assert.equal(isAnswer(answered({ selected: ['keep'], text: 'dump it' }), parts), false);
  assert.equal(isAnswer({ ...SINGLE, answer: null }, parts), false);
  const form = { ...FORM, answer: { answers: { region: { selected: ['eu'], other: null, text: null } } } };
  assert.equal(isAnswer(form, { region: { ...emptyPart, selected: ['eu'] } }), true);
  assert.equal(isAnswer(form, { region: { ...emptyPart, selected: ['eu'] }, why: { ...emptyPart, text: 'x' } }), false);
});

test('a draft comes back as it was, and a text that is no draft of the form is not lost', () => {
  const parts = { region: { ...emptyPart, selected: ['eu'] }, why: { ...emptyPart, text: 'because' } };
  assert.deepEqual(partsOfDraft(FORM, draftText(FORM, parts)), parts);
  assert.equal(draftText(FORM, {}), '');
  assert.deepEqual(partsOfDraft(FORM, 'from a terminal'), { region: { ...emptyPart, text: 'from a terminal' } });
  assert.deepEqual(partsOfDraft(FORM, '{"region":{"selected":["eu","moon"],"text":7}}'), { region: { ...emptyPart, selected: ['eu'] } });
  for (const odd of ['null', '7', '[]', '{"region":null}']) assert.equal(partsOfDraft(FORM, odd).region?.text ?? '', odd);
  assert.equal(draftText(SINGLE, partsOfDraft(SINGLE, 'two\nlines')), 'two\nlines');
});

test('questions of a form may be named like members of every object', () => {
  for (const id of ['constructor', '__proto__', 'toString', 'hasOwnProperty']) {
    const form = { ...FORM, questions: [{ ...FORM.questions[0], id, required: true }] };
    assert.deepEqual(partAt({}, id), emptyPart, id);
    assert.deepEqual(missing(form, {}), [id]);
    const [option] = form.questions[0].options;
    const parts = Object.fromEntries([[id, { ...emptyPart, selected: [option.value ?? option] }]]);
    assert.deepEqual(missing(form, parts), []);
    assert.deepEqual(partsOfDraft(form, draftText(form, parts)), parts);
    const { answers } = answerOf(form, parts);
    assert.deepEqual(Object.keys(answers), [id]);
    assert.equal(isAnswer({ ...form, answer: { answers } }, parts), true);
    assert.equal(answerAt({ answers: {} }, id), undefined);
  }
});

test('only addresses of the web lead away from the page', () => {
  assert.equal(safeAddress('https://example.org/a?b'), 'https://example.org/a?b');
  for (const uri of ['javascript:alert(1)', ' JaVaScRiPt:alert(1)', 'data:text/html,x', 'file:///etc/passwd', 'blob:x', '/relative', '', 'vscode://x']) {
    assert.equal(safeAddress(uri), null, uri);
  }
});

test('the messages of a person are conversations with each agent, the newest first', () => {
  const message = (at, from, to, more = {}) => ({ message_id: `m${at}`, timestamp: `2026-11-24T10:00:0${at}Z`, sender_id: from, sender_name: from,
    recipient_id: to, recipient_name: to, thread_id: `t${at}`, unread: false, ...more });
  const all = [message(4, 'bob', 'mara', { unread: true }), message(3, 'alice', 'mara'), message(2, 'mara', 'alice'), message(1, 'mara', 'bob')];
  const found = conversations(all, 'mara');
  assert.deepEqual(found.map(({ id, name, unread, thread, messages }) => [id, name, unread, thread, messages.map((one) => one.message_id)]),
    [['bob', 'bob', 1, 't4', ['m1', 'm4']], ['alice', 'alice', 0, 't3', ['m2', 'm3']]]);
  const ids = (messages) => messages.map((one) => one.message_id);
  const read = all.map((one) => ({ ...one, unread: false }));
  assert.deepEqual(ids(withMessages(all, read.slice(0, 2))), ['m4', 'm3', 'm2', 'm1']);
  assert.equal(withMessages(all, read.slice(0, 2))[0].unread, false);
  const texts = withMessages([{ ...all[0], payload: { text: 'kept' } }], [all[0], { ...all[1], payload: { text: 'new' } }]);
  assert.deepEqual(texts.map((one) => one.payload.text), ['kept', 'new'], 'a text that was known stays');
  const gone = withMessages([message(5, 'bob', 'mara'), ...all], read);
  assert.deepEqual(ids(gone), ['m4', 'm3', 'm2', 'm1'], 'what the newest page no longer has is gone');
});
