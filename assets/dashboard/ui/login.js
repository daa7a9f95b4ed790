// The login form. The key goes to the broker once and comes back as a cookie that scripts cannot read.
import { html, useEffect, useRef, useState } from '../lib/preact.js';
import { logIn, loginReason } from '../lib/api.js';
import { useStore } from '../lib/store.js';
import { visible } from '../lib/format.js';

export function Login({ title = 'mcp-broker', hint = 'A key of a project or the admin key. Observers see, administrators act.', refusal = null }) {
  const reason = useStore(loginReason);
  const [state, setState] = useState({ isRunning: false, problem: null });
  const field = useRef(null);
  useEffect(() => field.current.focus(), []);
  const submit = async (event) => {
    event.preventDefault();
    const key = field.current.value.trim();
    if (!key) return setState({ isRunning: false, problem: new Error('Enter a key.') });
    setState({ isRunning: true, problem: null });
    try {
      await logIn(key);
      // The form stays for a key that the page does not take.
      setState({ isRunning: false, problem: null });
    } catch (problem) {
      setState({ isRunning: false, problem });
      field.current?.select();
    }
  };
  return html`<main class="login"><form onSubmit=${submit} class="panel">
    <h1><img src=${new URL('../icon.svg', import.meta.url)} alt="" width="28" height="28" /> ${title}</h1>
    ${reason && html`<div class="notice" role="status"><p>${reason}</p></div>`}
    ${refusal && !state.isRunning && html`<div class="notice bad" role="alert"><p>${visible(refusal, 300)}</p></div>`}
    <label><span>API key</span><input ref=${field} type="password" name="key" autocomplete="current-password" spellcheck=${false}
      aria-describedby="key-hint" aria-invalid=${state.problem ? 'true' : undefined} /></label>
    <p id="key-hint" class="faint">${hint}</p>
    ${state.problem && html`<div class="notice bad" role="alert"><p>${visible(state.problem.message, 300)}</p></div>`}
    <button type="submit" class="primary" disabled=${state.isRunning}>${state.isRunning ? 'Logging in…' : 'Log in'}</button>
  </form></main>`;
}
