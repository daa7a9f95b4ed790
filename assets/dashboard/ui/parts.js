// Small parts that every view uses: texts of clients, ids, times, states, and what is shown instead of data.
import { html, useEffect, useState } from '../lib/preact.js';
import { ago, exactTime, localTime, visible, visibleLines, words } from '../lib/format.js';
import { announce } from './announce.js';

// A text that a client chose. It is isolated, so that it cannot turn the direction of what follows.
export const Text = ({ value, max }) => html`<bdi>${visible(String(value ?? '–'), max)}</bdi>`;

async function copy(value, what) {
  try {
    await navigator.clipboard.writeText(value);
    announce(`${what} copied.`);
  } catch {
    announce(`The browser does not allow copying. Select the ${what} by hand.`);
  }
}

const CopyIcon = () => html`<svg viewBox="0 0 16 16" aria-hidden="true" class="icon"><rect x="5.5" y="5.5" width="8"
  height="8" rx="1.5" /><path d="M3.5 10.5h-1v-8h8v1" /></svg>`;

export const CopyButton = ({ value, what }) => html`<button type="button" class="quiet copy" aria-label=${`Copy ${what}`}
  title=${`Copy ${what}`} onClick=${() => copy(value, what)}><${CopyIcon} /></button>`;

// An id, cut to what tells it apart, with a button that copies all of it.
export function Id({ value, what = 'id', href }) {
  // The first half of a UUID is the time at which it was made.
  const text = value.length > 18 ? `${value.slice(0, 18)}…` : value;
  return html`<span class="id">${href
    ? html`<a href=${href} title=${value}>${text}</a>`
    : html`<code title=${value}>${text}</code>`}<${CopyButton} value=${value} what=${what} /></span>`;
}

// A time in the zone of the viewer, the exact instant on hover.
export function Time({ at, relative = false }) {
  const [, tick] = useState(0);
  useEffect(() => {
    if (!relative) return undefined;
    const timer = setInterval(() => document.hidden || tick((n) => n + 1), 1_000);
    return () => clearInterval(timer);
  }, [relative]);
  if (!at) return html`<span class="faint">never</span>`;
  return html`<time datetime=${at} title=${exactTime(at)}>${relative ? ago(at) : localTime(at)}</time>`;
}

// Shape and word say what the colour says.
const SHAPES = {
  good: html`<circle cx="5" cy="5" r="4" />`,
  warn: html`<path d="M5 .8 9.6 9H.4z" />`,
  bad: html`<path d="M1.5 1.5h7v7h-7z" />`,
  busy: html`<path d="M5 .6 9.4 5 5 9.4.6 5z" />`,
  idle: html`<circle cx="5" cy="5" r="3.2" class="hollow" />`,
};
const KINDS = {
  healthy: 'good', degraded: 'warn', unhealthy: 'bad', active: 'good', stale: 'warn', disconnected: 'idle', running: 'good',
  restarting: 'warn', gave_up: 'bad', finished: 'idle', queued: 'busy', delivered: 'busy', acknowledged: 'good',
  expired: 'bad', dead_lettered: 'bad', retiring: 'warn', revoked: 'idle', done: 'good', refused: 'bad', live: 'good',
  connecting: 'busy', lost: 'bad', off: 'idle', deleted: 'idle', released: 'warn', redriven: 'busy', accepted: 'good',
  ready: 'good', handover: 'good', starting: 'busy', stopping: 'busy', backoff: 'warn', failed: 'bad', disabled: 'idle',
};

export const Status = ({ value, kind, label }) => html`<span class=${`status ${kind ?? KINDS[value] ?? 'idle'}`}><svg
  viewBox="0 0 10 10" aria-hidden="true">${SHAPES[kind ?? KINDS[value] ?? 'idle']}</svg>${label ?? words(value)}</span>`;

export const Badge = ({ children }) => html`<span class="badge">${children}</span>`;

// A list of words of a client, the first ones only.
export function Words({ values, max = 4 }) {
  if (!values?.length) return html`<span class="faint">none</span>`;
  return html`<span class="badges">${values.slice(0, max).map((one) => html`<${Badge}><${Text} value=${one} max=${40} /><//>`)}
    ${values.length > max && html`<span class="faint">and ${values.length - max} more</span>`}</span>`;
}

export const Loading = ({ what = 'data' }) => html`<div class="loading" role="status">
  <span class="visually-hidden">Loading ${what}…</span><div class="bar" /><div class="bar" /><div class="bar" /></div>`;

export const Empty = ({ title, children }) => html`<div class="empty"><p class="title">${title}</p>
  ${children && html`<p>${children}</p>`}</div>`;

// A refusal, or a broker that is away. Data that was loaded before stays on the page beside it.
export function Failure({ problem, retry }) {
  const title = problem.status === 403 ? 'Your key does not allow this.' : problem.status === 404
    ? 'This does not exist.' : problem.code === 'unreachable' ? 'No connection.' : 'This could not be loaded.';
  return html`<div class="notice bad" role="alert"><p><strong>${title}</strong> ${visible(problem.message, 500)}</p>
    ${retry && problem.status !== 403 && html`<button type="button" onClick=${retry}>Try again</button>`}</div>`;
}

// Some replicas did not answer.
const Partial = ({ replicas }) => !!replicas?.length && html`<div class="notice warn" role="status">
  <p><strong>Incomplete.</strong> ${replicas.length === 1 ? 'One replica' : `${replicas.length} replicas`} did not answer
  within a second: ${replicas.map((one) => html`<code>${one}</code> `)}</p></div>`;

// What a view shows for a resource: data, with notices, or what stands in its place.
export function Loaded({ resource, what, children }) {
  const { data, problem, isStale, refresh } = resource;
  return html`<div class="loaded" aria-busy=${isStale ? 'true' : undefined}>
    ${problem && html`<${Failure} problem=${problem} retry=${refresh} />`}
    ${data ? html`<${Partial} replicas=${data.partial} />${children(data)}` : !problem && html`<${Loading} what=${what} />`}</div>`;
}

// Names and values of one thing.
export const Facts = ({ items }) => html`<dl class="facts">${items.filter(Boolean).map(([name, value]) => html`<div>
  <dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;

export const Panel = ({ title, actions, children, class: extra = '' }) => html`<section class=${`panel ${extra}`}>
  ${title && html`<header><h2>${title}</h2>${actions}</header>`}${children}</section>`;

// JSON as text, with lines.
export const Json = ({ value, label }) => html`<pre class="json" tabindex="0" aria-label=${label}>${
  visibleLines(JSON.stringify(value, null, 2) ?? '')}</pre>`;
