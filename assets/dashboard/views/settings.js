// The settings of the broker as they are in force, and where each value comes from.
import { html } from '../lib/preact.js';
import { get } from '../lib/api.js';
import { useResource } from '../lib/resource.js';
import { Filters } from '../ui/filters.js';
import { Badge, Loaded, Panel, Text } from '../ui/parts.js';
import { Table } from '../ui/table.js';

// A change of the log level is one of them.
const POLL_MS = 10_000;

export function Settings({ route, title }) {
  const resource = useResource('settings', (signal) => get('settings', {}, signal), { pollMs: POLL_MS });
  const text = route.params.q?.toLowerCase();
  const { source } = route.params;
  const matches = (one) => (!text || `${one.name} ${shown(one.value)}`.toLowerCase().includes(text)) && (!source || one.source === source);
  return html`<h1>${title}</h1>
    <${Filters} fields=${[{ name: 'q', label: 'Search', type: 'search' }, { name: 'source', label: 'Source', type: 'select',
      options: [['', 'All'], ['default', 'Default'], ['file', 'File'], ['environment', 'Environment'], ['flag', 'Flag']] }]} />
    <${Panel}><${Loaded} resource=${resource} what="the settings">${(data) => html`
      <${Table} caption="Settings in force" rows=${data.settings.filter(matches)} keyOf=${(row) => row.name}
        empty=${{ title: 'No setting matches.' }} columns=${[
          { title: 'Setting', render: (row) => html`<code>${row.name}</code>` },
          { title: 'Value', render: (row) => (row.secret
            ? html`<span class="faint">${row.value === null ? 'not set' : 'set, not shown'}</span>`
            : html`<${Text} value=${shown(row.value)} />`) },
          { title: 'Source', render: (row) => (row.source === 'default' ? html`<span class="faint">default</span>`
            : html`<${Badge}>${row.source}<//>`) },
          { title: 'Default', isWide: true, render: (row) => html`<span class="faint"><${Text} value=${row.secret ? '' : shown(row.default)} /></span>` },
        ]} />`}<//><//>`;
}

const shown = (value) => (value === null || value === undefined ? 'none' : typeof value === 'string' ? value : JSON.stringify(value));
