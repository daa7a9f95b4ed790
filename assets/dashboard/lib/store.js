// A value that parts of the page share, and the hook that renders a component again when it changes.
import { useLayoutEffect, useState } from './preact.js';

export function createStore(initial) {
  let value = initial;
  const listeners = new Set();
  return {
    get: () => value,
    set(next) {
      if (Object.is(next, value)) return;
      value = next;
      for (const listener of [...listeners]) listener(value);
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

export function useStore(store) {
  const [value, setValue] = useState(store.get());
  useLayoutEffect(() => {
    setValue(() => store.get());
    return store.subscribe((next) => setValue(() => next));
  }, [store]);
  return value;
}

// A setting of this browser. Storage may be forbidden or full; the page works without it.
export function createSetting(name, initial) {
  let saved = null;
  try { saved = localStorage.getItem(name); } catch { /* The initial value holds. */ }
  const store = createStore(saved ?? initial);
  store.subscribe((value) => {
    try { localStorage.setItem(name, value); } catch { /* The value holds until the page is closed. */ }
  });
  return store;
}
