// The backend MCP servers of a project, and one of them with its tools and its log.
import { html, useLayoutEffect, useRef } from '../lib/preact.js';
import { allows, call, chosenProject, get, me } from '../lib/api.js';
import { bytes, count, duration, localTime, visible } from '../lib/format.js';
import { useResource } from '../lib/resource.js';
import { link } from '../lib/router.js';
import { ask } from '../ui/dialog.js';
import { Filters } from '../ui/filters.js';
import { Facts, Loaded, Panel, Status, Text, Time } from '../ui/parts.js';
import { Table } from '../ui/table.js';

// No event tells of backends.
const POLL_MS = 2_000;
const STATES = ['idle', 'starting', 'ready', 'handover', 'backoff', 'failed', 'disabled', 'stopping'];
// The broker sends them all; the filter finds those beyond the first ones.
const TOOLS_MAX = 200;
const LINES_MAX = 1_000;

export const Backends = ({ route, title }) => (route.item
  ? html`<${Backend} name=${route.item} params=${route.params} />` : html`<${List} params=${route.params} title=${title} />`);

/**
 * @template {string} [R='']
 * @param {string} name
 * @param {R} [rest]
 * @returns {`backends/${string}${R}`}
 */
const pathOf = (name, rest) => /** @type {any} */ (`backends/${encodeURIComponent(name)}${rest ?? ''}`);
const includes = (text, wanted) => !wanted || text.toLowerCase().includes(wanted.toLowerCase());

function List({ params, title }) {
  const { q, state } = params;
  const resource = useResource('backends', (signal) => get('backends', {}, signal), { pollMs: POLL_MS });
  const matches = (row) => (!state || row.state === state) && includes(`${row.name} ${row.server ?? ''} ${row.reason ?? ''}`, q);
  return html`<h1>${title}</h1>
    <${Filters} fields=${[{ name: 'q', label: 'Name, server or reason', type: 'search' },
      { name: 'state', label: 'State', type: 'select', options: [['', 'All'], ...STATES.map((one) => [one, one])] }]} />
    <${Panel}><${Loaded} resource=${resource} what="backends">${({ backends }) => html`
      <${Table} caption="Backends" rows=${backends.filter(matches)} keyOf=${(row) => row.name}
        empty=${backends.length ? { title: 'No backend matches.' } : { title: 'This project has no backends.', text: html`<${HowToAdd} />` }}
        columns=${[
          { title: 'Name', render: (row) => html`<a href=${link('backends', row.name)}><${Text} value=${row.name} max=${60} /></a>` },
          { title: 'State', render: (row) => html`<${Status} value=${row.state} /> <span class="faint"><${Time} at=${row.since} relative /></span>
            ${row.reason && html`<div class="faint"><${Text} value=${row.reason} max=${240} /></div>`}` },
          { title: 'Era', isWide: true, render: (row) => row.era ?? '–' },
          { title: 'Server', isWide: true, render: (row) => html`<${Text} value=${row.server} max=${60} />` },
          { title: 'Process', isWide: true, isNumber: true, render: (row) => row.pid ?? '–' },
          { title: 'Tools', isNumber: true, render: (row) => count(row.tools) },
          { title: 'Open calls', isWide: true, isNumber: true, render: openCalls },
          { title: 'Calls', isWide: true, isNumber: true, render: (row) => count(row.calls) },
          { title: 'Failed', isWide: true, isNumber: true, render: (row) => count(row.failures) },
          { title: 'Starts', isWide: true, isNumber: true, render: (row) => count(row.starts) },
          ...(allows('admin') ? [{ title: '', isActions: true, isWide: true, render: (row) => html`<${Actions} backend=${row}
            after=${resource.refresh} isShort />` }] : []),
        ]} />
      ${backends.length > 0 && html`<div class="pages"><span>${count(backends.filter(matches).length)} of ${count(backends.length)}</span></div>`}`}<//><//>`;
}

const openCalls = ({ open_calls: open, waiting_calls: waiting }) => (waiting ? `${count(open)}, ${count(waiting)} waiting` : count(open));

function HowToAdd() {
  const project = chosenProject() ?? me.get().project_id;
  const table = project === 'default' ? '[backends.NAME]' : `[projects.${project}.backends.NAME]`;
  return html`The configuration file of the broker adds them: a table <code><${Text} value=${table} max=${120} /></code> with
    ${' '}<code>command</code> or <code>url</code>. <code>mcp-broker gateway import FILE</code> writes such tables from the servers
    of an agent's configuration, administrators add others by <code>POST /api/v1/backends</code>, and <code>docs/gateway.md</code>
    ${' '}explains the keys.`;
}

const isUp = ({ state }) => state === 'starting' || state === 'ready';

// What each command does. The broker answers before it is done.
const COMMANDS = {
  start: { verb: 'Start', said: 'is being started', isOffered: (backend) => !isUp(backend),
    text: 'It is started at once, also if it waits for its next attempt.' },
  restart: { verb: 'Restart', said: 'is being restarted', isOffered: isUp, text: 'Its open calls end with an error, and it is started again.' },
  stop: { verb: 'Stop', said: 'is being stopped', isOffered: ({ state }) => state !== 'disabled' && state !== 'stopping', isDangerous: true,
    text: 'Its open calls end with an error, and its tools are not listed until it is started again.' },
};

function Actions({ backend, after, isShort = false }) {
  const name = visible(backend.name, 60);
  return Object.entries(COMMANDS).filter(([, { isOffered }]) => isOffered(backend)).map(([command, { verb, said, text, isDangerous }]) => {
    const run = async () => {
      const rest = /** @type {`/${keyof typeof COMMANDS}`} */ (`/${command}`);
      await call('POST', pathOf(backend.name, rest));
      return `${name} ${said}.`;
    };
    const begin = () => ask({ title: `${verb} ${name}?`, verb, isDangerous, text: html`<p>${text}${
      backend.open_calls > 0 && ` It has ${count(backend.open_calls)} open calls.`}</p>`, run, after });
    const look = isShort ? 'quiet' : isDangerous ? 'danger' : '';
    return html`<button key=${command} type="button" class=${look} aria-label=${`${verb} ${name}`} onClick=${begin}>${verb}</button>`;
  });
}

function Backend({ name, params }) {
  const resource = useResource(name, (signal) => get(pathOf(name), {}, signal), { pollMs: POLL_MS });
  return html`<p class="crumb"><a href=${link('backends')}>Backends</a></p>
    <${Loaded} resource=${resource} what="the backend">${(backend) => html`
      <div class="title-row"><h1><${Text} value=${backend.name} max=${60} /></h1><${Status} value=${backend.state} />
        <span class="spacer" />${allows('admin') && html`<${Actions} backend=${backend} after=${resource.refresh} />`}</div>
      ${backend.reason && html`<div class=${`notice ${backend.state === 'failed' ? 'bad' : 'warn'}`}><p>
        <${Text} value=${backend.reason} max=${1_000} /></p></div>`}
      <${Panel} title="Backend"><${Facts} items=${[
        ['State since', html`<${Time} at=${backend.since} relative />`],
        backend.retry_after_ms !== undefined && ['Next start in', duration(Math.round(backend.retry_after_ms / 1000))],
        ['Described in', backend.origin === 'added' ? 'the storage: an administrator has added it' : 'the configuration file'],
        [backend.pid ? 'Program' : 'Program or address', html`<${Text} value=${backend.address} max=${500} />`],
        ['Process', backend.pid ?? '–'],
        ['Server', html`<${Text} value=${backend.server} max=${120} />`],
        ['Era', backend.era ? html`${backend.era}, <${Text} value=${backend.protocol_version} max=${40} />` : '–'],
        ['Open calls', openCalls(backend)],
        ['Answered calls', count(backend.calls)],
        ['Failed calls', count(backend.failures)],
        ['Starts', count(backend.starts)],
        ['Prompts', count(backend.prompts)],
        ['Resources', count(backend.resources)],
        ...Object.entries(backend.dropped).map(([reason, number]) => [`Dropped: ${visible(reason, 40)}`, count(number)]),
      ]} /><//>
      ${allows('admin') && html`<${Log} name=${name} />`}
      <${Tools} backend=${backend} wanted=${params.q} />`}<//>`;
}

// The tools are asked for again when their number or the instance has changed.
function Tools({ backend, wanted }) {
  const key = `${backend.name} ${backend.state} ${backend.starts} ${backend.tools}`;
  const resource = useResource(key, (signal) => get(pathOf(backend.name, '/tools'), {}, signal), { pollMs: 5 * POLL_MS });
  return html`<${Filters} fields=${[{ name: 'q', label: 'Name of a tool', type: 'search' }]} />
    <${Panel} title="Tools"><${Loaded} resource=${resource} what="the tools">${({ tools }) => {
      const found = tools.filter((row) => includes(`${row.tool} ${row.name ?? ''}`, wanted));
      return html`<${Table} caption="Tools" rows=${found.slice(0, TOOLS_MAX)} keyOf=${(row) => row.tool}
          empty=${tools.length ? { title: 'No tool matches.' }
            : { title: 'No tools.', text: 'A backend lists its tools once it has started.' }} columns=${[
            { title: 'Name for clients', render: (row) => (row.name ? html`<code><${Text} value=${row.name} max=${80} /></code>`
              : html`<span class="faint">not offered</span>`) },
            { title: 'Name at the backend', render: (row) => html`<code><${Text} value=${row.tool} max=${80} /></code>` },
            { title: 'Definition', isWide: true, isNumber: true, render: (row) => bytes(row.bytes) },
          ]} />
        ${tools.length > 0 && html`<div class="pages"><span>${found.length > TOOLS_MAX
          ? `The first ${count(TOOLS_MAX)} of ${count(found.length)}` : `${count(found.length)} of ${count(tools.length)}`}</span></div>`}`;
    }}<//><//>`;
}

// Each request brings the lines since the one before. A broker that was started again counts from the beginning.
function Log({ name }) {
  const known = useRef({ lines: [], next: 0 });
  const load = async (signal) => {
    const { lines, next: from } = known.current;
    const since = (first) => get(pathOf(name, '/log'), { from: first }, signal);
    let said = await since(from);
    const isOther = said.next < from;
    if (isOther) said = await since(0);
    known.current = { lines: [...(isOther ? [] : lines), ...said.lines].slice(-LINES_MAX), next: said.next };
    return known.current;
  };
  const resource = useResource(`log ${name}`, load, { pollMs: POLL_MS });
  return html`<${Panel} title="Log"><div class="body"><${Loaded} resource=${resource} what="the log">${({ lines }) => html`
    <p class="faint">The last lines on stderr, and lines on stdout that are no messages. They may hold secrets of the backend.</p>
    <${Lines} lines=${lines} />`}<//></div><//>`;
}

// The end stays in view while new lines come, unless the reader has scrolled away from it.
function Lines({ lines }) {
  const frame = useRef(null);
  const isAtEnd = useRef(true);
  useLayoutEffect(() => {
    if (isAtEnd.current) frame.current.scrollTop = frame.current.scrollHeight;
  }, [lines]);
  const onScroll = ({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) => {
    isAtEnd.current = scrollHeight - scrollTop - clientHeight < 4;
  };
  return html`<pre ref=${frame} class="json" tabindex="0" aria-label="Log of the backend" onScroll=${onScroll}>${lines.length
    ? lines.map(({ at, text }) => `${localTime(at)}  ${visible(text, 2_000)}`).join('\n') : 'It has written nothing.'}</pre>`;
}
