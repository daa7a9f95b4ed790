// The client of the REST API: every request of the page goes through `call`, every refusal becomes a `Problem`.
import { createStore } from './store.js';
import { currentRoute } from './router.js';

// Relative to this file, so that a path prefix of a proxy stays.
const BASE = new URL('../../api/v1/', import.meta.url);
const TIMEOUT_MS = 20_000;

// What `GET me` says of the caller; null until it is known or after the end of the login.
export const me = createStore(null);
// Why the login form is shown: null, or a sentence.
export const loginReason = createStore(null);
// The person in whose name the page acts, where the key does not say it; null for none.
export const actsAs = createStore(null);

class Problem extends Error {
  constructor(status, answer) {
    const { code = 'unavailable', detail, title, retry_after_ms: retryAfterMs } = answer ?? {};
    super(detail || title || `the broker answered ${status}`);
    this.status = status;
    this.code = code;
    this.retryAfterMs = retryAfterMs ?? null;
    this.answer = answer ?? {};
  }
}

export function apiUrl(path, query = {}) {
  const url = new URL(path, BASE);
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== '') url.searchParams.set(name, value);
  }
  return url;
}

// The project whose data the page shows, if it is not that of the key.
export const chosenProject = () => currentRoute().params.project ?? null;

/**
 * Sends a request and returns the parsed answer; null for an answer without a body. One that is the last of a page outlives
 * it.
 * @template {string} M
 * @template {string} P
 * @param {M} method
 * @param {P & KnownPath<M, P>} path
 * @param {{ query?: QueryOf<M, P>, body?: BodyOf<M, P>, signal?: AbortSignal, project?: string | null,
 *   headers?: Record<string, string>, isLast?: boolean }} [options]
 * @returns {Promise<AnswerOf<M, P>>}
 */
export async function call(method, path, { query, body, signal, project = chosenProject(), headers: more = {},
  isLast = false } = {}) {
  const headers = { Accept: 'application/json', ...more };
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  if (project) headers['X-Project-ID'] = project;
  if (actsAs.get()) headers['X-Human'] = inUtf8(actsAs.get());
  const token = me.get()?.csrf_token;
  if (method !== 'GET' && token) headers['X-CSRF-Token'] = token;
  let response;
  try {
    response = await fetch(apiUrl(path, query), { method, headers, cache: 'no-store', keepalive: isLast,
      body: body === undefined ? undefined : JSON.stringify(body), signal: withTimeout(signal) });
  } catch (error) {
    if (signal?.aborted) throw error;
    const detail = error.name === 'TimeoutError' ? 'The broker did not answer in time.' : 'The broker cannot be reached.';
    throw new Problem(0, { code: 'unreachable', detail });
  }
  const text = await response.text();
  const answer = parse(text);
  if (response.ok) return answer;
  const problem = new Problem(response.status, answer);
  if (response.status === 401 && path !== 'login') endLogin('The key is no longer valid. Log in again.');
  throw problem;
}

// The text as a value of a header: one character for each byte of UTF-8.
const inUtf8 = (text) => String.fromCharCode(...new TextEncoder().encode(text));

// Why the broker refuses a stream, which an EventSource does not tell; null if it does not refuse it now.
export async function refusalOf(url) {
  const abort = new AbortController();
  try {
    const response = await fetch(url, { cache: 'no-store', signal: withTimeout(abort.signal) });
    return response.ok ? null : new Problem(response.status, parse(await response.text()));
  } catch {
    return new Problem(0, { code: 'unreachable', detail: 'The broker cannot be reached.' });
  } finally {
    abort.abort();
  }
}

const withTimeout = (signal) => {
  const limit = AbortSignal.timeout(TIMEOUT_MS);
  return signal ? AbortSignal.any([signal, limit]) : limit;
};

function parse(text) {
  try { return text ? JSON.parse(text) : null; } catch { return null; }
}

/**
 * @template {string} P
 * @param {P & KnownPath<'GET', P>} path
 * @param {QueryOf<'GET', P>} [query]
 * @param {AbortSignal} [signal]
 * @returns {Promise<AnswerOf<'GET', P>>}
 */
export const get = (path, query, signal) => call('GET', path, { query, signal });

// Asks who the caller is. Without a valid key the login form is shown.
export async function loadMe() {
  const answer = await call('GET', 'me', { project: null });
  me.set(answer);
  return answer;
}

export async function logIn(key) {
  await call('POST', 'login', { body: { key }, project: null });
  loginReason.set(null);
  await loadMe();
}

export async function logOut() {
  try {
    await call('POST', 'logout', { project: null });
  } finally {
    endLogin('You are logged out.');
  }
}

export function endLogin(reason) {
  loginReason.set(me.get() ? reason : '');
  me.set(null);
}

const SCOPES = ['observer', 'answer', 'member', 'admin', 'operator'];

// Whether the caller may do what needs a scope.
export const allows = (scope) => SCOPES.indexOf(me.get()?.scope) >= SCOPES.indexOf(scope);
