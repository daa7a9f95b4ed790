// A stream of server-sent events that comes back by itself.
import { endLogin, refusalOf } from './api.js';

const RETRY_MS_MAX = 5_000;

// Opens the stream at `address()`, which is asked at each attempt. `onEvent(name, data)` gets each event of the `names`,
// `onOpen` and `onLost` hear of the connection, `onRefused(problem)` hears why the broker refused it. Returns a function that
// closes the stream.
export function openStream(address, names, { onEvent, onOpen, onLost, onRefused = (_problem) => {} }) {
  let source = null;
  let timer = 0;
  let retryMs = 0;
  let isClosed = false;
  const connect = () => {
    const mine = new EventSource(address());
    source = mine;
    mine.onopen = () => {
      retryMs = 0;
      onOpen();
    };
    mine.onerror = () => {
      onLost();
      // A refusal closes the source for good; a broken connection is tried again by the browser.
      if (mine.readyState === EventSource.CLOSED && !isClosed) retry();
    };
    for (const name of names) mine.addEventListener(name, (event) => onEvent(name, parse(event.data)));
  };
  const retry = () => {
    retryMs = Math.min(RETRY_MS_MAX, retryMs * 2 || 500);
    timer = setTimeout(async () => {
      // The answer tells a key that was revoked from a broker that is away.
      const problem = await refusalOf(address());
      if (isClosed) return;
      if (problem?.status === 401) return endLogin('The key is no longer valid. Log in again.');
      if (problem && problem.status !== 0) onRefused(problem);
      if (!isClosed) connect();
    }, retryMs);
  };
  connect();
  return () => {
    isClosed = true;
    clearTimeout(timer);
    source.close();
  };
}

function parse(text) {
  try { return JSON.parse(text); } catch { return {}; }
}
