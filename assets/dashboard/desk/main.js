// The page on which people answer the questions of agents.
import { call } from '../lib/api.js';
import { start } from '../ui/start.js';
import { Desk } from './page.js';

// A key that only asks or only sees is refused at the login, and not after the person has given a name.
const admits = async ({ auth_enabled: hasKeys, human, scope }) => {
  if (hasKeys && !human && ['observer', 'member'].includes(scope)) await call('GET', 'questions', { query: { limit: 1 }, headers: { 'X-Human': 'human' } });
};

start(Desk, { title: 'Desk', hint: 'A key with the scope answer, or an administrator’s key.' }, admits);
