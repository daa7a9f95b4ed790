// The operators' page.
import { Shell } from './ui/shell.js';
import { start } from './ui/start.js';

start(Shell);
