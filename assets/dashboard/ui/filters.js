// The filter above a list. What is chosen goes into the address at once; typing goes there after a pause.
import { html, useEffect, useRef, useState } from '../lib/preact.js';
import { go, linkHere, useRoute } from '../lib/router.js';

const TYPING_PAUSE_MS = 250;
// Fields that a narrow screen shows.
const ALWAYS_SHOWN = 2;

// `fields`: `{name, label, type: 'search' | 'text' | 'select' | 'time', options?: [[value, label]], hint?}`.
export function Filters({ fields, children }) {
  const { params } = useRoute();
  const [isOpen, setOpen] = useState(false);
  const isSet = fields.some(({ name }) => params[name]);
  const cleared = Object.fromEntries(fields.map(({ name }) => [name, null]));
  // On a narrow screen the rest is behind a button, unless it is set.
  const unset = fields.slice(ALWAYS_SHOWN).filter(({ name }) => !params[name]);
  const more = unset.length > 1 ? unset.length : 0;
  return html`<form class=${`filters${isOpen ? ' open' : ''}`} role="search" onSubmit=${(event) => event.preventDefault()}>
    ${fields.map((field) => html`<label key=${field.name} class=${more && unset.includes(field) ? 'more' : ''}><span>${field.label}</span><${Field} ...${field}
      value=${params[field.name] ?? ''} /></label>`)}
    ${more > 0 && html`<button type="button" class="quiet toggle" aria-expanded=${String(isOpen)} onClick=${() => setOpen(!isOpen)}>${isOpen ? 'Fewer filters'
      : `${more} more filters`}</button>`}${isSet && html`<a class="button quiet" href=${linkHere(cleared)}>Clear</a>`}${children}</form>`;
}

function Field({ name, type, options, hint, value }) {
  const [text, setText] = useState(value);
  const timer = useRef(0);
  // The address may change by other ways than typing.
  useEffect(() => {
    if (!timer.current) setText(value);
  }, [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  if (type === 'select') {
    const shown = options.some(([option]) => option === value) ? value : '';
    return html`<select value=${shown} onChange=${(event) => go(linkHere({ [name]: event.currentTarget.value }))}>
      ${options.map(([option, label]) => html`<option value=${option} selected=${option === shown}>${label}</option>`)}</select>`;
  }
  if (type === 'time') {
    return html`<input type="datetime-local" value=${value ? localValue(value) : ''} onChange=${(event) => {
      const time = event.currentTarget.value;
      go(linkHere({ [name]: time ? new Date(time).toISOString() : null }));
    }} />`;
  }
  const onInput = (event) => {
    const next = event.currentTarget.value;
    setText(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      timer.current = 0;
      go(linkHere({ [name]: next.trim() }), { replace: true });
    }, TYPING_PAUSE_MS);
  };
  return html`<input type=${type} value=${text} placeholder=${hint ?? ''} maxlength="128" autocomplete="off" spellcheck=${false}
    data-search=${type === 'search' ? '' : undefined} onInput=${onInput} />`;
}

// What an input of the type `datetime-local` wants: the local time without a zone.
function localValue(at) {
  const date = new Date(at);
  return Number.isNaN(date.getTime()) ? '' : new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
