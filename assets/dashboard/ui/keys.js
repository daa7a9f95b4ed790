// Shortcuts of the keyboard. They can be switched off, because some ways of typing press single letters by accident.
import { html, useEffect } from '../lib/preact.js';
import { createSetting, useStore } from '../lib/store.js';
import { go, link } from '../lib/router.js';
import { VIEWS } from '../views/index.js';
import { isDialogOpen, openDialog } from './dialog.js';

const SEQUENCE_MS = 1_500;
export const shortcuts = createSetting('mcp-broker-shortcuts', 'on');

export function useShortcuts(isVisible) {
  useEffect(() => {
    let prefixAt = -SEQUENCE_MS;
    const onKey = (event) => {
      if (shortcuts.get() !== 'on' || event.ctrlKey || event.metaKey || event.altKey || isDialogOpen()) return;
      if (event.target.closest('input, textarea, select, [contenteditable]')) {
        if (event.key === 'Escape') event.target.blur();
        return;
      }
      const isSecond = event.timeStamp - prefixAt < SEQUENCE_MS;
      prefixAt = -SEQUENCE_MS;
      const view = isSecond && VIEWS.find((one) => one.key === event.key && isVisible(one));
      if (view) go(link(view.name));
      else if (event.key === 'g') prefixAt = event.timeStamp;
      else if (event.key === '/') document.querySelector('[data-search]')?.focus();
      else if (event.key === '?') showShortcuts(isVisible);
      else return;
      event.preventDefault();
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, []);
}

export function showShortcuts(isVisible) {
  openDialog((close) => html`<${Shortcuts} close=${close} isVisible=${isVisible} />`);
}

function Shortcuts({ close, isVisible }) {
  const state = useStore(shortcuts);
  const keys = [...VIEWS.filter(isVisible).map(({ key, title }) => [['g', key], title]), [['/'], 'Search in this view'],
    [['?'], 'This list'], [['Esc'], 'Leave a field, close a dialog']];
  return html`<div><h2 id="dialog-title">Keyboard</h2>
    <dl class="keys">${keys.map(([pressed, what]) => html`<div><dt>${pressed.map((one) => html`<kbd>${one}</kbd> `)}</dt>
      <dd>${what}</dd></div>`)}</dl>
    <p><label><input type="checkbox" checked=${state === 'on'}
      onChange=${(event) => shortcuts.set(event.currentTarget.checked ? 'on' : 'off')} /> Shortcuts with single letters</label></p>
    <footer><button type="button" class="primary" onClick=${close}>Close</button></footer></div>`;
}
