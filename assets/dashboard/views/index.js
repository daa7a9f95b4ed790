// All views. A new view is a file in this folder and a line here.
import { Actors } from './actors.js';
import { Audit } from './audit.js';
import { Backends } from './backends.js';
import { DeadLetters } from './dead-letters.js';
import { Flow } from './flow.js';
import { Messages } from './messages.js';
import { Overview } from './overview.js';
import { Projects } from './projects.js';
import { Protocols } from './protocols.js';
import { Sessions } from './sessions.js';
import { Settings } from './settings.js';
import { Threads } from './threads.js';

// `name` is in the address, `key` follows `g`, `scope` is what the caller needs, `group` is the heading in the navigation.
export const VIEWS = [
  { name: 'overview', title: 'Overview', key: 'o', scope: 'observer', group: 'Broker', view: Overview },
  { name: 'actors', title: 'Actors', key: 'a', scope: 'operator', group: 'Broker', view: Actors },
  { name: 'sessions', title: 'Sessions', key: 's', scope: 'observer', group: 'Agents', view: Sessions },
  { name: 'flow', title: 'Flow', key: 'f', scope: 'observer', group: 'Agents', view: Flow },
  { name: 'protocols', title: 'Protocols', key: 'p', scope: 'observer', group: 'Agents', view: Protocols },
  { name: 'backends', title: 'Backends', key: 'b', scope: 'observer', group: 'Agents', view: Backends },
  { name: 'messages', title: 'Messages', key: 'm', scope: 'observer', group: 'Messages', view: Messages },
  { name: 'threads', title: 'Threads', key: 't', scope: 'observer', group: 'Messages', view: Threads },
  { name: 'dead-letters', title: 'Dead letters', key: 'd', scope: 'observer', group: 'Messages', view: DeadLetters },
  { name: 'projects', title: 'Projects and keys', key: 'k', scope: 'observer', group: 'Administration', view: Projects },
  { name: 'audit', title: 'Audit', key: 'u', scope: 'admin', group: 'Administration', view: Audit },
  { name: 'settings', title: 'Settings', key: 'c', scope: 'operator', group: 'Administration', view: Settings },
];
