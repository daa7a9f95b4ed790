// Starts a page: asks who the caller is, then shows the content of the page or the login form.
import '../lib/theme.js';
import { html, render, useEffect, useState } from '../lib/preact.js';
import { loadMe, loginReason, me } from '../lib/api.js';
import { useStore } from '../lib/store.js';
import { Login } from './login.js';
import { Failure, Loading } from './parts.js';

const RETRY_MS = 2_000;

// Whether the caller may use the page: null while that is not known, `{reason}` with null for yes.
function useAdmission(caller, admits) {
  const [state, setState] = useState({ caller: null, reason: null });
  useEffect(() => {
    if (!caller || !admits) return;
    const set = (reason) => me.get() === caller && setState({ caller, reason });
    // Where that cannot be asked, the page says later what it is refused.
    admits(caller).then(() => set(null), (problem) => set(problem.status === 403 ? problem.message : null));
  }, [caller]);
  if (!admits) return { reason: null };
  return state.caller === caller ? state : null;
}

function Page({ content, login, admits }) {
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
  const admission = useAdmission(caller, admits);
  if (caller && admission?.reason) return html`<${Login} ...${login} refusal=${admission.reason} />`;
  if (caller && admission) return html`<${content} />`;
  if (reason !== null) return html`<${Login} ...${login} />`;
  return html`<main class="login">${problem ? html`<${Failure} problem=${problem} retry=${ask} />` : html`<${Loading} />`}</main>`;
}

// `login`: title and hint of the login form. `admits(caller)` fails for a caller whom the broker refuses the page.
export function start(content, login = {}, admits = null) {
  const app = document.getElementById('app');
  app.replaceChildren();
  render(html`<${Page} content=${content} login=${login} admits=${admits} />`, app);
}
