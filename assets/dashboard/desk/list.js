// The open questions: the more urgent first, then the older.
import { html, useMemo } from '../lib/preact.js';
import { count } from '../lib/format.js';
import { link } from '../lib/router.js';
import { useStore } from '../lib/store.js';
import { Empty, Text, Time } from '../ui/parts.js';
import { isGone, ordered } from './model.js';
import { AskerName, Holder, Urgency } from './parts.js';
import { desk } from './session.js';

const ROWS_MAX = 300;

export const useOrdered = () => {
  const { questions } = useStore(desk);
  return useMemo(() => ordered(questions.values()), [questions]);
};

export function QuestionList({ questions, chosen, human }) {
  if (!questions.length) return html`<${Empty} title="No questions.">What agents ask appears here by itself.<//>`;
  return html`<ol class="questions">${questions.slice(0, ROWS_MAX).map((one) => html`<li key=${one.question_id}>
    <a href=${link('q', one.question_id)} class=${one.urgency} aria-current=${one.question_id === chosen ? 'true' : undefined}>
      <span class="line"><${Urgency} value=${one.urgency} /><${Time} at=${one.asked_at} relative /><span class="spacer" />
        <${Holder} question=${one} human=${human} /></span>
      <span class="summary"><${Text} value=${one.summary} max=${160} /></span>
      <span class="line faint"><span><${AskerName} question=${one} />${isGone(one) && html` <span class="status warn">away</span>`}${one.to !== 'desk' && html`${' asks '}<${Text} value=${one.to}
        max=${40} />`}</span></span></a></li>`)}
    ${questions.length > ROWS_MAX && html`<li class="faint more">and ${count(questions.length - ROWS_MAX)} more</li>`}</ol>`;
}
