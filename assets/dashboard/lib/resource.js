// Loads what a view shows, and loads it again when an event says that it changed: at most once a second however many events
// come, at most for a tenth of the time where the broker needs long, and never while the page is hidden.
import { useEffect, useRef, useState } from './preact.js';
import { notePolling, useLive } from './live.js';

const INTERVAL_MS = 1_000;
const INTERVAL_MS_MAX = 10_000;
const SHARE = 10;

/**
 * `key` names what is loaded: another key loads at once. Of `topics` the events refresh the data if `concerns(event, topic)`
 * says so; `pollMs` refreshes it without events.
 * @template T
 * @param {string} key
 * @param {(signal: AbortSignal) => Promise<T>} load
 * @param {{ topics?: string[], pollMs?: number, concerns?: (event: any, topic: string) => boolean }} [options]
 * @returns {{ data: T | null, problem: any, isLoading: boolean, isStale: boolean, refresh: () => void }}
 */
export function useResource(key, load, { topics = [], pollMs = 0, concerns = () => true } = {}) {
  const [state, setState] = useState({ key: null, data: null, problem: null, isLoading: true });
  const run = useRef({ last: -INTERVAL_MS, interval: INTERVAL_MS, timer: 0, abort: null, isStale: false, load });
  run.current.load = load;

  const finish = (abort, next) => {
    if (abort.signal.aborted) return;
    run.current.abort = null;
    const took = performance.now() - run.current.last;
    run.current.interval = Math.min(INTERVAL_MS_MAX, Math.max(INTERVAL_MS, SHARE * took));
    setState(next);
    if (run.current.isStale) {
      run.current.isStale = false;
      soon.current();
    }
  };
  const now = useRef(() => {});
  now.current = () => {
    const current = run.current;
    clearTimeout(current.timer);
    current.timer = 0;
    current.last = performance.now();
    current.abort?.abort();
    const abort = new AbortController();
    current.abort = abort;
    setState((before) => ({ ...before, isLoading: true }));
    current.load(abort.signal).then(
      (data) => finish(abort, { key, data, problem: null, isLoading: false }),
      (problem) => finish(abort, (before) => ({ key, data: before.key === key ? before.data : null, problem, isLoading: false })),
    );
  };

  const soon = useRef(() => {
    const current = run.current;
    if (current.timer || document.hidden) return;
    const wait = Math.max(0, current.last + current.interval - performance.now());
    // A request that is under way is not cut short by the next event.
    current.timer = setTimeout(() => {
      current.timer = 0;
      if (current.abort) current.isStale = true;
      else requestAnimationFrame(() => now.current());
    }, wait);
  });

  useEffect(() => {
    now.current();
    return () => {
      clearTimeout(run.current.timer);
      run.current.timer = 0;
      run.current.abort?.abort();
      run.current.abort = null;
    };
  }, [key]);
  useEffect(() => {
    if (!pollMs) return undefined;
    const timer = setInterval(() => soon.current(), pollMs);
    const stopNoting = notePolling();
    return () => {
      clearInterval(timer);
      stopNoting();
    };
  }, [key, pollMs]);
  useLive(topics, (news) => {
    if (news.reload || concerns(news.event, news.topic)) soon.current();
  });
  // A view that could not be loaded tries again by itself when the broker may be back.
  useEffect(() => {
    if (!state.problem || state.isLoading || ![0, 429, 503].includes(state.problem.status)) return undefined;
    const timer = setTimeout(() => soon.current(), state.problem.retryAfterMs ?? 2_000);
    return () => clearTimeout(timer);
  }, [state.problem, state.isLoading]);
  // The data of the filter before stay until those of the new one are there.
  return { ...state, isStale: state.key !== key, refresh: () => now.current() };
}
