// Login and logout, what each scope sees, a key that ends while the page is open, and a path prefix of a proxy.
import assert from 'node:assert/strict';
import { createServer, request as httpRequest } from 'node:http';
import { once } from 'node:events';
import { after, before, test } from 'node:test';
import { startSecured } from './broker.js';
import { Browser, NOT_LOGGED_IN } from './browser.js';

let broker, browser, observer;
before(async () => {
  [broker, browser] = await Promise.all([startSecured(), Browser.start()]);
  await broker.rest('POST', 'projects', { project_id: 'acme', name: 'Acme' });
  observer = await broker.rest('POST', 'projects/acme/keys', { scope: 'observer', label: 'The wall screen' });
});
after(() => Promise.all([browser?.stop(), broker?.stop()]));

test('a wrong key is refused, the right one logs in, and logging out ends it', async () => {
  const window = await browser.open(broker.url);
  await window.sees('API key');
  await window.screenshot('login-1440-light');
  await window.assertAccessible('the login form');
  await window.page.emulateMedia({ colorScheme: 'dark' });
  await window.assertAccessible('the login form, dark');
  await window.logIn('acme_wrong_00000000000000000000000000000000');
  await window.page.getByRole('alert').waitFor();
  await window.logIn(broker.key);
  await window.sees('Healthy');
  const [cookie] = await window.page.context().cookies();
  assert.ok(cookie.httpOnly && cookie.sameSite === 'Strict', JSON.stringify(cookie));
  assert.equal(await window.page.evaluate(() => document.cookie), '');
  await window.page.reload();
  await window.sees('Healthy');
  await window.get('button', 'Log out').click();
  await window.sees('You are logged out.');
  assert.deepEqual(await window.page.context().cookies(), []);
  await window.close([NOT_LOGGED_IN, /status of 401.*\/login/]);
});

test('an observer sees the project and no action', async () => {
  const window = await browser.open(broker.url);
  await window.logIn(observer.api_key);
  await window.sees('The wall screen');
  await window.sees('Healthy');
  assert.equal(await window.get('link', 'Settings').count(), 0);
  await window.go('dead-letters');
  assert.equal(await window.get('button', /Redrive/).count(), 0);
  await window.go('projects/acme');
  assert.equal(await window.get('button', 'New key').count(), 0);
  await window.go('audit');
  await window.sees('Your key does not allow this view.');
  await window.close([NOT_LOGGED_IN]);
});

test('a key that is revoked while the page is open leads to the login form', async () => {
  const { key, api_key: apiKey } = await broker.rest('POST', 'projects/acme/keys', { scope: 'admin' });
  const window = await browser.open(broker.url);
  await window.logIn(apiKey);
  await window.go('sessions');
  await window.live();
  await broker.rest('DELETE', `projects/acme/keys/${key.key_id}`);
  await window.sees('The key is no longer valid. Log in again.');
  await window.close([/status of 401/]);
});

test('an administrator acts with the token against forged requests', async () => {
  const { api_key: apiKey } = await broker.rest('POST', 'projects/acme/keys', { scope: 'admin' });
  const window = await browser.open(broker.url);
  await window.logIn(apiKey);
  await window.go('projects/acme');
  await window.get('button', 'New key').click();
  await window.page.getByRole('dialog').getByRole('button', { name: 'Create' }).click();
  await window.page.locator('.secret code').waitFor();
  const forged = await window.page.evaluate(() => fetch('api/v1/projects/acme/keys', { method: 'POST', body: '{}',
    headers: { 'Content-Type': 'application/json' } }).then(({ status }) => status));
  assert.equal(forged, 403);
  await window.close([NOT_LOGGED_IN, /status of 403/]);
});

test('the page works under the path prefix of a proxy', async () => {
  const proxy = createServer((request, response) => {
    const { pathname, search } = new URL(request.url, 'http://proxy');
    if (!pathname.startsWith('/tools/broker/')) return response.writeHead(404).end();
    const path = pathname.slice('/tools/broker'.length) + search;
    const onward = httpRequest({ port: broker.port, host: '127.0.0.1', path, method: request.method, headers: request.headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    onward.on('error', () => response.destroy());
    response.on('close', () => onward.destroy());
    request.pipe(onward);
  });
  proxy.listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  const window = await browser.open(`http://127.0.0.1:${proxy.address().port}`, { prefix: '/tools/broker' });
  await window.logIn(broker.key);
  await window.go('projects');
  await window.sees('Acme', 'main table');
  await window.live();
  await window.page.goto(`http://127.0.0.1:${proxy.address().port}/tools/broker/dashboard/`);
  await window.sees('Healthy');
  await window.close([NOT_LOGGED_IN]);
  proxy.closeAllConnections();
  proxy.close();
});

test('the desk refuses a key that may not answer at the login, and takes another one', async () => {
  const { api_key: member } = await broker.rest('POST', 'projects/acme/keys', { scope: 'member' });
  const { api_key: answer } = await broker.rest('POST', 'projects/acme/keys', { scope: 'answer', human: 'mara' });
  const window = await browser.openAt(`${broker.url}/desk`);
  await window.page.goto(window.address);
  await window.logIn(member);
  await window.sees('this key asks and does not answer', '[role=alert]');
  assert.equal(await window.page.getByLabel('Your name').count(), 0);
  await window.page.reload();
  await window.sees('this key asks and does not answer', '[role=alert]');
  await window.logIn(answer);
  await window.sees('mara', '.bar');
  await window.close([NOT_LOGGED_IN, /status of 403.*\/questions/]);
});
