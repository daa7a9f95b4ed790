// Starts the page: asks who the caller is, then shows the views or the login form.
import './lib/theme.js';
import { html, render, useEffect, useState } from './lib/preact.js';
import { loadMe, loginReason, me } from './lib/api.js';
import { useStore } from './lib/store.js';
import { Failure, Loading } from './ui/parts.js';
import { Login } from './ui/login.js';
import { Shell } from './ui/shell.js';

const RETRY_MS = 2_000;

function Page() {
  const caller = useStore(me);
  const reason = useStore(loginReason);
  const [problem, setProblem] = useState(null);
  const start = () => loadMe().then(() => setProblem(null), (cause) => {
    if (cause.status !== 401) setProblem(cause);
  });
  useEffect(() => { start(); }, []);
  useEffect(() => {
    if (!problem) return undefined;
    const timer = setTimeout(start, RETRY_MS);
    return () => clearTimeout(timer);
  }, [problem]);
  if (caller) return html`<${Shell} />`;
  if (reason !== null) return html`<${Login} />`;
  return html`<main class="login">${problem ? html`<${Failure} problem=${problem} retry=${start} />` : html`<${Loading} />`}</main>`;
}

const app = document.getElementById('app');
app.replaceChildren();
render(html`<${Page} />`, app);
