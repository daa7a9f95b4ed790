// How a question ended, and what was answered.
import { html } from '../lib/preact.js';
import { words } from '../lib/format.js';
import { Text, Time } from '../ui/parts.js';
import { Images } from './images.js';
import { answerAt, itemsOf } from './model.js';
import { Lines } from './parts.js';
import { answeredHere } from './session.js';

const WAYS = { console: 'in a console', web: 'on the web page', api: 'over the API', elicitation: 'in the form of the client',
  rubberduck: 'in a rubberduck console', link: 'by a link' };

export function ClosedQuestion({ question }) {
  const { state } = question;
  return html`<section class="closed" aria-label="How it ended"><div class=${`notice ${state === 'answered' ? 'good' : 'warn'}`} role="status">
    <p><${Ending} question=${question} /></p></div>
    ${question.answer && html`<${Given} question=${question} />`}
    ${question.state === 'answered' && question.sensitive && html`<p class="faint">The answer is sensitive: only the agent gets it.</p>`}</section>`;
}

function Ending({ question }) {
  const at = question[`${question.state}_at`];
  const when = at && html`${' '}<${Time} at=${at} relative />`;
  const who = (by) => html`<b><${Text} value=${by?.human ?? by ?? 'A person'} max=${60} /></b>`;
  const reason = question.reason && html`: <${Text} value=${words(question.reason)} max=${2_000} />`;
  const { answered_by: answeredBy, declined_by: declinedBy } = question;
  const way = answeredHere.has(question.question_id) ? 'on this page' : WAYS[answeredBy?.via];
  switch (question.state) {
    case 'answered': return html`${who(answeredBy)} answered${when}${way && `, ${way}`}.`;
    case 'declined': return html`${who(declinedBy)} declined${when}${reason}.`;
    case 'expired': return html`The question expired${when} without an answer.`;
    default: return html`${question.by ? who(question.by) : 'The broker'} cancelled the question${when}${reason}.`;
  }
}

function Given({ question }) {
  const { answer } = question;
  const items = itemsOf(question);
  return html`<div class="given">${question.questions
    ? items.map((item) => html`<${Part} key=${item.id} item=${item} part=${answerAt(answer, item.id)} isForm />`)
    : html`<${Part} item=${items[0]} part=${answer} />`}<${Images} images=${answer.images} of="the answer" /></div>`;
}

function Part({ item, part, isForm = false }) {
  const labelOf = (value) => item.options.find((one) => one.value === value)?.label ?? value;
  const isNothing = !part || !(part.selected?.length || part.other || part.text);
  return html`<div>${isForm && html`<${Lines} class="faint" value=${item.question} />`}
    ${isNothing ? html`<p class="faint">${isForm ? 'No answer.' : 'No text.'}</p>` : html`
      ${part.selected?.length > 0 && html`<ul class="badges">${part.selected.map((one) => html`<li class="badge" key=${one}><${Text}
        value=${labelOf(one)} max=${120} /></li>`)}</ul>`}
      ${part.other && html`<${Lines} value=${part.other} />`}${part.text && html`<${Lines} value=${part.text} />`}`}</div>`;
}
