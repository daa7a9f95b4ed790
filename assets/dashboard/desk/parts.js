// Small parts of the desk: how urgent a question is, who has it, and texts of agents with their lines.
import { html } from '../lib/preact.js';
import { visibleLines } from '../lib/format.js';
import { Status, Text } from '../ui/parts.js';
import { holder } from './model.js';

const URGENCIES = { high: 'bad', medium: 'busy', low: 'idle' };
export const Urgency = ({ value }) => html`<${Status} kind=${URGENCIES[value] ?? 'idle'} label=${value} />`;

const STATES = { pending: 'busy', answered: 'good', declined: 'warn', expired: 'bad', cancelled: 'idle' };
export const State = ({ value }) => html`<${Status} kind=${STATES[value] ?? 'idle'} label=${value} />`;

const PRESENCES = { present: 'good', idle: 'warn', away: 'idle' };
export const Presence = ({ value }) => html`<${Status} kind=${PRESENCES[value] ?? 'idle'} label=${value} />`;

// A text of an agent: shown as it is, with its lines, never as markup.
export const Lines = ({ value, max, class: extra = '' }) => html`<div class=${`lines ${extra}`} dir="auto">${visibleLines(value, max)}</div>`;

const DOES = { claimed: '', typing: ' (typing)', offered: ' (offered)' };

// Who has a question.
export function Holder({ question, human }) {
  const found = holder(question, human);
  if (!found) return html`<span class="faint">waiting</span>`;
  return html`<span class=${found.isMine ? 'mine' : 'faint'}>${found.isMine ? 'you' : html`<${Text} value=${found.human} max=${40} />`}${
    DOES[found.does]}</span>`;
}

export const AskerName = ({ question }) => html`<${Text} value=${question.asker?.name ?? 'an unnamed agent'} max=${60} />`;
