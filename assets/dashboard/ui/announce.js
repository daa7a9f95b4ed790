// One polite live region: what an action did, for readers of the screen and for those who listen.
import { html, useEffect } from '../lib/preact.js';
import { createStore, useStore } from '../lib/store.js';

const SHOWN_MS = 6_000;
const news = createStore(null);

export const announce = (text) => news.set({ text });

export function Announcements() {
  const now = useStore(news);
  useEffect(() => {
    if (!now) return undefined;
    const timer = setTimeout(() => news.set(null), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [now]);
  return html`<div class="announcements" role="status" aria-live="polite">${now && html`<p>${now.text}</p>`}</div>`;
}
