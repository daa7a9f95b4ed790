// The frame of the page: header, navigation, and the view that the address names.
import { html, useEffect, useErrorBoundary, useRef, useState } from '../lib/preact.js';
import { allows, get, logOut, me } from '../lib/api.js';
import { visible } from '../lib/format.js';
import { liveState } from '../lib/live.js';
import { useResource } from '../lib/resource.js';
import { go, link, useRoute } from '../lib/router.js';
import { useStore } from '../lib/store.js';
import { theme } from '../lib/theme.js';
import { VIEWS } from '../views/index.js';
import { Announcements } from './announce.js';
import { DialogHost } from './dialog.js';
import { showShortcuts, useShortcuts } from './keys.js';
import { Empty, Status, Text } from './parts.js';

const isVisible = ({ scope }) => allows(scope);

export function Shell() {
  const route = useRoute();
  const main = useRef(null);
  const [isMenuOpen, setMenuOpen] = useState(false);
  useShortcuts(isVisible);
  const found = VIEWS.find(({ name }) => name === route.view);
  const place = `${route.view}/${route.item ?? ''}/${route.part ?? ''}`;
  useEffect(() => {
    document.title = found ? `${route.item ? `${visible(route.item, 60)} – ` : ''}${found.title} – mcp-broker` : 'mcp-broker';
    setMenuOpen(false);
  }, [place]);
  // Readers of the screen hear of a new view when its heading gets the focus; the first one has it by loading the page.
  const isFirst = useRef(true);
  useEffect(() => {
    if (!isFirst.current) main.current.focus({ preventScroll: true });
    isFirst.current = false;
    scrollTo(0, 0);
  }, [place]);
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); main.current.focus(); }}>Skip to the
    content</a>
    <${Header} isMenuOpen=${isMenuOpen} toggleMenu=${() => setMenuOpen(!isMenuOpen)} />
    <${Navigation} current=${route.view} isOpen=${isMenuOpen} />
    <main id="main" ref=${main} tabindex="-1">${found
      ? html`<${Guarded} key=${place + (route.params.project ?? '')} view=${found} route=${route} />`
      : html`<h1>No such view</h1><${Empty} title="The address names no view of this page."><a href=${link('overview')}>Go to the
        overview</a><//>`}</main>
    <${Announcements} /><${DialogHost} />`;
}

// An error in a view leaves the frame usable.
function Guarded({ view, route }) {
  const [error] = useErrorBoundary((cause) => console.error(cause));
  if (error) {
    return html`<h1>${view.title}</h1><div class="notice bad" role="alert"><p><strong>This view failed.</strong> ${error.message}</p>
      <button type="button" onClick=${() => location.reload()}>Load the page again</button></div>`;
  }
  if (!allows(view.scope)) {
    return html`<h1>${view.title}</h1><${Empty} title="Your key does not allow this view.">It needs the scope
      ${' '}<code>${view.scope}</code>, yours is <code>${me.get()?.scope}</code>.<//>`;
  }
  return html`<${view.view} route=${route} title=${view.title} />`;
}

const LIVE = { live: 'Live', connecting: 'Connecting', lost: 'Reconnecting' };

function Header({ isMenuOpen, toggleMenu }) {
  const caller = useStore(me);
  const live = useStore(liveState);
  return html`<header class="top">
    <button type="button" class="menu quiet" aria-expanded=${String(isMenuOpen)} aria-controls="navigation" onClick=${toggleMenu}>
      <svg viewBox="0 0 16 16" class="icon" aria-hidden="true"><path d="M2 4h12M2 8h12M2 12h12" /></svg>
      <span class="visually-hidden">Menu</span></button>
    <a class="brand" aria-label="mcp-broker" href=${link('overview')}><img src=${new URL('../icon.svg', import.meta.url)} alt="" width="20" height="20" />
      <span>mcp-broker</span></a>
    ${caller.scope === 'operator' && html`<${ProjectPicker} own=${caller.project_id} />`}
    ${caller.scope !== 'operator' && html`<span class="project"><${Text} value=${caller.project_id} /></span>`}
    <span class="spacer" />
    <span class="live" role="status" title="Whether the page hears of events as they happen">${LIVE[live]
      && html`<${Status} value=${live} label=${LIVE[live]} />`}</span>
    <${ThemeSwitch} />
    <button type="button" class="quiet" aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)"
      onClick=${() => showShortcuts(isVisible)}>?</button>
    ${caller.auth_enabled && html`<span class="who" title=${`Key ${caller.key_id ?? ''}`}>${caller.label
      ? html`<${Text} value=${caller.label} max=${24} />` : caller.scope}</span>
      <button type="button" class="quiet" onClick=${logOut}>Log out</button>`}
  </header>`;
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

const NEXT = { system: 'light', light: 'dark', dark: 'system' };

function ThemeSwitch() {
  const now = useStore(theme);
  return html`<button type="button" class="quiet" onClick=${() => theme.set(NEXT[now])} title=${`Theme: ${now}`}
    aria-label=${`Theme: ${now}. Change to ${NEXT[now]}`}><svg viewBox="0 0 16 16" class="icon" aria-hidden="true">
      <circle cx="8" cy="8" r="5.5" /><path d="M8 2.5v11a5.5 5.5 0 0 0 0-11z" class="filled" /></svg></button>`;
}

function Navigation({ current, isOpen }) {
  const groups = Map.groupBy(VIEWS.filter(isVisible), ({ group }) => group);
  return html`<nav id="navigation" aria-label="Views" class=${isOpen ? 'open' : ''}>${[...groups].map(([group, views]) => html`<div>
    <h2>${group}</h2><ul>${views.map(({ name, title }) => html`<li><a href=${link(name)}
      aria-current=${name === current ? 'page' : undefined}>${title}</a></li>`)}</ul></div>`)}</nav>`;
}
