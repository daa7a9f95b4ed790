// Who talks to whom, as a picture and as a table. The table has all that the picture shows.
import { html, useLayoutEffect, useMemo, useRef, useState } from '../lib/preact.js';
import { get } from '../lib/api.js';
import { count, rate, visible } from '../lib/format.js';
import { useResource } from '../lib/resource.js';
import { link } from '../lib/router.js';
import { Filters } from '../ui/filters.js';
import { Empty, Loaded, Panel, Text, Time } from '../ui/parts.js';
import { Table } from '../ui/table.js';
import { fold, layout } from './flow-layout.js';
import { isSession } from './messages.js';

const WINDOWS = [['', '5 minutes'], ['1m', '1 minute'], ['15m', '15 minutes'], ['1h', '1 hour']];
const EDGES_MAX = 500;
const ROWS_MAX = 100;

export function Flow({ route, title }) {
  const { q, window: span } = route.params;
  const query = { window: span || '5m', limit: EDGES_MAX };
  const resource = useResource(JSON.stringify(query), (signal) => get('flow', query, signal), { topics: ['message'], pollMs: 5_000 });
  return html`<h1>${title}</h1>
    <${Filters} fields=${[{ name: 'q', label: 'Name', type: 'search' }, { name: 'window', label: 'Of the last', type: 'select', options: WINDOWS }]} />
    <${Loaded} resource=${resource} what="the flow">${(data) => html`<${Shown} data=${data} q=${q} />`}<//>`;
}

function Shown({ data, q }) {
  const [chosen, setChosen] = useState(null);
  const edges = useMemo(() => {
    const text = q?.toLowerCase();
    return data.edges.filter(({ from, to }) => !text || nameOf(from).toLowerCase().includes(text) || nameOf(to).toLowerCase().includes(text));
  }, [data, q]);
  const graph = useMemo(() => fold(edges.map(({ from, to, messages, dead_letters: dead }) => ({ from: nameOf(from), to: nameOf(to), messages, dead }))),
    [edges]);
  const seconds = Math.max(1, (Date.parse(data.until) - Date.parse(data.since)) / 1000);
  return html`${!data.complete && html`<div class="notice warn" role="status"><p>There are more messages than one look counts: this is since
      ${' '}<${Time} at=${data.since} />.</p></div>`}
    ${data.folded?.edges > 0 && html`<div class="notice" role="status"><p>${count(data.folded.edges)} less busy connections with
      ${' '}${count(data.folded.messages)} messages are not shown.</p></div>`}
    <${Panel} title=${`${count(graph.nodes.length)} ${graph.isFolded ? 'groups' : 'participants'}, ${count(edges.length)} connections`}>
      ${edges.length ? html`<${Picture} graph=${graph} chosen=${chosen} choose=${setChosen} />`
        : html`<${Empty} title="No message in this time.">Choose a longer time, or wait for agents to talk.<//>`}<//>
    ${edges.length > 0 && html`<${Panel} title="Connections"><${Table} caption="Connections, the busiest first" rows=${edges.slice(0, ROWS_MAX)}
      keyOf=${(row) => `${row.from.session_id} ${row.to.session_id}`} columns=${[
        { title: 'From', render: (row) => participant(row.from) }, { title: 'To', render: (row) => participant(row.to) },
        { title: 'Messages', isNumber: true, render: (row) => count(row.messages) },
        { title: 'Rate', isNumber: true, isWide: true, render: (row) => rate(row.messages / seconds) },
        { title: 'Dead letters', isNumber: true, render: (row) => count(row.dead_letters) },
      ]} />${edges.length > ROWS_MAX && html`<p class="body faint">The first ${ROWS_MAX} of ${count(edges.length)}; filter by name to see others.</p>`}<//>`}`;
}

const nameOf = ({ name, session_id: id }) => name ?? id ?? 'broadcast';
const participant = (one) => (isSession(one.session_id)
  ? html`<a href=${link('sessions', one.session_id)}><${Text} value=${nameOf(one)} max=${60} /></a>` : html`<${Text} value=${nameOf(one)} max=${60} />`);

const SIZE = 900;

// A session without a name, or one that has ended, has its id.
const labelOf = (name) => (/^[0-9a-f]{8}-[0-9a-f-]{27}$/.test(name) ? `${name.slice(0, 8)}…` : visible(name, 22));

function Picture({ graph, chosen, choose }) {
  const { nodes, lines } = useMemo(() => layout(graph, SIZE), [graph]);
  const near = new Set(lines.filter((one) => one.from === chosen || one.to === chosen).flatMap((one) => [one.from, one.to]));
  // On a narrow screen the picture is wider than its frame: its middle is shown first.
  const frame = useRef(null);
  useLayoutEffect(() => { frame.current.scrollLeft = (frame.current.scrollWidth - frame.current.clientWidth) / 2; }, []);
  const known = chosen && nodes.some((one) => one.name === chosen);
  return html`<div ref=${frame} class="body flow-frame" tabindex="0" role="region" aria-label="Picture of the flow"><svg class=${`flow ${known ? 'chosen' : ''} ${nodes.length > 40 ? 'large' : ''}`} viewBox=${`0 0 ${SIZE} ${SIZE}`} role="img"
    aria-label=${`Picture of ${nodes.length} participants; the table below has the same connections.`}
    onMouseLeave=${() => choose(null)}>
    <g>${lines.map((one) => html`<path key=${`${one.from} ${one.to}`} d=${one.path} stroke-width=${one.width}
      class=${`${one.dead ? 'failed' : ''} ${one.from === chosen || one.to === chosen ? 'near' : ''}`}>
      <title>${`${visible(one.from, 60)} to ${visible(one.to, 60)}: ${count(one.messages)} messages`}</title></path>`)}</g>
    <g>${nodes.map((one) => html`<g key=${one.name} class=${`${near.has(one.name) ? 'near' : ''} ${one.members > 1 ? 'folded' : ''}`}
      onMouseEnter=${() => choose(one.name)}><circle cx=${one.x} cy=${one.y} r=${one.radius} />
      <text transform=${one.turn} text-anchor=${one.anchor} dominant-baseline="middle" style=${{ fontSize: `${one.font}px` }}>${labelOf(one.name)}${
        one.members > 1 ? ` (${one.members})` : ''}</text></g>`)}</g></svg></div>`;
}
