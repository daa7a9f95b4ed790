// The sessions of a project, and one of them.
import { html } from '../lib/preact.js';
import { allows, call, get } from '../lib/api.js';
import { count, visible } from '../lib/format.js';
import { useResource } from '../lib/resource.js';
import { go, link } from '../lib/router.js';
import { ask } from '../ui/dialog.js';
import { Filters } from '../ui/filters.js';
import { Facts, Id, Json, Loaded, Panel, Status, Text, Time, Words } from '../ui/parts.js';
import { Pages, Table } from '../ui/table.js';

const PAGE = 50;
const STATES = [['', 'All'], ['active', 'Active'], ['stale', 'Stale'], ['disconnected', 'Disconnected']];

export const Sessions = ({ route, title }) => (route.item
  ? html`<${Session} id=${route.item} />` : html`<${List} params=${route.params} title=${title} />`);

function List({ params, title }) {
  const query = { status: params.status || 'all', q: params.q, protocol: params.protocol, feature: params.feature, sort: params.sort,
    order: params.order, cursor: params.cursor, include_capabilities: 'true', limit: PAGE };
  const resource = useResource(JSON.stringify(query), (signal) => get('sessions', query, signal), { topics: ['session'], pollMs: 5_000 });
  return html`<h1>${title}</h1>
    <${Filters} fields=${[{ name: 'q', label: 'Name or id', type: 'search' },
      { name: 'status', label: 'State', type: 'select', options: STATES },
      { name: 'protocol', label: 'Protocol', type: 'text' }, { name: 'feature', label: 'Feature', type: 'text' }]} />
    <${Panel}><${Loaded} resource=${resource} what="sessions">${(data) => html`
      <${Table} caption="Sessions" rows=${data.sessions} keyOf=${(row) => row.session_id} defaultSort="connection_time"
        empty=${{ title: 'No session matches.', text: params.status && params.status !== 'all' ? 'Choose the state “All” to see the others.' : 'Sessions appear when agents connect.' }}
        columns=${[
          { title: 'Name', sort: 'name', render: (row) => html`<a href=${link('sessions', row.session_id)}>${row.name
            ? html`<${Text} value=${row.name} max=${60} />` : html`<span class="faint">unnamed</span>`}</a>` },
          { title: 'State', sort: 'status', render: (row) => html`<${Status} value=${row.status} />` },
          { title: 'Waiting', sort: 'queue_size', isNumber: true, render: (row) => count(row.queue_size) },
          { title: 'Speaks', isWide: true, render: (row) => html`<${Words} values=${Object.keys(row.capabilities?.supported_protocols ?? {})} />` },
          { title: 'Last seen', sort: 'last_heartbeat', isWide: true, render: (row) => html`<${Time} at=${row.last_heartbeat} relative />` },
          { title: 'Connected', sort: 'connection_time', isWide: true, render: (row) => html`<${Time} at=${row.connection_time} />` },
          { title: 'Id', isWide: true, render: (row) => html`<${Id} value=${row.session_id} what="session id" />` },
          ...(allows('member') ? [{ title: '', isActions: true, render: (row) => html`<${Actions} session=${row}
            after=${resource.refresh} isShort />` }] : []),
        ]} />
      <${Pages} shown=${data.sessions.length} total=${data.total} next=${data.next_cursor} />`}<//><//>`;
}

const nameOf = (session) => visible(session.name ?? session.session_id, 60);

function Actions({ session, after, isShort = false, ended = after }) {
  // A member ends its own sessions by their names: ids of lists do not act for it.
  const path = /** @type {const} */ (`sessions/${encodeURIComponent(session.name ?? session.session_id)}`);
  const disconnect = () => ask({ title: `Disconnect ${nameOf(session)}?`, verb: 'Disconnect',
    text: html`<p>Its connection is closed. Name and inbox stay, and the client may come back.</p>`,
    run: async () => {
      const said = await call('DELETE', path);
      return said.partial?.length ? `${nameOf(session)} is disconnected as far as the replicas answered; ${said.partial.join(', ')} did not.`
        : `${nameOf(session)} is disconnected.`;
    }, after });
  const end = () => ask({ title: `End ${nameOf(session)} for good?`, verb: 'End the session', isDangerous: true,
    text: html`<p>Its ${count(session.queue_size)} waiting messages become dead letters, and its name is free for another session.</p>`,
    run: async () => {
      const said = await call('DELETE', path, { query: { forget: 'true' } });
      return `${nameOf(session)} has ended; ${count(said.dead_letters ?? 0)} of its messages are dead letters now.`;
    }, after: ended });
  return html`${session.status !== 'disconnected' && html`<button type="button" class=${isShort ? 'quiet' : ''} onClick=${disconnect}
    aria-label=${`Disconnect ${nameOf(session)}`}>Disconnect</button>`}
    ${!isShort && html`<button type="button" class="danger" onClick=${end}>End for good</button>`}`;
}

function Session({ id }) {
  const resource = useResource(id, (signal) => get(`sessions/${encodeURIComponent(id)}`, {}, signal),
    { topics: ['session', 'message', 'dead_letter'], pollMs: 5_000,
      concerns: (event) => event.session_id === undefined || event.session_id === id });
  return html`<p class="crumb"><a href=${link('sessions')}>Sessions</a></p>
    <${Loaded} resource=${resource} what="the session">${(session) => html`
      <div class="title-row"><h1>${session.name ? html`<${Text} value=${session.name} />` : 'Unnamed session'}</h1>
        <${Status} value=${session.status} /><span class="spacer" />${allows('member') && html`<${Actions} session=${session}
          after=${resource.refresh} ended=${() => go(link('sessions'))} />`}</div>
      <${Panel} title="Session"><${Facts} items=${[
        ['Id', html`<${Id} value=${session.session_id} what="session id" />`],
        ['Waiting messages', html`<a href=${link('messages', null, { session: session.session_id, status: 'queued' })}>${count(session.queue_size)}</a>`],
        ['Last seen', html`<${Time} at=${session.last_heartbeat} relative />`],
        ['Connected', html`<${Time} at=${session.connection_time} />`],
        ['Project', session.project_id],
        session.activity && ['Activity', visible(String(session.activity), 100)],
        session.wakes_by && ['Wakes by', visible([session.wakes_by].flat().join(', '), 100)],
        ['Messages', html`<a href=${link('messages', null, { session: session.session_id })}>Sent and received</a>`],
        ['Dead letters', html`<a href=${link('dead-letters', null, { session: session.session_id })}>Of this session</a>`],
      ]} /><//>
      <div class="columns"><${Panel} title="Speaks"><${Facts} items=${[
        ...Object.entries(session.capabilities?.supported_protocols ?? {}).map(([name, versions]) =>
          [html`<a href=${link('protocols', null, { name })}><${Text} value=${name} max=${60} /></a>`, html`<${Words} values=${versions} max=${12} />`]),
        ['Features', html`<${Words} values=${session.capabilities?.supported_features} max=${20} />`],
      ]} /><//>
      <${Panel} title="Metadata"><div class="body"><${Json} value=${session.metadata ?? {}} label="Metadata of the session" /></div><//></div>`}<//>`;
}
