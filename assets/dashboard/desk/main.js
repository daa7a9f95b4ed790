// The page on which people answer the questions of agents.
import { start } from '../ui/start.js';
import { Desk } from './page.js';

start(Desk, { title: 'Desk', hint: 'A key with the scope answer, or an administrator’s key.' });
