// Questions that are closed, the newest first.
import { html } from '../lib/preact.js';
import { get } from '../lib/api.js';
import { useResource } from '../lib/resource.js';
import { link } from '../lib/router.js';
import { Filters } from '../ui/filters.js';
import { Loaded, Panel, Text, Time } from '../ui/parts.js';
import { Pages, Table } from '../ui/table.js';
import { AskerName, State } from './parts.js';

const LIMIT = 25;
const STATES = [['', 'answered'], ['declined', 'declined'], ['expired', 'expired'], ['cancelled', 'cancelled']];

export function History({ route }) {
  const state = route.params.state || 'answered';
  const { asker = null, cursor = null } = route.params;
  const resource = useResource(`history ${state} ${asker} ${cursor}`, (signal) =>
    get('questions', { state, asker, limit: LIMIT, cursor }, signal), { pollMs: 10_000 });
  return html`<h1>History</h1><${Filters} fields=${[
      { name: 'state', label: 'State', type: 'select', options: STATES },
      { name: 'asker', label: 'Asker', type: 'search', hint: 'name of an agent' },
    ]} /><${Loaded} resource=${resource} what="the history">${(data) => html`<${Panel}><${Table} caption="Closed questions"
      rows=${data.questions} keyOf=${(row) => row.question_id} empty=${{ title: 'No such questions.' }} columns=${[
        { title: 'Question', render: (row) => html`<a href=${link('q', row.question_id)}><${Text} value=${row.summary} max=${120} /></a>` },
        { title: 'Asker', render: (row) => html`<${AskerName} question=${row} />` },
        { title: 'State', render: (row) => html`<${State} value=${row.state} />` },
        { title: 'By', isWide: true, render: (row) => html`<${Text} value=${(row.answered_by ?? row.declined_by)?.human ?? row.by ?? '–'} max=${40} />` },
        { title: 'Asked', isWide: true, render: (row) => html`<${Time} at=${row.asked_at} />` },
      ]} /><${Pages} shown=${data.questions.length} next=${data.next_cursor} /><//>`}<//>`;
}
