// Starts a page: asks who the caller is, then shows the content of the page or the login form.
import '../lib/theme.js';
import { html, render, useEffect, useState } from '../lib/preact.js';
import { loadMe, loginReason, me } from '../lib/api.js';
import { useStore } from '../lib/store.js';
import { Login } from './login.js';
import { Failure, Loading } from './parts.js';

const RETRY_MS = 2_000;

function Page({ content, login }) {
  const caller = useStore(me);
  const reason = useStore(loginReason);
  const [problem, setProblem] = useState(null);
  const ask = () => loadMe().then(() => setProblem(null), (cause) => {
    if (cause.status !== 401) setProblem(cause);
  });
  useEffect(() => { ask(); }, []);
  useEffect(() => {
    if (!problem) return undefined;
    const timer = setTimeout(ask, RETRY_MS);
    return () => clearTimeout(timer);
  }, [problem]);
  if (caller) return html`<${content} />`;
  if (reason !== null) return html`<${Login} ...${login} />`;
  return html`<main class="login">${problem ? html`<${Failure} problem=${problem} retry=${ask} />` : html`<${Loading} />`}</main>`;
}

// `login`: title and hint of the login form.
export function start(content, login = {}) {
  const app = document.getElementById('app');
  app.replaceChildren();
  render(html`<${Page} content=${content} login=${login} />`, app);
}
