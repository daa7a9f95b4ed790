// The one stream of events of the page. Views name the topics they need; the stream asks for the union and is closed while
// the page is hidden. After a gap or a reconnection every listener hears `reload`.
import { useEffect, useRef } from './preact.js';
import { createStore } from './store.js';
import { allows, apiUrl, chosenProject, me } from './api.js';
import { onRoute } from './router.js';
import { openStream } from './stream.js';

const TOPICS = ['session', 'protocol', 'message', 'dead_letter', 'actor', 'audit'];

// `off`: no view needs events, or the page is hidden. `connecting`, `live`, `lost`.
export const liveState = createStore('off');

// How many parts of the page ask again and again.
export const polling = createStore(0);
export function notePolling() {
  polling.set(polling.get() + 1);
  return () => polling.set(polling.get() - 1);
}

const listeners = new Map();
let closeStream = () => {};
let opened = '';
let wasLost = false;

function wanted() {
  if (document.hidden || !me.get()) return '';
  const topics = new Set([...listeners.values()].flatMap((one) => one.topics));
  if (!allows('admin')) topics.delete('audit');
  if (!topics.size) return '';
  return JSON.stringify([TOPICS.filter((topic) => topics.has(topic)).join(','), chosenProject()]);
}

let isPlanned = false;
// Views leave and arrive in one step, and the stream changes once.
function plan() {
  if (isPlanned) return;
  isPlanned = true;
  queueMicrotask(() => {
    isPlanned = false;
    const next = wanted();
    if (next !== opened) open(next);
  });
}

function open(next) {
  closeStream();
  closeStream = () => {};
  opened = next;
  if (!next) return liveState.set('off');
  const [topics, project] = JSON.parse(next);
  liveState.set(wasLost ? 'lost' : 'connecting');
  closeStream = openStream(() => apiUrl('events', { topics, project }), [...TOPICS, 'gap'], {
    onEvent: (name, event) => tell(name === 'gap' ? { reload: true } : { topic: name, event }),
    onOpen: () => {
      liveState.set('live');
      if (wasLost) tell({ reload: true });
      wasLost = false;
    },
    onLost: () => {
      wasLost = true;
      liveState.set('lost');
    },
  });
}

function tell(news) {
  for (const { topics, listener } of listeners.values()) {
    if (news.reload || topics.includes(news.topic)) listener(news);
  }
}

document.addEventListener('visibilitychange', () => {
  plan();
  if (!document.hidden) tell({ reload: true });
});
me.subscribe(plan);
onRoute(plan);

// Calls `listener` with `{topic, event}` or `{reload: true}` while the component is shown.
export function useLive(topics, listener) {
  const latest = useRef(listener);
  latest.current = listener;
  const names = topics.join();
  useEffect(() => {
    if (!names) return undefined;
    const id = Symbol(names);
    listeners.set(id, { topics: names.split(','), listener: (news) => latest.current(news) });
    plan();
    return () => {
      listeners.delete(id);
      plan();
    };
  }, [names]);
}
