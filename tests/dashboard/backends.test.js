// The backends of a project on the page: what they are, their tools and their log, and what an administrator does with them.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Agent } from './agent.js';
import { Broker, FAKE_BACKEND, startSecured } from './broker.js';
import { Browser, NOT_LOGGED_IN } from './browser.js';

const FAKE = `command = ${JSON.stringify(FAKE_BACKEND)}`;
const BACKENDS = `
[backends.files]
${FAKE}
args = ["--garbage-at-start", "2"]

[backends.files.tools]
deny = ["die"]
rename = { echo = "say" }

[backends.search]
command = "no-such-program"

[backends.modern]
${FAKE}
args = ["--era", "modern"]
`;

let broker, browser;
before(async () => {
  [broker, browser] = await Promise.all([Broker.start({}, BACKENDS), Browser.start()]);
  await Promise.all(['files', 'modern'].map((name) => is(name, 'ready')));
});
after(() => Promise.all([browser?.stop(), broker?.stop()]));

const backend = (name) => broker.rest('GET', `backends/${name}`);
const is = (name, state) => broker.until(async () => (await backend(name)).state === state, `${name} is ${state}`);
const row = (window, name) => window.page.locator('tbody tr').filter({ has: window.page.getByRole('link', { name, exact: true }) });

test('the list shows every backend, and why one does not run', async () => {
  const window = await browser.open(broker.url);
  await window.go('backends');
  const texts = async (name) => (await row(window, name).locator('td').allTextContents()).map((text) => text.trim());
  const { pid, tools } = await backend('files');
  const [name, state, era, server, process, toolsShown] = await texts('files');
  assert.deepEqual([name, era, server, process, toolsShown], ['files', 'legacy', 'fake-backend 1.0', String(pid), String(tools)]);
  assert.match(state, /^ready .*(now|ago)$/);
  assert.equal((await texts('modern'))[2], 'modern');
  assert.match((await texts('search'))[1], /^failed .*no-such-program/);
  await window.page.getByLabel('State').selectOption('failed');
  await window.seesNot('files', 'tbody');
  assert.equal(await window.page.locator('tbody tr').count(), 1);
  await window.page.getByLabel('Name, server or reason').fill('nothing of this kind');
  await window.sees('No backend matches.');
  await window.close();
});

test('the tools of a backend have both names, and its log grows', async () => {
  const window = await browser.open(broker.url);
  await window.go('backends/files');
  const tool = (name) => window.page.locator('tbody tr').filter({ has: window.page.locator('td:nth-child(2)').getByText(name, { exact: true }) });
  assert.equal(await tool('echo').locator('td').first().textContent(), 'files__say');
  assert.equal(await tool('die').locator('td').first().textContent(), 'not offered');
  await window.sees('starting up, step 1', 'pre');
  const agent = await Agent.connect(broker, 'caller');
  await agent.call('files__stderr', { bytes: 300 });
  await window.sees(/e{90}/, 'pre');
  const lines = (await window.page.locator('pre').textContent()).split('\n');
  assert.equal(lines.filter((line) => line.includes('step 1')).length, 1, 'no line comes twice');
  await window.page.getByLabel('Name of a tool').fill('say');
  await window.sees('files__say', 'main table');
  await window.seesNot('die', 'tbody');
  await agent.close();
  await window.close();
});

test('a backend is stopped, started and restarted by buttons', async () => {
  const window = await browser.open(broker.url);
  await window.go('backends');
  assert.equal(await window.get('button', 'Start modern', { exact: true }).count(), 0);
  assert.equal(await window.act(window.get('button', 'Stop modern', { exact: true }), 'Stop'), 'modern is being stopped.');
  await row(window, 'modern').getByText('disabled').waitFor();
  assert.equal(await window.get('button', 'Stop modern', { exact: true }).count(), 0);
  assert.equal(await window.act(window.get('button', 'Start modern', { exact: true }), 'Start'), 'modern is being started.');
  await row(window, 'modern').getByText('ready').waitFor();
  const { pid } = await backend('modern');
  await window.go('backends/modern');
  assert.equal(await window.act(window.get('button', 'Restart modern', { exact: true }), 'Restart'), 'modern is being restarted.');
  await broker.until(async () => ![undefined, pid].includes((await backend('modern')).pid), 'another process');
  await window.sees(String((await backend('modern')).pid), 'dd');
  await window.close();
});

test('a viewer sees backends, and neither buttons nor the log', async () => {
  const secured = await startSecured({}, BACKENDS.replaceAll('[backends', '[projects.acme.backends'));
  await secured.rest('POST', 'projects', { project_id: 'acme', name: 'Acme' });
  const { api_key: key } = await secured.rest('POST', 'projects/acme/keys', { scope: 'observer' });
  const window = await browser.open(secured.url);
  await window.logIn(key);
  await window.go('backends');
  await window.sees('no-such-program');
  assert.equal(await window.get('button', /^(Start|Restart|Stop)/).count(), 0);
  await window.go('backends/files');
  await window.sees('files__say');
  assert.equal(await window.get('button', /^(Start|Restart|Stop)/).count(), 0);
  assert.equal(await window.page.locator('pre').count(), 0);
  await window.close([NOT_LOGGED_IN]);
  await secured.stop();
});

test('a project without backends says how to add one', async () => {
  await broker.rest('POST', 'projects', { project_id: 'empty', name: 'Empty' });
  const window = await browser.open(broker.url);
  await window.go('backends?project=empty');
  await window.sees('This project has no backends.');
  await window.sees('[projects.empty.backends.NAME]');
  await window.screenshot('backends-empty-1440-light');
  await window.assertAccessible('no backends');
  await window.go('backends/none?project=empty');
  await window.sees('This does not exist.');
  await window.close([/status of 404.*\/backends\/none/]);
});
