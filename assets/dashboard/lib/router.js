// The place in the page is the fragment of its address: #/VIEW/ITEM?PARAMETERS. It carries filter, sort, page and selected
// item, so that a link shows another person the same.
import { createStore, useStore } from './store.js';

// Stays when the view changes.
const KEPT = 'project';

function parse(fragment) {
  const [path, query = ''] = fragment.replace(/^#?\/?/, '').split('?', 2);
  const parts = path.split('/').map(decode);
  return { view: parts[0] || 'overview', item: parts[1] || null, part: parts[2] || null,
    params: Object.fromEntries(new URLSearchParams(query)) };
}

function decode(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

const route = createStore(parse(location.hash));
addEventListener('hashchange', () => route.set(parse(location.hash)));

export const useRoute = () => useStore(route);
export const currentRoute = () => route.get();
export const onRoute = (listener) => route.subscribe(listener);

// The address of a place. Parameters that are empty are left out.
export function link(view, item = null, params = {}, part = null) {
  const kept = route.get().params[KEPT];
  const all = new URLSearchParams();
  for (const [name, value] of Object.entries({ ...(kept ? { [KEPT]: kept } : {}), ...params })) {
    if (value !== null && value !== undefined && value !== '' && value !== false) all.set(name, value);
  }
  const path = [view, item, part].filter((one) => one !== null).map(encodeURIComponent).join('/');
  const query = all.toString();
  return `#/${path}${query ? `?${query}` : ''}`;
}

// The address of this place with other parameters. A change of a filter or the order begins at the first page.
export function linkHere(changes) {
  const { view, item, part, params } = route.get();
  return link(view, item, { ...params, cursor: null, ...changes }, part);
}

export function go(address, { replace = false } = {}) {
  if (replace) {
    history.replaceState(null, '', address);
    route.set(parse(location.hash));
  } else {
    location.hash = address;
  }
}
