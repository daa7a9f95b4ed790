// Dialogs: an action asks once, runs, and says what it did.
import { html, useLayoutEffect, useRef, useState } from '../lib/preact.js';
import { createStore, useStore } from '../lib/store.js';
import { visible } from '../lib/format.js';
import { announce } from './announce.js';

const shown = createStore(null);

export const openDialog = (render) => shown.set({ render });
const closeDialog = () => shown.set(null);
export const isDialogOpen = () => shown.get() !== null;

// The place of the dialog in the page. The element keeps the focus inside and closes at Escape.
export function DialogHost() {
  const now = useStore(shown);
  const element = useRef(null);
  const opener = useRef(null);
  useLayoutEffect(() => {
    if (!now) return;
    if (!element.current.open) {
      opener.current = document.activeElement;
      element.current.showModal();
    }
  }, [now]);
  const onClose = () => {
    closeDialog();
    if (opener.current?.isConnected) opener.current.focus();
  };
  if (!now) return null;
  return html`<dialog ref=${element} onClose=${onClose} aria-labelledby="dialog-title">${now.render(() => element.current?.close())}
  </dialog>`;
}

/**
 * Asks before an action. `run({progress, form})` does it and returns what the dialog then shows: a sentence or an element.
 * `progress(done, total, text)` draws a bar; `fields` is what the form asks for.
 * @param {{ title: string, text?: any, verb: string, isDangerous?: boolean, fields?: any, run: (asked: any) => any, after?: () => void }} asked
 */
export function ask({ title, text, verb, isDangerous = false, fields = null, run, after }) {
  openDialog((close) => html`<${Question} ...${{ title, text, verb, isDangerous, fields, run, after, close }} />`);
}

const FAILURES_MAX = 20;

// Where a payload does not fit its schema, and why.
function Failures({ failures }) {
  if (!Array.isArray(failures) || !failures.length) return null;
  return html`<ul class="failures">${failures.slice(0, FAILURES_MAX).map(({ path, reason }) => html`<li><code>${visible(String(path || '/'), 200)}</code>
    ${' '}${visible(String(reason), 300)}</li>`)}${failures.length > FAILURES_MAX && html`<li>and ${failures.length - FAILURES_MAX} more</li>`}</ul>`;
}

function Question({ title, text, verb, isDangerous, fields, run, after, close }) {
  const [state, setState] = useState({ step: 'asked' });
  const [progress, setProgress] = useState(null);
  const abort = useRef(null);
  const submit = async (event) => {
    event.preventDefault();
    const form = Object.fromEntries(new FormData(event.currentTarget));
    abort.current = new AbortController();
    setState({ step: 'running' });
    try {
      const said = await run({ form, signal: abort.current.signal,
        progress: (done, total, words) => setProgress({ done, total, words }) });
      setState({ step: 'done', said });
      if (typeof said === 'string') announce(said);
      after?.();
    } catch (problem) {
      setState({ step: 'asked', problem });
    }
  };
  const isRunning = state.step === 'running';
  const frame = useRef(null);
  useLayoutEffect(() => {
    if (state.step === 'done') frame.current.querySelector('footer button').focus();
  }, [state.step]);
  return html`<form ref=${frame} onSubmit=${submit}>
    <h2 id="dialog-title">${title}</h2>
    ${state.step === 'done' ? html`<div class="said">${state.said}</div>` : html`<div>${text}</div>${fields}`}
    ${isRunning && progress && html`<p><progress max=${progress.total ?? undefined} value=${progress.total ? progress.done : undefined}
      aria-label=${title} /> ${progress.words}</p>`}
    ${state.problem && html`<div class="notice bad" role="alert"><div><p>${visible(state.problem.message, 500)}</p>
      <${Failures} failures=${state.problem.answer?.failures} /></div></div>`}
    <footer>
      ${state.step === 'done'
        ? html`<button type="button" class="primary" onClick=${close} key="close">Close</button>`
        : html`<button type="button" key="cancel" onClick=${() => { abort.current?.abort(); close(); }}>
            ${isRunning ? 'Stop' : 'Cancel'}</button>
          <button type="submit" key="run" class=${isDangerous ? 'danger' : 'primary'} disabled=${isRunning}>
            ${isRunning ? 'Working…' : verb}</button>`}
    </footer>
  </form>`;
}
