// What an operator does on the page: redrive, disconnect, keys and grants. Each action asks once and says what it did.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Agent, NOTE } from './agent.js';
import { Broker, startSecured } from './broker.js';
import { Browser, NOT_LOGGED_IN } from './browser.js';

let broker, browser;
before(async () => {
  [broker, browser] = await Promise.all([Broker.start(), Browser.start()]);
  await broker.rest('POST', 'protocols', NOTE);
});
after(() => Promise.all([browser?.stop(), broker?.stop()]));

/** Leaves dead letters of a recipient that then comes back. */
async function giveUp(sender, name, texts) {
  const recipient = await Agent.connect(broker, name, { reads: false });
  for (const text of texts) await sender.send(name, text);
  await recipient.close();
  await broker.rest('DELETE', `sessions/${name}?forget=true`);
}

test('a session is disconnected, and ended for good', async () => {
  const window = await browser.open(broker.url);
  const agent = await Agent.connect(broker, 'noisy');
  await window.go('sessions');
  const said = await window.act(window.get('button', 'Disconnect noisy'), 'Disconnect');
  assert.match(said, /noisy is disconnected/);
  assert.equal(await agent.closed, 4007);
  await window.go('sessions/noisy');
  await window.sees('disconnected', 'main');
  assert.match(await window.act(window.get('button', 'End for good'), 'End the session'), /noisy has ended/);
  await window.seesNot('noisy', 'main');
  const { sessions } = await broker.rest('GET', 'sessions?status=all');
  assert.deepEqual(sessions.filter(({ name }) => name === 'noisy'), []);
  await window.close([/status of 404.*\/sessions\//]);
});

test('dead letters are redriven one, some and all that match, and payloads are shown on demand', async () => {
  const window = await browser.open(broker.url);
  const sender = await Agent.connect(broker, 'sender');
  await giveUp(sender, 'absent', Array.from({ length: 230 }, (_, at) => `text ${at}`));
  const rescuer = await Agent.connect(broker, 'rescuer');
  await window.go('dead-letters');
  // Its session has ended.
  await window.sees('absent', 'main table');
  await window.get('button', /^Payload of/).first().click();
  await window.get('button', 'Show the payload').click();
  await window.sees('"text": "text 0"', 'dialog');
  await window.assertAccessible('the dialog of a payload');
  await window.page.getByRole('dialog').getByRole('button', { name: 'Close' }).click();

  const redriveTo = async (button) => {
    await button.click();
    await window.page.getByLabel(/^Another recipient/).fill('rescuer');
    const dialog = window.page.getByRole('dialog');
    await dialog.locator('button[type=submit]').click();
    await dialog.getByRole('button', { name: 'Close' }).waitFor();
    const said = await dialog.locator('.said').textContent();
    await dialog.getByRole('button', { name: 'Close' }).click();
    return said;
  };
  assert.equal(await redriveTo(window.get('button', /^Redrive 0/).first()), '1 message is back in the inbox.');
  await broker.until(() => rescuer.received.length === 1, 'one message arrives');
  await window.page.locator('tbody input[type=checkbox]').nth(1).check();
  await window.page.locator('tbody input[type=checkbox]').nth(2).check();
  assert.equal(await redriveTo(window.get('button', 'Redrive selected (2)')), '2 messages are back in the inbox.');
  assert.equal(await redriveTo(window.get('button', 'Redrive all that match')), '227 messages are back in the inbox.');
  await broker.until(() => rescuer.received.length === 230, 'every message arrives');
  await window.sees('No dead letters.');
  await Promise.all([sender.close(), rescuer.close()]);
  await window.close();
});

test('a message is sent from the page', async () => {
  const window = await browser.open(broker.url);
  const reader = await Agent.connect(broker, 'reader');
  await window.go('messages');
  await window.get('button', 'Send a message').click();
  const dialog = window.page.getByRole('dialog');
  await dialog.getByLabel('To (name or id; empty: to all)').fill('reader');
  // A plain text is what the dialog begins with; another protocol brings a skeleton of its schema.
  const text = dialog.getByRole('textbox', { name: 'Text' });
  await text.waitFor();
  await dialog.getByLabel('Protocol').selectOption('note 1.0.0');
  const payload = dialog.getByLabel('Payload (JSON)');
  await window.page.waitForFunction(() => document.querySelector('textarea[name=payload]')?.value.includes('"text": ""'));
  await payload.fill('{"text": ');
  await dialog.getByRole('button', { name: 'Send' }).click();
  await dialog.getByRole('alert').getByText('The payload is not JSON').waitFor();
  await payload.fill('{"text": 7}');
  await dialog.getByRole('button', { name: 'Send' }).click();
  await dialog.locator('.failures').getByText('/text').waitFor();
  await window.assertAccessible('the dialog of a payload that does not fit');
  await payload.fill('{"text": "from the page"}');
  await dialog.getByRole('button', { name: 'Send' }).click();
  await dialog.getByText('The message is').waitFor();
  await broker.until(() => reader.received[0]?.payload.text === 'from the page', 'the message arrives');
  await dialog.getByRole('button', { name: 'Close' }).click();
  await window.sees('operator', 'main table');
  // The reader has acknowledged it, and this broker keeps no payloads.
  await window.sees('text not kept', 'main table');
  await window.get('button', 'Send a message').click();
  await dialog.getByLabel('To (name or id; empty: to all)').fill('reader');
  await text.fill('a plain text');
  await dialog.getByRole('button', { name: 'Send' }).click();
  await dialog.getByText('The message is').waitFor();
  await broker.until(() => reader.received[1]?.payload.text === 'a plain text', 'the text arrives');
  await reader.close();
  await window.close([/status of 400.*\/messages/]);
});

test('a redrive that is refused says why', async () => {
  const window = await browser.open(broker.url);
  const sender = await Agent.connect(broker, 'sender');
  await giveUp(sender, 'gone', ['only']);
  await window.go('dead-letters');
  await window.get('button', /^Redrive 0/).click();
  await window.page.getByLabel(/^Another recipient/).fill('no-such-session');
  await window.page.getByRole('dialog').getByRole('button', { name: 'Redrive' }).click();
  await window.page.getByRole('dialog').getByRole('alert').waitFor();
  await window.page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
  await sender.close();
  await window.close([/status of 404.*redrive/]);
});

test('projects, keys and grants', async () => {
  const secured = await startSecured();
  const window = await browser.open(secured.url);
  await window.logIn(secured.key);
  await window.go('projects');
  for (const id of ['north', 'south']) {
    await window.get('button', 'New project').click();
    const dialog = window.page.getByRole('dialog');
    await dialog.getByLabel('Id (small letters, digits, hyphens)').fill(id);
    await dialog.getByLabel('Name', { exact: true }).fill(`The ${id}`);
    await dialog.getByRole('button', { name: 'Create' }).click();
    assert.match(await dialog.locator('.secret code').textContent(), new RegExp(`^${id}_`));
    await window.assertAccessible('the dialog that shows a key');
    await dialog.getByRole('button', { name: 'Close' }).click();
  }
  await window.get('link', 'north').click();
  await window.get('button', 'New key').click();
  await window.page.getByLabel('Label (optional)').fill('watcher');
  await window.page.getByLabel('Tools that its agents are listed').selectOption('core');
  await window.page.getByRole('dialog').getByRole('button', { name: 'Create' }).click();
  const key = await window.page.locator('.secret code').textContent();
  await window.page.getByRole('dialog').getByRole('button', { name: 'Close' }).click();
  await window.sees('watcher', 'main table');
  await window.sees('core tools', 'main table');
  const can = (project) => fetch(`${secured.url}/api/v1/me`, { headers: { 'X-API-Key': project } }).then(({ status }) => status);
  assert.equal(await can(key), 200);
  const [, id] = key.split('_');
  assert.match(await window.act(window.get('button', `Revoke ${id}`), 'Revoke'), /is revoked/);
  assert.equal(await can(key), 401);
  await window.get('button', 'New grant').click();
  await window.page.getByRole('dialog').getByLabel('Project').fill('south');
  await window.page.getByRole('dialog').getByRole('button', { name: 'Grant' }).click();
  await window.page.getByRole('dialog').getByRole('button', { name: 'Close' }).click();
  await window.get('button', 'Revoke the grant to south').waitFor();
  assert.match(await window.act(window.get('button', 'Revoke the grant to south'), 'Revoke'), /may no longer send/);
  await window.sees('No grants.');
  await window.act(window.get('button', 'Rotate all'), 'Rotate');
  await window.go('audit?of=north');
  await window.sees('done', 'main table');
  await window.close([NOT_LOGGED_IN]);
  await secured.stop();
});
