// Who did what, and what was refused.
import { html } from '../lib/preact.js';
import { get } from '../lib/api.js';
import { useResource } from '../lib/resource.js';
import { Filters } from '../ui/filters.js';
import { Loaded, Panel, Status, Text, Time } from '../ui/parts.js';
import { Pages, Table } from '../ui/table.js';

export function Audit({ route, title }) {
  const { q, action, outcome, cursor, of, project } = route.params;
  const query = { q, action, outcome, cursor, project: of || project, limit: 50 };
  const resource = useResource(JSON.stringify(query), (signal) => get('audit', query, signal), { topics: ['audit'], pollMs: 10_000 });
  return html`<h1>${title}</h1>
    <${Filters} fields=${[{ name: 'q', label: 'Search', type: 'search' }, { name: 'action', label: 'Action', type: 'text', hint: 'key.create' },
      { name: 'outcome', label: 'Outcome', type: 'select', options: [['', 'All'], ['done', 'Done'], ['refused', 'Refused']] },
      { name: 'of', label: 'Project', type: 'text' }]} />
    <${Panel}><${Loaded} resource=${resource} what="the audit">${(data) => html`
      <${Table} caption="Administrative actions" rows=${data.entries} keyOf=${(row) => row.id}
        empty=${{ title: 'No action matches.', text: 'Administrative actions and refusals appear here.' }}
        columns=${[
          { title: 'Time', render: (row) => html`<${Time} at=${row.at} />` },
          { title: 'Outcome', render: (row) => html`<${Status} value=${row.outcome} />${row.code && html` <code>${row.code}</code>`}` },
          { title: 'Action', render: (row) => html`<code><${Text} value=${row.action} max=${80} /></code>
            <div class="narrow-line faint"><${Text} value=${row.actor} max=${60} />${row.target && html`, <${Text} value=${row.target} max=${40} />`}</div>` },
          { title: 'Target', isWide: true, render: (row) => html`<${Text} value=${row.target} max=${80} />` },
          { title: 'Project', isWide: true, render: (row) => html`<${Text} value=${row.project} />` },
          { title: 'By', isWide: true, render: (row) => html`<${Text} value=${row.actor} max=${80} />` },
          { title: 'Address', isWide: true, render: (row) => html`<${Text} value=${row.address} max=${60} />` },
        ]} />
      <${Pages} shown=${data.entries.length} next=${data.next_cursor} />`}<//><//>`;
}
