// Projects, and of one project its keys and its grants.
import { html } from '../lib/preact.js';
import { allows, call, get, me } from '../lib/api.js';
import { count, visible } from '../lib/format.js';
import { useResource } from '../lib/resource.js';
import { go, link } from '../lib/router.js';
import { ask } from '../ui/dialog.js';
import { Filters } from '../ui/filters.js';
import { Badge, CopyButton, Facts, Loaded, Panel, Status, Text, Time, Words } from '../ui/parts.js';
import { Pages, Table } from '../ui/table.js';

export const Projects = ({ route, title }) => (route.item
  ? html`<${Project} id=${route.item} />` : html`<${List} params=${route.params} title=${title} />`);

// Keys are shown once: in the dialog that says what was done.
const Secrets = ({ said, keys }) => html`<div><p>${said}</p><div class="notice warn" role="note"><p>Copy the key now: it is not shown again.</p></div>
  ${keys.map(({ key_id: id, api_key: key }) => html`<p class="faint">Key <code>${id}</code></p><div class="secret"><code>${key}</code><${CopyButton}
    value=${key} what="key" /></div>`)}</div>`;

function List({ params, title }) {
  const { q, tags, include_inactive: inactive, cursor } = params;
  const query = { q, tags, include_inactive: inactive, cursor };
  const resource = useResource(JSON.stringify(query), (signal) => get('projects', query, signal), { topics: ['audit'], pollMs: 10_000 });
  return html`<div class="title-row"><h1>${title}</h1><span class="spacer" />${allows('operator') && html`<button type="button" class="primary"
      onClick=${() => create(resource.refresh)}>New project</button>`}</div>
    <${Filters} fields=${[{ name: 'q', label: 'Search', type: 'search' }, { name: 'tags', label: 'Tag', type: 'text' },
      { name: 'include_inactive', label: 'Show', type: 'select', options: [['', 'Active'], ['true', 'Deleted too']] }]} />
    <${Panel}><${Loaded} resource=${resource} what="projects">${(data) => html`
      <${Table} caption="Projects" rows=${data.projects} keyOf=${(row) => row.project_id} empty=${{ title: 'No project matches.' }} columns=${[
        { title: 'Project', render: (row) => html`<a href=${link('projects', row.project_id)}>${row.project_id}</a>` },
        { title: 'Name', render: (row) => html`<${Text} value=${row.name} max=${60} />` },
        { title: 'State', render: (row) => html`<${Status} value=${row.active ? 'active' : 'deleted'} />` },
        { title: 'Description', isWide: true, render: (row) => html`<${Text} value=${row.description ?? ''} max=${120} />` },
        { title: 'Tags', isWide: true, render: (row) => html`<${Words} values=${row.tags} />` },
        { title: 'Created', isWide: true, render: (row) => html`<${Time} at=${row.created_at} />` },
      ]} /><${Pages} shown=${data.projects.length} next=${data.next_cursor} />`}<//><//>`;
}

const input = (name, label, attributes = {}) => html`<label><span>${label}</span><input name=${name} type="text"
  autocomplete="off" ...${attributes} /></label>`;
const tick = (name, label) => html`<label><input type="checkbox" name=${name} value="true" /> ${label}</label>`;

function create(after) {
  ask({ title: 'New project', verb: 'Create', text: html`<p>A project is a tenant with sessions, protocols and keys of its own.</p>`,
    fields: html`${input('project_id', 'Id (small letters, digits, hyphens)', { required: true, maxlength: 63,
      pattern: '[a-z0-9]([a-z0-9\\-]{0,61}[a-z0-9])?' })}
      ${input('name', 'Name', { required: true, maxlength: 128 })}${input('description', 'Description', { maxlength: 1000 })}
      ${tick('discoverable', 'Other projects see it in lists')}${tick('allow_cross_project', 'May exchange messages with other projects')}`,
    run: async ({ form }) => {
      const { project_id: id, name, description, ...config } = form;
      const said = await call('POST', 'projects', { body: { project_id: id, name, ...(description ? { description } : {}),
        config: Object.fromEntries(Object.keys(config).map((one) => [one, true])) } });
      return html`<${Secrets} said=${`Project ${id} is created.`} keys=${said.api_keys} />`;
    }, after });
}

function Project({ id }) {
  const path = /** @type {const} */ (`projects/${encodeURIComponent(id)}`);
  const isOwn = allows('operator') || id === me.get().project_id;
  const mayAct = isOwn && allows('admin');
  const resource = useResource(path, (signal) => get(path, {}, signal), { topics: ['audit'], pollMs: 10_000 });
  return html`<p class="crumb"><a href=${link('projects')}>Projects</a></p>
    <${Loaded} resource=${resource} what="the project">${({ project, counts }) => html`
      <div class="title-row"><h1><${Text} value=${project.name} /></h1><${Status} value=${project.active ? 'active' : 'deleted'} /><span class="spacer" />
        ${allows('operator') && html`<a class="button" href=${link('overview', null, { project: id, of: 'project' })}>Show its overview</a>`}
        ${allows('operator') && project.active && html`<button type="button" class="danger" onClick=${() => remove(id)}>Delete</button>`}</div>
      <${Panel} title="Project"><${Facts} items=${[
        ['Id', html`<code>${project.project_id}</code>`],
        project.description && ['Description', html`<${Text} value=${project.description} max=${1_000} />`],
        ['Tags', html`<${Words} values=${project.tags} max=${20} />`], ['Created', html`<${Time} at=${project.created_at} />`],
        ['Messages with other projects', project.config.allow_cross_project ? 'allowed where granted' : 'not allowed'],
        ['In lists of other projects', project.config.discoverable ? 'yes' : 'no'],
        ...(counts ? [['Sessions', `${count(counts.active_sessions)} active of ${count(counts.sessions)}`], ['Protocols', count(counts.protocols)],
          ['Dead letters', count(counts.dead_letters)]] : []),
        ...[['max_sessions', 'Most sessions'], ['max_protocols', 'Most protocols'], ['queue_capacity', 'Inbox holds'], ['rate_limit', 'Requests a minute']]
          .map(([field, label]) => field in project.config && [label, project.config[field] ? count(project.config[field]) : 'as the broker']),
      ]} /><//>
      ${mayAct && html`<${Keys} path=${path} project=${id} /><${Grants} path=${path} project=${id} />`}`}<//>`;
}

function remove(id) {
  ask({ title: `Delete ${id}?`, verb: 'Delete the project', isDangerous: true,
    text: html`<p>Its connections are closed and its keys end at once. Messages that wait in its inboxes are not delivered.</p>`,
    run: async () => {
      await call('DELETE', `projects/${encodeURIComponent(id)}`);
      return `Project ${id} is deleted.`;
    }, after: () => go(link('projects', null, { project: '' })) });
}

/** @param {{ path: `projects/${string}`, project: string }} of */
function Keys({ path, project }) {
  const resource = useResource(`${path}/keys`, (signal) => get(`${path}/keys`, {}, signal), { topics: ['audit'], pollMs: 10_000 });
  const after = resource.refresh;
  return html`<${Panel} title="Keys" actions=${html`<button type="button" onClick=${() => rotate(path, null, after)}>Rotate all</button>
      <button type="button" class="primary" onClick=${() => addKey(path, project, after)}>New key</button>`}>
    <${Loaded} resource=${resource} what="keys">${(data) => html`<${Table} caption="Keys of the project" rows=${data.keys} keyOf=${(row) => row.key_id}
      empty=${{ title: 'No keys.' }} columns=${[
        { title: 'Key', render: (row) => html`<code>${row.key_id}</code>` },
        { title: 'Label', render: (row) => html`<${Text} value=${row.label ?? ''} max=${60} />` },
        { title: 'Scope', render: (row) => html`<${Badge}>${row.scope}<//>${row.tools && ` ${row.tools} tools`}${row.human && html` <${Text} value=${[row.human, ...row.roles].join(', ')} max=${60} />`}` }, { title: 'State', render: (row) => html`<${Status} value=${row.status} />` },
        { title: 'Last used', isWide: true, render: (row) => html`<${Time} at=${row.last_used_at} relative />` },
        { title: 'Ends', isWide: true, render: (row) => html`<${Time} at=${row.expires_at} />` },
        { title: 'Created', isWide: true, render: (row) => html`<${Time} at=${row.created_at} />` },
        { title: '', isActions: true, render: (row) => ['active', 'retiring'].includes(row.status) && html`
          ${row.status === 'active' && html`<button type="button" class="quiet" aria-label=${`Rotate ${row.key_id}`}
            onClick=${() => rotate(path, row.key_id, after)}>Rotate</button>`}
          <button type="button" class="quiet" aria-label=${`Revoke ${row.key_id}`} onClick=${() => revoke(path, row.key_id, after)}>Revoke</button>` },
      ]} />`}<//><//>`;
}

/** @param {`projects/${string}`} path */
function addKey(path, project, after) {
  ask({ title: `New key of ${project}`, verb: 'Create',
    fields: html`<label><span>Scope</span><select name="scope"><option value="observer">observer: sees</option>
      <option value="answer">answer: also answers questions, as a person</option>
      <option value="member">member: also sends</option>
      <option value="admin">admin: also acts</option></select></label>
      <label><span>Tools that its agents are listed</span><select name="tools"><option value="">as the broker is set</option>
      <option value="core">core: join, send, receive and ask</option><option value="agent">agent: what an agent needs</option>
      <option value="full">full: every tool</option></select></label>
      ${input('human', 'Person (with scope answer)', { maxlength: 128 })}
      ${input('roles', 'Roles of the person, separated by commas (optional)', { maxlength: 512 })}${input('label', 'Label (optional)', { maxlength: 128 })}
      ${input('days', 'Ends after days (empty: never)', { inputmode: 'numeric', pattern: '[1-9][0-9]{0,3}' })}`,
    run: async ({ form: { scope, tools, human, roles, label, days } }) => {
      const said = await call('POST', `${path}/keys`, { body: { scope, ...(tools ? { tools } : {}), ...(label ? { label } : {}), ...(human ? { human } : {}),
        ...(roles ? { roles: roles.split(',').map((role) => role.trim()).filter(Boolean) } : {}),
        ...(days ? { expires_in_seconds: Number(days) * 86_400 } : {}) } });
      return html`<${Secrets} said="The key is created." keys=${[{ key_id: said.key.key_id, api_key: said.api_key }]} />`;
    }, after });
}

/** @param {`projects/${string}`} path */
function rotate(path, id, after) {
  ask({ title: id ? `Rotate the key ${id}?` : 'Rotate all keys?', verb: 'Rotate', isDangerous: true,
    text: html`<p>${id ? 'A new key takes its place, and the sessions stay. The old key ends'
      : 'New keys take their places, and the sessions stay. The old keys end'} after the time that you give.</p>`,
    fields: input('grace', 'Minutes until the old key ends', { inputmode: 'numeric', pattern: '[0-9]{1,5}', value: '0', required: true }),
    run: async ({ form }) => {
      const said = await call('POST', `${path}/keys/rotate`, { body: { grace_period_seconds: Number(form.grace) * 60, ...(id ? { key_id: id } : {}) } });
      return html`<${Secrets} said=${`${count(said.revoked.length)} old and ${count(said.api_keys.length)} new keys.`} keys=${said.api_keys} />`;
    }, after });
}

/** @param {`projects/${string}`} path */
function revoke(path, id, after) {
  ask({ title: `Revoke the key ${id}?`, verb: 'Revoke', isDangerous: true,
    text: html`<p>It ends at once, and connections that use it are closed.${id === me.get().key_id ? ' You are logged in with this key.' : ''}</p>`,
    run: async () => {
      await call('DELETE', `${path}/keys/${encodeURIComponent(id)}`);
      return `Key ${id} is revoked.`;
    }, after });
}

/** @param {{ path: `projects/${string}`, project: string }} of */
function Grants({ path, project }) {
  const resource = useResource(`${path}/grants`, (signal) => get(`${path}/grants`, {}, signal), { topics: ['audit'], pollMs: 10_000 });
  const after = resource.refresh;
  const end = (target) => ask({ title: `Revoke the grant to ${target}?`, verb: 'Revoke', isDangerous: true,
    text: html`<p>Sessions of ${project} can no longer send to ${target}.</p>`,
    run: async () => {
      await call('DELETE', `${path}/grants/${encodeURIComponent(target)}`);
      return `${project} may no longer send to ${target}.`;
    }, after });
  return html`<${Panel} title="Grants" actions=${html`<button type="button" onClick=${() => grant(path, project, after)}>New grant</button>`}>
    <${Loaded} resource=${resource} what="grants">${(data) => html`<${Table} caption="Projects that this project may send to" rows=${data.grants}
      keyOf=${(row) => row.target_project_id} empty=${{ title: 'No grants.', text: 'A grant lets sessions of this project send to another one.' }} columns=${[
        { title: 'To project', render: (row) => html`<code>${row.target_project_id}</code>` },
        { title: 'Protocols', render: (row) => (row.allowed_protocols.length ? html`<${Words} values=${row.allowed_protocols} max=${8} />` : 'all') },
        { title: 'Messages a minute', isNumber: true, render: (row) => (row.message_rate_limit ? count(row.message_rate_limit) : 'no limit') },
        { title: 'Granted', isWide: true, render: (row) => html`<${Time} at=${row.granted_at} />` },
        { title: '', isActions: true, render: (row) => html`<button type="button" class="quiet" aria-label=${`Revoke the grant to ${row.target_project_id}`}
          onClick=${() => end(row.target_project_id)}>Revoke</button>` },
      ]} />`}<//><//>`;
}

/** @param {`projects/${string}`} path */
function grant(path, project, after) {
  ask({ title: `Let ${project} send to another project`, verb: 'Grant',
    fields: html`${input('target', 'Project', { required: true, maxlength: 63 })}${input('protocols', 'Protocols, separated by commas (empty: all)')}
      ${input('limit', 'Messages a minute (0: no limit)', { inputmode: 'numeric', pattern: '[0-9]{1,9}', value: '0' })}`,
    run: async ({ form }) => {
      const protocols = form.protocols.split(',').map((one) => one.trim()).filter(Boolean);
      const said = await call('PUT', `${path}/grants/${encodeURIComponent(form.target.trim())}`,
        { body: { allowed_protocols: protocols, message_rate_limit: Number(form.limit) } });
      return [`${project} may send to ${form.target.trim()}.`, ...said.warnings.map((one) => visible(one, 300))].join(' ');
    }, after });
}
