// How the page and its assets are served: without a key, with a strict policy, and so that a browser checks them again.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { ROOT, startSecured } from './broker.js';

const TYPES = { html: 'text/html; charset=utf-8', js: 'text/javascript; charset=utf-8', css: 'text/css; charset=utf-8', svg: 'image/svg+xml',
  json: 'application/json', txt: 'text/plain; charset=utf-8' };
const POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; "
  + "form-action 'self'; frame-ancestors 'none'";

let broker;
before(async () => { broker = await startSecured(); });
after(() => broker?.stop());

const ask = (path, options = {}) => fetch(`${broker.url}${path}`, { redirect: 'manual', ...options });

test('the page is served with its policy, and again only when it has changed', async () => {
  const page = await ask('/dashboard');
  assert.equal(page.status, 200);
  assert.equal(page.headers.get('content-type'), TYPES.html);
  assert.equal(page.headers.get('content-security-policy'), POLICY);
  assert.equal(page.headers.get('referrer-policy'), 'no-referrer');
  assert.equal(page.headers.get('cross-origin-opener-policy'), 'same-origin');
  assert.equal(page.headers.get('cache-control'), 'no-cache');
  const tag = page.headers.get('etag');
  assert.match(tag, /^"[\w-]+"$/);
  const again = await ask('/dashboard', { headers: { 'If-None-Match': tag } });
  assert.equal(again.status, 304);
  assert.equal(again.headers.get('etag'), tag);
  const head = await ask('/dashboard', { method: 'HEAD' });
  assert.equal(head.status, 200);
  assert.equal(head.headers.get('content-length'), String((await page.arrayBuffer()).byteLength));
});

test('every file of the folder is served as what it is', async () => {
  const folder = join(ROOT, 'assets/dashboard');
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const files = entries.filter((one) => one.isFile()).map((one) => join(one.parentPath ?? one.path, one.name).slice(folder.length));
  assert.ok(files.length > 20);
  for (const file of files) {
    const answer = await ask(`/dashboard${file}`);
    assert.equal(answer.status, 200, file);
    assert.equal(answer.headers.get('content-type'), TYPES[file.split('.').at(-1)], file);
    assert.equal(answer.headers.get('x-content-type-options'), 'nosniff', file);
    await answer.arrayBuffer();
  }
});

test('what is not there is told as a problem', async () => {
  for (const path of ['/dashboard/none.js', '/dashboard/lib', '/dashboard/..%2f..%2fCargo.toml', '/dashboard/%2fetc%2fpasswd', '/dashboards']) {
    const answer = await ask(path);
    assert.ok([401, 404].includes(answer.status), `${path}: ${answer.status}`);
    assert.equal(answer.headers.get('content-type'), 'application/problem+json', path);
  }
  const answer = await ask('/dashboard', { method: 'POST' });
  assert.equal(answer.status, 405);
  assert.equal(answer.headers.get('allow'), 'GET, HEAD, OPTIONS');
  const moved = await ask('/dashboard/');
  assert.equal(moved.status, 308);
  assert.equal(moved.headers.get('location'), '../dashboard');
});
