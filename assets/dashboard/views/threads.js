// Conversations: messages that have a thread id, or else a correlation id, in common.
import { html } from '../lib/preact.js';
import { get } from '../lib/api.js';
import { count } from '../lib/format.js';
import { useResource } from '../lib/resource.js';
import { link } from '../lib/router.js';
import { Filters } from '../ui/filters.js';
import { Loaded, Panel, Text, Time, Words } from '../ui/parts.js';
import { Pages, Table } from '../ui/table.js';

const threadOf = ({ thread_id, correlation_id }) => (thread_id ? { thread_id } : { correlation_id });

export function Threads({ route, title }) {
  const { since, cursor } = route.params;
  const query = { since, cursor, limit: 50 };
  const resource = useResource(JSON.stringify(query), (signal) => get('threads', query, signal), { topics: ['message'] });
  return html`<h1>${title}</h1>
    <${Filters} fields=${[{ name: 'since', label: 'Since', type: 'time' }]} />
    <${Panel}><${Loaded} resource=${resource} what="threads">${(data) => html`
      <${Table} caption="Threads" rows=${data.threads} keyOf=${(row) => JSON.stringify(threadOf(row))}
        empty=${{ title: 'No thread in this time.', text: 'Messages with the same thread_id, or else correlation_id, in their headers form a thread.' }} columns=${[
          { title: 'Thread', render: (row) => html`<a href=${link('messages', null, threadOf(row))}>
            <${Text} value=${row.subject ?? row.thread_id ?? row.correlation_id} max=${60} /></a>` },
          { title: 'Messages', isNumber: true, render: (row) => count(row.messages) },
          { title: 'Participants', render: (row) => html`<${Words} max=${5} values=${[...row.participants.map((one) => one.name ?? one.session_id),
            ...Array(Math.max(0, row.participants_total - row.participants.length)).fill('…')]} />` },
          { title: 'Protocols', isWide: true, render: (row) => html`<${Words} values=${row.protocols} />` },
          { title: 'First', isWide: true, render: (row) => html`<${Time} at=${row.first_at} />` },
          { title: 'Last', render: (row) => html`<${Time} at=${row.last_at} relative />` },
        ]} />
      <${Pages} shown=${data.threads.length} next=${data.next_cursor} />`}<//><//>`;
}
