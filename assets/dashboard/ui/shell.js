// The frame of the page: header, navigation, and the view that the address names.
import { html, useEffect, useErrorBoundary, useRef, useState } from '../lib/preact.js';
import { allows, me } from '../lib/api.js';
import { visible } from '../lib/format.js';
import { liveState, polling } from '../lib/live.js';
import { go, link, useRoute } from '../lib/router.js';
import { useStore } from '../lib/store.js';
import { VIEWS } from '../views/index.js';
import { Announcements } from './announce.js';
import { DialogHost } from './dialog.js';
import { Brand, KeyOfCaller, Live, Project, ThemeSwitch } from './header.js';
import { useShortcuts } from './keys.js';
import { Empty } from './parts.js';

const isVisible = ({ scope }) => allows(scope);

export function Shell() {
  const route = useRoute();
  const main = useRef(null);
  const [isMenuOpen, setMenuOpen] = useState(false);
  const showShortcuts = useShortcuts([
    ...VIEWS.filter(isVisible).map(({ key, title, name }) => ({ keys: ['g', key], title, run: () => go(link(name)) })),
    { keys: ['/'], title: 'Search in this view', run: () => document.querySelector('[data-search]')?.focus() },
  ]);
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
    <${Header} isMenuOpen=${isMenuOpen} toggleMenu=${() => setMenuOpen(!isMenuOpen)} showShortcuts=${showShortcuts} />
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

function Header({ isMenuOpen, toggleMenu, showShortcuts }) {
  const [stream, polls] = [useStore(liveState), useStore(polling)];
  return html`<header class="top">
    <button type="button" class="menu quiet" aria-expanded=${String(isMenuOpen)} aria-controls="navigation" onClick=${toggleMenu}>
      <svg viewBox="0 0 16 16" class="icon" aria-hidden="true"><path d="M2 4h12M2 8h12M2 12h12" /></svg>
      <span class="visually-hidden">Menu</span></button>
    <${Brand} href=${link('overview')}>mcp-broker<//>
    <${Project} />
    <span class="spacer" />
    <${Live} state=${stream === 'off' && polls && !document.hidden ? 'polled' : stream} />
    <${ThemeSwitch} />
    <button type="button" class="quiet" aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)" onClick=${showShortcuts}>?</button>
    <${KeyOfCaller} />
  </header>`;
}

function Navigation({ current, isOpen }) {
  const groups = Map.groupBy(VIEWS.filter(isVisible), ({ group }) => group);
  return html`<nav id="navigation" aria-label="Views" class=${isOpen ? 'open' : ''}>${[...groups].map(([group, views]) => html`<div>
    <h2>${group}</h2><ul>${views.map(({ name, title }) => html`<li><a href=${link(name)}
      aria-current=${name === current ? 'page' : undefined}>${title}</a></li>`)}</ul></div>`)}</nav>`;
}
