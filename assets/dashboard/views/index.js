// All views. A new view is a file in this folder and a line here.
import { Overview } from './overview.js';
import { Sessions } from './sessions.js';

// `name` is in the address, `key` follows `g`, `scope` is what the caller needs, `group` is the heading in the navigation.
export const VIEWS = [
  { name: 'overview', title: 'Overview', key: 'o', scope: 'observer', group: 'Broker', view: Overview },
  { name: 'sessions', title: 'Sessions', key: 's', scope: 'observer', group: 'Agents', view: Sessions },
];
