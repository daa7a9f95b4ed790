// The pages use the REST API as /openapi.json describes it: TypeScript checks paths, queries, bodies and answers.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { execFile } from 'node:child_process';
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { ROOT, startSecured } from './broker.js';

const TYPES = join(ROOT, 'tests/dashboard/types');
const MODULES = join(ROOT, 'tests/dashboard/node_modules');
const run = promisify(execFile);

let folder;
before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'dashboard-types-'));
  const vendor = join(ROOT, 'assets/dashboard/vendor');
  await cp(join(ROOT, 'assets/dashboard'), join(folder, 'dashboard'), { recursive: true, filter: (from) => !from.startsWith(vendor) });
  await cp(TYPES, folder, { recursive: true });
  await cp(join(folder, 'vendor'), join(folder, 'dashboard/vendor'), { recursive: true });
  const broker = await startSecured();
  try {
    const document = await fetch(`${broker.url}/openapi.json`);
    await writeFile(join(folder, 'openapi.json'), await document.text());
  } finally {
    await broker.stop();
  }
  await run(process.execPath, [join(MODULES, 'openapi-typescript/bin/cli.js'), 'openapi.json', '--output', 'openapi.d.ts',
    '--empty-objects-unknown', '--default-non-nullable=false'], { cwd: folder });
});
after(() => folder && rm(folder, { recursive: true }));

// What TypeScript finds wrong, a line each.
const faults = () => run(process.execPath, [join(MODULES, 'typescript/bin/tsc'), '--project', folder]).then(() => [],
  ({ stdout }) => stdout.split('\n').filter((line) => line.includes(': error ')));

test('a page that does not fit the description of the API is found', async () => {
  const wrong = join(folder, 'dashboard/wrong.js');
  await writeFile(wrong, `import { call, get } from './lib/api.js';
import { useResource } from './lib/resource.js';
get('sessionz');
get('sessions', { statuz: 'all' });
call('POST', 'messages', { body: { from: 1 } });
export const wrong = useResource('sessions', (signal) => get('sessions', {}, signal)).data.sessions[0].statuz;
export const right = useResource('sessions', (signal) => get('sessions', {}, signal)).data.sessions[0].status;
`);
  try {
    const found = (await faults()).map((line) => Number(/wrong\.js\((\d+),/.exec(line)?.[1]));
    assert.deepEqual([...new Set(found)], [3, 4, 5, 6]);
  } finally {
    await rm(wrong);
  }
});

test('every page fits the description of the API', async () => {
  assert.deepEqual(await faults(), []);
});
