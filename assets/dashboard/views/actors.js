// The actors of the broker, with their states, mailboxes and restarts.
import { html, useMemo, useState } from '../lib/preact.js';
import { get } from '../lib/api.js';
import { count } from '../lib/format.js';
import { useResource } from '../lib/resource.js';
import { link } from '../lib/router.js';
import { Filters } from '../ui/filters.js';
import { useNames } from '../ui/names.js';
import { Empty, Loaded, Panel, Status, Text } from '../ui/parts.js';

const POLL_MS = 2_000;
// The tree of many actors is long: it is asked for less often.
const LARGE = { actors: 1_000, pollMs: 10_000 };
// Children of one actor that are shown; the filter finds the others.
const CHILDREN_MAX = 100;

export function Actors({ route, title }) {
  const [isLarge, setLarge] = useState(false);
  const load = async (signal) => {
    const root = await get('tree', {}, signal);
    const sum = summed(root);
    setLarge(sum.actors > LARGE.actors);
    return { ...root, sum };
  };
  const tree = useResource('tree', load, { topics: isLarge ? ['actor'] : ['actor', 'session'], pollMs: isLarge ? LARGE.pollMs : POLL_MS });
  return html`<h1>${title}</h1>
    <${Filters} fields=${[{ name: 'q', label: 'Name or kind', type: 'search' }, { name: 'state', label: 'State', type: 'select',
      options: [['', 'All'], ['restarting', 'Restarting'], ['gave_up', 'Gave up'], ['restarted', 'Restarted before'],
        ['waiting', 'With waiting commands']] }]} />
    <${Loaded} resource=${tree} what="the actors">${(root) => html`<${Tree} root=${root} params=${route.params} />`}<//>`;
}

function Tree({ root, params }) {
  const names = useNames();
  const { sum } = root;
  const shown = useMemo(() => filtered(root, params, names), [root, params, names]);
  return html`<${Panel} title=${`${count(sum.actors)} actors, ${count(sum.mailbox)} waiting commands, ${count(sum.restarts)} restarts`}>
    ${shown ? html`<div class="body"><ul class="tree"><${Actor} actor=${shown} depth=${0} names=${names}
        isFiltered=${Boolean(params.q || params.state)} /></ul></div>`
      : html`<${Empty} title="No actor matches." />`}<//>`;
}

// A session leads to its view. An actor with children has no link, because its line folds them.
function nameOf({ kind, name }, project, names) {
  if (kind === 'session') return html`<a href=${link('sessions', name, { project })}><${Text} value=${names.get(name) ?? name} max=${80} /></a>`;
  return name && html`<${Text} value=${name} max=${80} />`;
}

function Actor({ actor, depth, isFiltered, project, names }) {
  const line = html`<span class="actor"><span class="kind">${actor.kind}</span>
    <span class="name">${nameOf(actor, project, names)}</span><${Status} value=${actor.state} />
    <span class=${actor.mailbox_len ? '' : 'faint'}>mailbox ${count(actor.mailbox_len)}</span>
    ${actor.restarts > 0 && html`<${Status} kind="warn" label=${`${count(actor.restarts)} restarts`} />`}</span>`;
  if (!actor.children.length) return html`<li>${line}</li>`;
  const children = actor.children.slice(0, CHILDREN_MAX);
  const rest = actor.children.length - children.length;
  return html`<li><details open=${depth < 2 || isFiltered}><summary>${line}</summary><ul>
    ${children.map((child) => html`<${Actor} key=${`${child.kind} ${child.name}`} actor=${child} depth=${depth + 1} isFiltered=${isFiltered} names=${names}
      project=${actor.kind === 'project' ? actor.name : project} />`)}
    ${rest > 0 && html`<li class="faint">and ${count(rest)} more; filter by name to see them</li>`}</ul></details></li>`;
}

const STATES = {
  restarted: (actor) => actor.restarts > 0,
  waiting: (actor) => actor.mailbox_len > 0,
};

// The part of the tree that leads to matching actors.
function filtered(actor, { q, state }, names) {
  if (!q && !state) return actor;
  const text = q?.toLowerCase();
  const matches = (!text || `${actor.kind} ${actor.name} ${names.get(actor.name) ?? ''}`.toLowerCase().includes(text))
    && (!state || (STATES[state] ? STATES[state](actor) : actor.state === state));
  const children = actor.children.map((child) => filtered(child, { q, state }, names)).filter(Boolean);
  return matches || children.length ? { ...actor, children } : null;
}

function summed(actor) {
  const sum = { actors: 1, mailbox: actor.mailbox_len, restarts: actor.restarts };
  for (const child of actor.children) {
    const below = summed(child);
    for (const name of Object.keys(sum)) sum[name] += below[name];
  }
  return sum;
}
