// Shortcuts of the keyboard. They can be switched off, because some ways of typing press single letters by accident.
import { html, useEffect, useRef } from '../lib/preact.js';
import { createSetting, useStore } from '../lib/store.js';
import { isDialogOpen, openDialog } from './dialog.js';

const SEQUENCE_MS = 1_500;
const PREFIX = 'g';
const HELD_MS = 1_000;
export const shortcuts = createSetting('mcp-broker-shortcuts', 'on');

let heldUntil = 0;
// Keys do nothing for a second: what is typed behind an answer that was sent is none of them.
export const holdShortcuts = () => { heldUntil = performance.now() + HELD_MS; };

// `bindings`: `{keys: a key, or `g` and a key, title, run}`. One without a title stands in no list.
export function useShortcuts(bindings) {
  const latest = useRef(bindings);
  latest.current = [...bindings, { keys: ['?'], title: 'This list', run: () => showShortcuts(latest.current) }];
  useEffect(() => {
    let prefixAt = -SEQUENCE_MS;
    const onKey = (event) => {
      if (shortcuts.get() !== 'on' || event.ctrlKey || event.metaKey || event.altKey || isDialogOpen()) return;
      if (event.target.closest(WRITABLE)) {
        if (event.key === 'Escape') event.target.blur();
        return;
      }
      if (event.timeStamp < heldUntil) return;
      const isSecond = event.timeStamp - prefixAt < SEQUENCE_MS;
      prefixAt = -SEQUENCE_MS;
      const pressed = isSecond ? [PREFIX, event.key] : [event.key];
      const found = latest.current.find(({ keys }) => keys.join(' ') === pressed.join(' '))
        ?? latest.current.find(({ keys }) => keys.length === 1 && keys[0] === event.key);
      if (found) found.run();
      else if (event.key === PREFIX) prefixAt = event.timeStamp;
      else return;
      event.preventDefault();
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, []);
  return () => showShortcuts(latest.current);
}

// Fields in which letters are text.
const WRITABLE = 'input:not([type=radio], [type=checkbox]), textarea, select, [contenteditable]';

function showShortcuts(bindings) {
  openDialog((close) => html`<${Shortcuts} close=${close} bindings=${bindings.filter(({ title }) => title)} />`);
}

function Shortcuts({ close, bindings }) {
  const state = useStore(shortcuts);
  const all = [...bindings.map(({ keys, title }) => [keys, title]), [['Esc'], 'Leave a field, close a dialog']];
  return html`<div><h2 id="dialog-title">Keyboard</h2>
    <dl class="keys">${all.map(([pressed, what]) => html`<div><dt>${pressed.map((one) => html`<kbd>${one}</kbd> `)}</dt>
      <dd>${what}</dd></div>`)}</dl>
    <p><label><input type="checkbox" checked=${state === 'on'}
      onChange=${(event) => shortcuts.set(event.currentTarget.checked ? 'on' : 'off')} /> Shortcuts with single letters</label></p>
    <footer><button type="button" class="primary" onClick=${close}>Close</button></footer></div>`;
}
