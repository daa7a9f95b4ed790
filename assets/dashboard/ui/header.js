// What the headers of the pages have in common.
import { html } from '../lib/preact.js';
import { get, logOut, me } from '../lib/api.js';
import { useResource } from '../lib/resource.js';
import { go, link, useRoute } from '../lib/router.js';
import { useStore } from '../lib/store.js';
import { theme } from '../lib/theme.js';
import { Status, Text } from './parts.js';

export const Brand = ({ href, children }) => html`<a class="brand" aria-label=${children} href=${href}><img
  src=${new URL('../icon.svg', import.meta.url)} alt="" width="20" height="20" /><span>${children}</span></a>`;

// The project whose data the page shows. An operator chooses it.
export function Project() {
  const caller = useStore(me);
  return caller.scope === 'operator' ? html`<${ProjectPicker} own=${caller.project_id} />`
    : html`<span class="project"><${Text} value=${caller.project_id} /></span>`;
}

function ProjectPicker({ own }) {
  const { view, params } = useRoute();
  const { data } = useResource('projects', (signal) => get('projects', {}, signal));
  const current = params.project ?? own;
  const ids = new Set([own, current, ...(data?.projects ?? []).map((one) => one.project_id)]);
  return html`<label class="project"><span class="visually-hidden">Project</span>
    <select value=${current} onChange=${(event) => go(link(view, null, { project: event.currentTarget.value === own
      ? '' : event.currentTarget.value }))}>${[...ids].sort().map((id) => html`<option value=${id} selected=${id === current}>${id}
      </option>`)}</select></label>`;
}

const LIVE = { live: 'Live', polled: 'Live', connecting: 'Connecting', lost: 'Reconnecting' };
const HEARS = { polled: 'The page asks again every few seconds' };

export const Live = ({ state }) => html`<span class="live" role="status" title=${HEARS[state] ?? 'Whether the page receives events as they happen'}>${
  LIVE[state] && html`<${Status} value=${state === 'polled' ? 'live' : state} label=${LIVE[state]} />`}</span>`;

const NEXT = { system: 'light', light: 'dark', dark: 'system' };

export function ThemeSwitch() {
  const now = useStore(theme);
  return html`<button type="button" class="quiet" onClick=${() => theme.set(NEXT[now])} title=${`Theme: ${now}`}
    aria-label=${`Theme: ${now}. Change to ${NEXT[now]}`}><svg viewBox="0 0 16 16" class="icon" aria-hidden="true">
      <circle cx="8" cy="8" r="5.5" /><path d="M8 2.5v11a5.5 5.5 0 0 0 0-11z" class="filled" /></svg></button>`;
}

// The key, and the way out. Without authentication there is neither.
export function KeyOfCaller() {
  const caller = useStore(me);
  return caller.auth_enabled && html`<span class="who" title=${`Key ${caller.key_id ?? ''}`}>${caller.label
    ? html`<${Text} value=${caller.label} max=${24} />` : caller.scope}</span>
    <button type="button" class="quiet" onClick=${logOut}>Log out</button>`;
}
