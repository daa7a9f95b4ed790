// One question: what is asked, the form, and what else a person may do with it.
import { html, useEffect, useMemo, useRef, useState } from '../lib/preact.js';
import { count, duration, visible } from '../lib/format.js';
import { useResource } from '../lib/resource.js';
import { go, link } from '../lib/router.js';
import { useStore } from '../lib/store.js';
import { announce } from '../ui/announce.js';
import { ask } from '../ui/dialog.js';
import { holdShortcuts } from '../ui/keys.js';
import { Link, Markdown } from '../ui/markdown.js';
import { CopyButton, Loaded, Text, Time } from '../ui/parts.js';
import { ClosedQuestion } from './closed.js';
import { draftOf } from './drafts.js';
import { AnswerForm } from './form.js';
import { Images } from './images.js';
import { useOrdered } from './list.js';
import { answerOf, draftText, holder, isAnswer, isEmpty, isGone, isOpen, missing, unanswered } from './model.js';
import { AskerName, Lines, Urgency } from './parts.js';
import * as session from './session.js';

// The broker says for ten seconds that a person types.
const TYPED_EVERY_MS = 6_000;
// Characters of a question that is a heading.
const HEADING_MAX = 300;
// What an agent wrote: it is in the whole question alone, and never changes.
const CONTENT = ['question', 'questions', 'context', 'options', 'multi_select', 'allow_other', 'links', 'images'];

export function QuestionView({ id, human }) {
  const { questions, closed } = useStore(session.desk);
  const missedCount = useStore(session.missedCount);
  const resource = useResource(`question ${id}`, (signal) => session.loadQuestion(id, signal));
  const record = questions.get(id) ?? closed.get(id);
  const whole = resource.data;
  const isBehind = whole && record && !isOpen(record) && record.revision > whole.revision;
  useEffect(() => {
    if (isBehind) resource.refresh();
  }, [isBehind, record?.revision]);
  useEffect(() => {
    if (missedCount) resource.refresh();
  }, [missedCount]);
  const loaded = !whole ? resource : { ...resource, data: record && record.revision > whole.revision
    // The stream tells that an answer came, without its images: they come with the whole question.
    ? { ...whole, ...record, ...pick(whole, CONTENT), answer: null } : whole };
  return html`<p class="crumb back"><a href=${link('')}>← Questions</a></p>
    <${Loaded} resource=${loaded} what="the question">${(question) => html`<${Shown} key=${id} question=${question} human=${human} />`}<//>`;
}

const pick = (from, names) => Object.fromEntries(names.filter((name) => name in from).map((name) => [name, from[name]]));

function Shown({ question, human }) {
  const draft = useMemo(() => draftOf(question), [question.question_id]);
  const form = useStore(draft.store);
  useEffect(() => () => { draft.save(); }, [draft]);
  return html`<article class="panel question" aria-labelledby="question-title"><${Head} question=${question} />
    <${Content} question=${question} />
    ${isOpen(question) ? html`<${Answering} question=${question} human=${human} draft=${draft} form=${form} />`
      : html`<${ClosedQuestion} question=${question} /><${Unsent} question=${question} form=${form} />`}</article>`;
}

function Head({ question }) {
  const { asker } = question;
  return html`<header><${Urgency} value=${question.urgency} />
    <span><b><${AskerName} question=${question} /></b> asks${question.to !== 'desk' && html`${' '}<b><${Text} value=${question.to} max=${40} /></b>`}
      ${' '}<${Time} at=${question.asked_at} relative /></span>
    ${asker?.session_id && html`<a class="faint" href=${link('messages', 'new', { to: asker.name ?? asker.session_id })}>Write to it</a>`}
    ${isGone(question) && html`<span class="status warn">away${asker.away_seconds ? ` for ${duration(asker.away_seconds)}` : ''}; the answer
      waits in its inbox</span>`}
    ${question.sensitive && html`<span class="badge">sensitive: in no history</span>`}
    <span class="spacer" />${isOpen(question) && question.expires_at && html`<span class="faint">expires
      ${' '}<${Time} at=${question.expires_at} relative /></span>`}</header>`;
}

function Content({ question }) {
  const text = question.question ?? question.summary ?? '';
  // A long question is shown once: its first words are the heading for readers of the screen alone.
  const isLong = text.length > HEADING_MAX || text.includes('\n');
  return html`<div class="body">${question.questions ? html`<h1 id="question-title">${count(question.questions.length)} questions</h1>`
    : html`<h1 id="question-title" class=${isLong ? 'visually-hidden' : ''}><${Text} value=${isLong ? question.summary : text} max=${HEADING_MAX} /></h1>
      ${isLong && html`<${Markdown} class="asked" value=${text} />`}`}
    ${question.handover && html`<div class="notice"><p><b><${Text} value=${question.handover.from} max=${40} /></b> handed this over to
      ${' '}<b><${Text} value=${question.handover.to} max=${40} /></b>${question.handover.note && html`: <${Text} value=${question.handover.note}
      max=${2_000} />`}</p></div>`}
    ${question.context && html`<section aria-label="Context" class="context" tabindex="0"><${Markdown} value=${question.context} /></section>`}
    ${question.links?.length > 0 && html`<ul class="links">${question.links.map((one, at) => html`<li key=${at}><${Link} ...${one} /></li>`)}</ul>`}
    <${Images} images=${question.images} of="the question" /></div>`;
}

// Claims the question at the first keystroke, and tells of later ones.
function useClaim(question, human) {
  const latest = useRef(question);
  latest.current = question;
  const run = useRef({ isClaiming: false, typedAt: -TYPED_EVERY_MS });
  const claimNow = async () => {
    const { question_id: id, revision } = latest.current;
    try {
      return await session.claim(id, revision);
    } catch (problem) {
      if (problem.status !== 412) throw problem;
      // The question has changed: another person may have claimed it.
      const now = await session.loadQuestion(id);
      return isOpen(now) && !now.claimed_by ? session.claim(id) : now;
    }
  };
  return async () => {
    const { current } = run;
    const { claimed_by: claim, question_id: id } = latest.current;
    if (current.isClaiming || (claim && claim.human !== human)) return;
    const isFirst = !claim;
    if (!isFirst && performance.now() - current.typedAt < TYPED_EVERY_MS) return;
    current.isClaiming = true;
    current.typedAt = performance.now();
    try {
      await (isFirst ? claimNow() : session.typed(id));
    } catch {
      // A claim is a courtesy: the answer is accepted without it.
    } finally {
      current.isClaiming = false;
    }
  };
}

function Answering({ question, human, draft, form }) {
  const [state, setState] = useState({ isSending: false, problem: null });
  const [faults, setFaults] = useState([]);
  const isComplete = !missing(question, form.parts, form.images).length;
  const touch = useClaim(question, human);
  const change = (next) => {
    draft.change(next);
    if (faults.length) setFaults([]);
    touch();
  };
  const send = async ({ isAsItIs = false } = {}) => {
    if (state.isSending) return;
    const needed = missing(question, form.parts, form.images);
    const lacking = needed.length || isAsItIs ? needed : unanswered(question, form.parts);
    setFaults(lacking);
    if (lacking.length) return;
    setState({ isSending: true, problem: null });
    // The stream may show the end of the question before the answer to the request is here.
    holdShortcuts();
    try {
      await session.answer(question.question_id, answerOf(question, form.parts, form.images));
      draft.forget();
      holdShortcuts();
      announce(`Sent to ${visible(question.asker?.name ?? 'the agent', 60)}.`);
    } catch (problem) {
      // The text stays. A question that is closed by now is shown with its end.
      setState({ isSending: false, problem: problem.code === 'question_closed' ? null : problem });
      if (problem.code === 'question_closed') await session.loadQuestion(question.question_id).catch(() => {});
    }
  };
  return html`<${HeldByAnother} question=${question} human=${human} />
    <${AnswerForm} question=${question} form=${form} change=${change} send=${() => send()} sendAsItIs=${() => send({ isAsItIs: true })}
      isSending=${state.isSending} faults=${faults} isComplete=${isComplete} isDisabled=${state.isSending}><${Actions} question=${question} human=${human} draft=${draft} /><//>
    ${state.problem && html`<div class="notice bad" role="alert"><p><strong>Not sent.</strong> ${visible(state.problem.message, 500)} Your text
      is kept.</p><button type="button" onClick=${() => send({ isAsItIs: true })}>Send again</button></div>`}`;
}

function HeldByAnother({ question, human }) {
  const found = holder(question, human);
  if (!found || found.isMine) return null;
  return html`<div class="notice warn held"><p><b><${Text} value=${found.human} max=${40} /></b> ${{ typing: 'is typing an answer.', claimed: 'has opened this question.',
    offered: 'is asked first.' }[found.does]}</p></div>`;
}

function Actions({ question, human, draft }) {
  const { summary } = useStore(session.desk);
  const found = holder(question, human);
  const id = question.question_id;
  const run = (what, said) => what.then(() => said && announce(said), (problem) => announce(problem.message));
  const take = () => (question.claimed_by && question.claimed_by.human !== human
    ? ask({ title: 'Take over this question?', verb: 'Take over', text: html`<p><${Text} value=${question.claimed_by.human} max=${40} /> has
        claimed it and may be writing an answer.</p>`, run: () => session.claim(id).then(() => 'The question is yours.') })
    : run(session.claim(id), 'The question is yours.'));
  const decline = () => ask({ title: 'Decline to answer?', verb: 'Decline', isDangerous: true,
    text: html`<p>The agent gets a message that says why there is no answer.</p>`,
    fields: html`<label><span>Reason (optional)</span><textarea name="reason" maxlength="2000" rows="3" /></label>`,
    run: async ({ form }) => {
      await session.decline(id, form.reason.trim());
      draft.forget();
      return 'Declined. The agent gets a message.';
    } });
  const names = ['desk', ...(summary?.humans ?? []).map((one) => one.human).filter((one) => one !== human)];
  const handOver = () => ask({ title: 'Hand over this question?', verb: 'Hand over', text: html`<p>It keeps its age and its place.</p>`,
    fields: html`<label><span>To: a person, a role, or <code>desk</code> for all</span><input name="to" required maxlength="128" list="names"
        autocomplete="off" /><datalist id="names">${names.map((one) => html`<option value=${one} />`)}</datalist></label>
      <label><span>Note (optional)</span><textarea name="note" maxlength="2000" rows="3" /></label>`,
    run: async ({ form }) => {
      await session.handOver(id, form.to.trim(), form.note.trim());
      // This person may not read it any longer, unless all may.
      go(link(''));
      return `Handed over to ${visible(form.to.trim(), 60)}.`;
    } });
  const isClaimed = question.claimed_by?.human === human;
  return html`<button type="button" data-key="d" onClick=${decline}>Decline…</button>
    <button type="button" data-key="h" onClick=${handOver}>Hand over…</button>
    ${isClaimed ? html`<button type="button" data-key="r" onClick=${() => run(session.release(id), 'Others may take it.')}>Give back</button>`
      : html`<button type="button" data-key="c" onClick=${take}>${found && !found.isMine && found.does !== 'offered' ? 'Take over…' : 'Take'}</button>`}`;
}

// What the person had filled in when the question was closed from elsewhere.
function Unsent({ question, form }) {
  const questions = useOrdered();
  const text = draftText(question, form.parts);
  const hasUnsent = !isEmpty(question, form.parts, form.images) && !isAnswer(question, form.parts);
  return html`${hasUnsent && html`<section class="unsent" aria-label="Your text"><p>Your text was not sent. It is kept here:</p>
      <${Lines} value=${text || 'Your choice of options.'} />${text && html`<p><${CopyButton} value=${text} what="your text" /></p>`}</section>`}
    ${questions.length > 0 && html`<p class="next"><button type="button" data-next onClick=${() => go(link('q', questions[0].question_id))}>
      Next question</button></p>`}`;
}
