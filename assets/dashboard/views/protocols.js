// Protocols, one version with its schema, who speaks which version, and which sessions can speak with each other.
import { html } from '../lib/preact.js';
import { get } from '../lib/api.js';
import { count } from '../lib/format.js';
import { useResource } from '../lib/resource.js';
import { link } from '../lib/router.js';
import { Filters } from '../ui/filters.js';
import { Empty, Facts, Id, Json, Loaded, Panel, Status, Text, Time, Words } from '../ui/parts.js';
import { useNames } from '../ui/names.js';
import { Pages, Table } from '../ui/table.js';
import { VersionsPicture, waysOf } from './versions.js';

const MATRIX = 'compatibility';

export function Protocols({ route, title }) {
  if (route.item === MATRIX && !route.part) return html`<${Matrix} params=${route.params} />`;
  if (route.item && route.part) return html`<${Protocol} name=${route.item} version=${route.part} />`;
  return html`<${List} params=${route.params} title=${title} />`;
}

// No agent has registered a protocol of the broker.
const registered = ({ registered_at: at }) => (Date.parse(at) > 0 ? html`<${Time} at=${at} />` : html`<span class="faint">built in</span>`);

function List({ params, title }) {
  const { q, name, tags, cursor } = params;
  const query = { q, name, tags, cursor, limit: 50 };
  const resource = useResource(JSON.stringify(query), (signal) => get('protocols', query, signal), { topics: ['protocol'] });
  return html`<div class="title-row"><h1>${title}</h1><span class="spacer" /><a class="button" href=${link('protocols', MATRIX)}>Who can
      speak with whom</a></div>
    <${Filters} fields=${[{ name: 'q', label: 'Search', type: 'search' }, { name: 'name', label: 'Exact name', type: 'text' },
      { name: 'tags', label: 'Tag', type: 'text' }]} />
    <${Panel}><${Loaded} resource=${resource} what="protocols">${(data) => html`
      <${Table} caption="Protocols" rows=${data.protocols} keyOf=${(row) => `${row.name} ${row.version}`}
        empty=${{ title: 'No protocol matches.', text: 'Every agent speaks text without one. Agents register others with register_protocol.' }} columns=${[
          { title: 'Name', render: (row) => html`<a href=${link('protocols', row.name, {}, row.version)}><${Text} value=${row.name} max=${64} /></a>` },
          { title: 'Version', render: (row) => row.version },
          { title: 'Description', isWide: true, render: (row) => html`<${Text} value=${row.metadata.description ?? ''} max=${140} />` },
          { title: 'Tags', isWide: true, render: (row) => html`<${Words} values=${row.metadata.tags} />` },
          { title: 'Patterns', isWide: true, render: (row) => html`<${Words} values=${row.capabilities} />` },
          { title: 'Registered', render: registered },
        ]} />
      <${Pages} shown=${data.protocols.length} next=${data.next_cursor} />`}<//><//>`;
}

function Protocol({ name, version }) {
  const path = /** @type {const} */ (`protocols/${encodeURIComponent(name)}/${encodeURIComponent(version)}`);
  const resource = useResource(path, (signal) => get(path, {}, signal));
  const versions = useResource(`versions ${name}`, (signal) => get('protocols', { name, limit: 100 }, signal), { topics: ['protocol'] });
  return html`<p class="crumb"><a href=${link('protocols')}>Protocols</a></p>
    <${Loaded} resource=${resource} what="the protocol">${(protocol) => html`
      <h1><${Text} value=${protocol.name} /> ${protocol.version}</h1>
      <${Panel} title="Protocol"><${Facts} items=${[
        protocol.metadata.description && ['Description', html`<${Text} value=${protocol.metadata.description} max=${2_000} />`],
        protocol.metadata.author && ['Author', html`<${Text} value=${protocol.metadata.author} />`],
        ['Tags', html`<${Words} values=${protocol.metadata.tags} max=${20} />`],
        ['Patterns', html`<${Words} values=${protocol.capabilities} />`],
        ['Registered', registered(protocol)],
        protocol.registered_by && ['Registered by', html`<${Id} value=${protocol.registered_by} what="session id"
          href=${link('sessions', protocol.registered_by)} />`],
        ['Versions', versions.data ? html`<span class="badges">${versions.data.protocols.map((one) => html`<a
          href=${link('protocols', name, {}, one.version)} aria-current=${one.version === version ? 'true' : undefined}>${one.version}</a>`)}</span>` : '…'],
        ['Sessions', html`<a href=${link('sessions', null, { protocol: name })}>That declare it</a>`],
        ['Messages', html`<a href=${link('messages', null, { protocol: name })}>Of this protocol</a>`],
      ]} /><//>
      <${Use} name=${name} version=${version} />
      <${Panel} title="Schema"><div class="body"><${Json} value=${protocol.schema ?? {}} label="Schema" /></div><//>`}<//>`;
}

// Who speaks which version, with the lenses between them. The lowest version is the first row.
function Use({ name, version }) {
  const path = /** @type {const} */ (`protocols/${encodeURIComponent(name)}`);
  const resource = useResource(`use ${name}`, (signal) => get(path, { window: '24h' }, signal), { topics: ['protocol', 'session'], pollMs: 30_000 });
  return html`<${Panel} title="Use in 24 hours"><${Loaded} resource=${resource} what="the use">${(data) => html`
    <${VersionsPicture} versions=${data.versions} version=${version} />
    <${Table} caption="Use of each version" rows=${data.versions} keyOf=${(row) => row.version} empty=${{ title: 'No version.' }} columns=${[
      { title: 'Version', render: (row) => html`<a href=${link('protocols', name, {}, row.version)}
        aria-current=${row.version === version ? 'true' : undefined}>${row.version}</a>` },
      { title: 'Lenses', render: (row) => html`<${Words} values=${row.lenses.map(lensText)} />` },
      { title: 'Sessions', render: ({ sessions }) => `${count(sessions.active)} active, ${count(sessions.kept)} kept` },
      { title: 'Highest for', render: ({ sessions }) => count(sessions.only) },
      { title: 'Sent', render: (row) => count(row.sent) },
      { title: 'Delivered', render: ({ delivered }) => `${count(delivered.as_sent)} as sent, ${count(delivered.transformed)} transformed` },
      { title: 'State', render: (row) => row.retirable && html`<${Status} kind="idle"
        label=${row === data.versions.at(-1) ? 'not spoken' : 'no longer spoken'} />` },
    ]} />
    ${!data.complete && html`<p class="body faint">Not all is counted: messages since <${Time} at=${data.since} /> only.</p>`}`}<//><//>`;
}

const lensText = (lens) => `from ${lens.from}: ${waysOf(lens)}`;

const SIDE_MAX = 24;

// The pairs of sessions as a square, and as a list: the square is for the eye, the list says everything.
function Matrix({ params }) {
  const query = { cursor: params.cursor };
  const resource = useResource(JSON.stringify(query), (signal) => get('compatibility', query, signal), { topics: ['session'], pollMs: 10_000 });
  const names = useNames();
  const nameOf = (id) => named(id, names.get(id));
  return html`<p class="crumb"><a href=${link('protocols')}>Protocols</a></p><h1>Who can speak with whom</h1>
    <${Loaded} resource=${resource} what="the matrix">${({ rows, next_cursor: next }) => html`
      ${rows.length > 0 && html`<${Square} rows=${rows} nameOf=${nameOf} />`}
      <${Panel} title="Pairs"><${Table} caption="Pairs of sessions" rows=${rows.slice(0, 100)} keyOf=${(row) => `${row.session_a} ${row.session_b}`}
        empty=${{ title: 'No pairs.', text: 'At least two active sessions are needed.' }} columns=${[
          { title: 'Session', render: (row) => nameOf(row.session_a) },
          { title: 'With', render: (row) => nameOf(row.session_b) },
          { title: 'Compatible', render: (row) => html`<${Status} kind=${row.compatible ? 'good' : 'idle'} label=${row.compatible ? 'yes' : 'no'} />` },
          { title: 'Agreed versions', render: (row) => html`<${Words} values=${agreedText(row)} />` },
          { title: 'Features', isWide: true, render: (row) => html`<${Words} values=${row.common_features} />` },
        ]} />
      ${rows.length > 100 && html`<p class="body faint">The first 100 of ${count(rows.length)} pairs.</p>`}
      <${Pages} shown=${Math.min(100, rows.length)} next=${next} /><//>`}<//>`;
}

const agreedText = ({ common_protocols: common, by_lens: lenses = {} }) => [
  ...Object.entries(common).map((pair) => pair.join(' ')),
  ...Object.entries(lenses).map(([name, { a, b }]) => `${name} ${a} and ${b} by lens`),
];

const named = (id, name) => html`<a href=${link('sessions', id)}>${name
  ? html`<${Text} value=${name} max=${30} />` : html`<code>${id.slice(0, 18)}…</code>`}</a>`;

function Square({ rows, nameOf }) {
  const all = new Set();
  const agreed = new Map();
  for (const row of rows) {
    const { session_a: a, session_b: b, compatible } = row;
    all.add(a).add(b);
    const text = compatible ? agreedText(row).join(', ') || 'yes' : '';
    agreed.set(`${a} ${b}`, text);
    agreed.set(`${b} ${a}`, text);
  }
  const ids = [...all];
  if (ids.length > SIDE_MAX) return html`<${Panel}><${Empty} title="Too many sessions for a picture.">The list below has every pair of this page.<//><//>`;
  return html`<${Panel} title="Matrix"><div class="table-frame matrix" tabindex="0" role="region" aria-label="Matrix"><table>
    <caption class="visually-hidden">Which sessions have a protocol in common</caption>
    <thead><tr><td />${ids.map((id) => html`<th scope="col">${nameOf(id)}</th>`)}</tr></thead>
    <tbody>${ids.map((a) => html`<tr><th scope="row">${nameOf(a)}</th>${ids.map((b) => {
      const text = agreed.get(`${a} ${b}`);
      if (a === b || text === undefined) return html`<td><span class="faint">·</span></td>`;
      return html`<td title=${text}><${Status} kind=${text ? 'good' : 'idle'} label=${text ? 'yes' : 'no'} /></td>`;
    })}</tr>`)}</tbody></table></div><//>`;
}
