// Whether the broker is well, and how much it does.
import { html, useMemo, useRef } from '../lib/preact.js';
import { allows, get } from '../lib/api.js';
import { bytes, compact, count, duration, rate, visible } from '../lib/format.js';
import { useResource } from '../lib/resource.js';
import { go, link, linkHere, useRoute } from '../lib/router.js';
import { Chart } from '../ui/chart.js';
import { Loaded, Panel, Status, Time, Words } from '../ui/parts.js';

const POLL_MS = 2_000;
const SERIES_POLL_MS = 10_000;
// The time that the charts show: in the address, in words, in seconds.
const WINDOWS = [['', 'Last hour', 3_600], ['15m', 'Last 15 minutes', 900], ['5m', 'Last 5 minutes', 300]];

export function Overview({ route, title }) {
  const isOfBroker = allows('operator') && !route.params.project && route.params.of !== 'project';
  const all = isOfBroker ? 'true' : null;
  const stats = useResource(`stats ${all}`, (signal) => get('stats', { all_projects: all }, signal),
    { pollMs: POLL_MS, topics: ['session', 'protocol', 'dead_letter', 'actor'] });
  const span = WINDOWS.find(([name]) => name === route.params.window) ?? WINDOWS[0];
  // The figures say already which replicas are missing.
  const loadSeries = async (signal) => {
    const { series } = await get('stats', { all_projects: all, window: span[0] || '1h', step: '10s' }, signal);
    return { series };
  };
  const series = useResource(`series ${all} ${span[0]}`, loadSeries, { pollMs: SERIES_POLL_MS });
  return html`<div class="title-row"><h1>${title}</h1><span class="spacer" /><label>
      <span class="visually-hidden">Time of the charts</span><select value=${span[0]} onChange=${(event) =>
        go(linkHere({ window: event.currentTarget.value }))}>${WINDOWS.map(([value, words]) => html`<option value=${value}
        selected=${value === span[0]}>${words}</option>`)}</select></label>
    ${allows('operator') && html`<label>
      <span class="visually-hidden">Figures of</span><select value=${isOfBroker ? 'broker' : 'project'} onChange=${(event) =>
        go(event.currentTarget.value === 'broker' ? link('overview', null, { project: '' }) : linkHere({ of: 'project' }))}>
      <option value="broker">All projects</option><option value="project">This project</option></select></label>`}</div>
    <${Loaded} resource=${stats} what="figures">${(data) => html`<${Verdict} stats=${data} />
      <${Tiles} key=${all} stats=${data} series=${series.data?.series} />`}<//>
    <${Loaded} resource=${series} what="charts">${(data) => html`<${Charts} series=${data.series} stats=${stats.data} seconds=${span[2]} />`}<//>
    ${stats.data && html`<div class="columns"><${Desk} /><${Storage} stats=${stats.data} /><${Replicas} stats=${stats.data} /></div>`}`;
}

// Where the page shows what a warning is about.
const WARNING_VIEWS = {
  backend_failed: () => link('backends'),
  questions_unseen: () => DESK.href,
  inbox_nearly_full: () => link('sessions', null, { status: 'all', sort: 'queue_size', order: 'desc' }),
};

// The verdict in one word, with the list of warnings that /health, status, top and doctor show too.
function Verdict({ stats }) {
  const status = stats.health?.status ?? 'healthy';
  const warnings = stats.warnings ?? [];
  const kind = status === 'healthy' ? (warnings.length ? 'warn' : 'good') : status === 'degraded' ? 'warn' : 'bad';
  const word = kind === 'warn' && status === 'healthy' ? 'needs attention' : status;
  return html`<section class=${`panel verdict ${kind}`} aria-label="Condition"><span class="word"><${Status} kind=${kind}
    label=${word[0].toUpperCase() + word.slice(1)} /></span>${warnings.length
    ? html`<ul class="why">${warnings.map(({ code, text, cure }) => html`<li key=${code} title=${visible(cure, 300)}>${WARNING_VIEWS[code]
      ? html`<a href=${WARNING_VIEWS[code]()}>${visible(text, 300)}</a>` : `${visible(text, 300)}: ${visible(cure, 300)}`}</li>`)}</ul>`
    : html`<span class="why">No warnings.</span>`}
    <span class="faint">${[stats.version && `Version ${stats.version}`, stats.broker
      && `up ${duration(stats.broker.uptime_seconds)}`].filter(Boolean).join(', ')}</span></section>`;
}

// What happened since the last answer, as a rate. Counters of a broker that started again begin at zero.
function useRates(stats) {
  const last = useRef(null);
  return useMemo(() => {
    const now = { at: performance.now(), messages: stats.messages };
    const before = last.current;
    last.current = now;
    const seconds = before ? (now.at - before.at) / 1000 : 0;
    const of = (name) => (seconds > 0.2 ? Math.max(0, now.messages[name] - before.messages[name]) / seconds : null);
    return { accepted: of('accepted'), delivered: of('delivered') };
  }, [stats]);
}

function Tiles({ stats, series }) {
  const measured = useRates(stats);
  // The number that the chart shows; before it is there, what came since the last answer.
  const rateOf = (name) => (series ? inSecond(series.points[`messages_${name}`]?.at(-1) ?? null, series) : null) ?? measured[name];
  const { sessions, inboxes, messages, storage, broker } = stats;
  const dead = Object.values(messages.dead_lettered).reduce((sum, one) => sum + one, 0);
  return html`<div class="tiles">
    <${Tile} name="Sessions" value=${count(sessions.active)} href=${link('sessions', null, { status: 'active' })} note=${html`<span>active</span>
      <span>${count(sessions.stale)} stale</span><span>${count(sessions.disconnected)} away</span>`} />
    <${Tile} name="Accepted" value=${rate(rateOf('accepted'))} href=${link('messages')} note=${`${compact(messages.accepted)} since the start`} />
    <${Tile} name="Delivered" value=${rate(rateOf('delivered'))} href=${link('flow')} note=${`${compact(messages.delivered)} since the start`} />
    ${broker && html`<${Tile} name="Latency to accept" value=${broker.accept.count ? duration(broker.accept.p50_seconds) : '–'}
      note=${`p95 ${duration(broker.accept.p95_seconds)}, p99 ${duration(broker.accept.p99_seconds)}`} />
    <${Tile} name="Time until read" value=${broker.deliver.count ? duration(broker.deliver.p50_seconds) : '–'}
      note=${`p95 ${duration(broker.deliver.p95_seconds)}, p99 ${duration(broker.deliver.p99_seconds)}`} />`}
    <${Tile} name="Waiting" value=${count(inboxes.waiting)} href=${link('sessions', null, { sort: 'queue_size', order: 'desc' })}
      note=${`longest inbox ${count(inboxes.longest)}`} />
    <${Tile} name="Dead letters" value=${count(storage.dead_letters)} href=${link('dead-letters')} note=${`${compact(dead)} since the start`} />
    <${Tile} name="Protocols" value=${count(stats.protocols)} href=${link('protocols')}
      note=${broker ? `${count(broker.projects)} projects` : 'registered'} />
  </div>`;
}

const Tile = ({ name, value, note, href }) => {
  const inner = html`<div class="name">${name}</div><div class="value">${value}</div><div class="note">${note}</div>`;
  return href ? html`<a class="panel tile" href=${href}>${inner}</a>` : html`<div class="panel tile">${inner}</div>`;
};

// A point of a counter is what was added in its step.
const inSecond = (added, series) => (added === null ? null : added / series.step_seconds);

function Charts({ series, stats, seconds }) {
  const { times, of } = useMemo(() => {
    const points = series.points;
    // A broker that has just started has no points yet.
    const known = Math.max(0, ...Object.values(points).map((values) => values.length));
    const length = known || 1;
    const from = known ? series.from : Math.floor(Date.now() / 1000);
    return { times: Array.from({ length }, (_, at) => from + at * series.step_seconds),
      of: (name) => (points[name]?.length ? points[name] : Array.from({ length }, () => null)) };
  }, [series]);
  // What is counted and not added up is newer in the figures, which the tiles show as well.
  const now = { sessions_active: stats?.sessions.active, messages_waiting: stats?.inboxes.waiting, inbox_longest: stats?.inboxes.longest };
  const line = (label, name) => ({ label, values: of(name), now: now[name] });
  const perSecond = (label, name) => ({ label, values: of(name).map((added) => inSecond(added, series)) });
  const whole = (value) => (value === null ? '–' : compact(value));
  const charts = useMemo(() => [
    ['Messages', rate, [perSecond('accepted', 'messages_accepted'),
      perSecond('delivered', 'messages_delivered'), perSecond('refused', 'messages_refused')]],
    ['Sessions', whole, [line('active', 'sessions_active'), line('connections', 'connections')]],
    ['Waiting messages', whole, [line('in all inboxes', 'messages_waiting'), line('longest inbox', 'inbox_longest')]],
    ['Dead letters', rate, [perSecond('dead-lettered', 'messages_dead_lettered')]],
    ...(series.points.cpu_seconds ? [['Processor', (value) => (value === null ? '–' : `${(value * 100).toFixed(value < 0.1 ? 1 : 0)} %`),
      [perSecond('of one core', 'cpu_seconds')]],
    ['Memory', bytes, [line('resident', 'resident_bytes')]]] : []),
  ], [series, stats]);
  return html`<div class="charts">${charts.map(([title, format, lines]) => html`<${Chart} key=${title} title=${title} times=${times}
    series=${lines} format=${format} seconds=${seconds} />`)}</div>`;
}

const DESK = new URL('../../desk', import.meta.url);
const DESK_POLL_MS = 5_000;

// What waits for people. A key that may not see it, and a broker without a desk, have no such panel.
function Desk() {
  const project = useRoute().params.project ?? '';
  const { data } = useResource(`desk ${project}`, (signal) => get('desk', {}, signal), { pollMs: DESK_POLL_MS });
  if (!data) return null;
  const present = data.humans.filter((one) => one.presence === 'present');
  const address = new URL(project ? `#/?${new URLSearchParams({ project })}` : '', DESK);
  return html`<${Panel} title="Desk" actions=${html`<a href=${address}>Answer</a>`}><dl class="facts">
    <div><dt>Waiting questions</dt><dd>${count(data.waiting)}</dd></div>
    <div><dt>Of high urgency</dt><dd>${data.high ? html`<${Status} kind="bad" label=${count(data.high)} />` : count(data.high)}</dd></div>
    <div><dt>Oldest</dt><dd>${data.oldest_asked_at ? html`<${Time} at=${data.oldest_asked_at} relative />` : '–'}</dd></div>
    <div><dt>People present</dt><dd>${present.length ? html`<${Words} values=${present.map((one) => one.human)} max=${6} />` : 'none'}</dd></div></dl><//>`;
}

function Storage({ stats }) {
  const { storage, health, broker } = stats;
  return html`<${Panel} title="Storage"><dl class="facts">
    ${health?.storage_backend && html`<div><dt>Backend</dt><dd>${health.storage_backend}</dd></div>`}
    ${health?.storage_durability && html`<div><dt>Durability</dt><dd>${health.storage_durability}</dd></div>`}
    <div><dt>Messages</dt><dd>${bytes(storage.message_bytes)}</dd></div>
    <div><dt>Dead letters</dt><dd>${count(storage.dead_letters)}, ${bytes(storage.dead_letter_bytes)}</dd></div>
    <div><dt>Sessions</dt><dd>${bytes(storage.session_bytes)}</dd></div>
    ${broker && html`<div><dt>Operation</dt><dd>p50 ${duration(broker.store_operation.p50_seconds)}, p99
      ${' '}${duration(broker.store_operation.p99_seconds)}</dd></div>
    <div><dt>Failures</dt><dd>${count(broker.store_failures)}</dd></div>`}</dl><//>`;
}

function Replicas({ stats }) {
  const list = stats.replica_list ?? [];
  const { broker } = stats;
  return html`<${Panel} title=${stats.replicas === 1 ? 'Process' : `Replicas: ${stats.replicas}`}>
    ${list.length > 0 && html`<div class="table-frame" tabindex="0" role="region" aria-label="Replicas"><table>
      <caption class="visually-hidden">Replicas</caption><thead><tr><th scope="col">Replica</th><th scope="col">Version</th>
      <th scope="col">Up since</th><th scope="col" class="number">Sessions</th></tr></thead><tbody>${list.map((one) => html`<tr key=${one.id}>
      <td>${one.id ? html`<code>${one.id}</code>` : 'This process'}</td><td>${one.version}</td><td><${Time} at=${one.started_at} relative /></td>
      <td class="number">${count(one.sessions)}</td></tr>`)}</tbody></table></div>`}
    ${broker && html`<dl class="facts"><div><dt>Memory</dt><dd>${bytes(broker.process.resident_bytes)}</dd></div>
      <div><dt>Threads</dt><dd>${count(broker.process.threads)}</dd></div>
      <div><dt>Open files</dt><dd>${count(broker.process.open_files)}</dd></div>
      <div><dt>Restarts of actors</dt><dd><a href=${link('actors')}>${count(broker.actor_restarts)}</a></dd></div>
      <div><dt>Refused keys</dt><dd>${count(broker.authentication_failures)}</dd></div>
      <div><dt>Connections</dt><dd>${count(stats.connections.websocket)} WebSocket, ${count(stats.connections.http)} HTTP, ${count(stats.connections.local)} local</dd></div></dl>`}<//>`;
}
