// The page behind a link in a notification: a person answers one question on a phone, without a login.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Agent } from './agent.js';
import { Broker } from './broker.js';
import { Browser } from './browser.js';

const PUBLIC_URL = 'https://broker.example.com';
const HOSTILE = '<img src=x onerror="document.title=1"><script>window.hacked=1</script>';

let broker, browser, agent, folder, ntfy;
const notifications = [];
before(async () => {
  ntfy = createServer(async (request, response) => {
    notifications.push(JSON.parse(Buffer.concat(await request.toArray())));
    response.end();
  });
  await once(ntfy.listen(0, '127.0.0.1'), 'listening');
  folder = await mkdtemp(join(tmpdir(), 'link-'));
  await writeFile(join(folder, 'secret'), 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n');
  const settings = { 'desk-ntfy': `http://127.0.0.1:${ntfy.address().port}/topic`, 'desk-secret-file': join(folder, 'secret'),
    'desk-public-url': PUBLIC_URL, 'desk-notify-text': true };
  [broker, browser] = await Promise.all([Broker.start(settings), Browser.start()]);
  agent = await Agent.connect(broker, 'alice');
});
after(async () => {
  await Promise.all([browser?.stop(), broker?.stop(), folder && rm(folder, { recursive: true })]);
  ntfy?.close();
});

/** Asks; returns the id of the question, and the link of its notification at this broker. */
async function ask(question) {
  const { question_id: id } = await agent.call('clarify', { ...question, wait_seconds: 0 });
  const told = () => notifications.find((notification) => notification.click.endsWith(id));
  await broker.until(async () => told(), 'the notification');
  return [id, told().actions[0].url.replace(PUBLIC_URL, broker.url)];
}

test('a person answers by the form of the page, once', async () => {
  const [id, link] = await ask({ question: 'Drop it?', options: ['yes', 'no'] });
  const { page, close } = await opened(link);
  assert.equal((await agent.call('get_answer', { question_id: id })).state, 'pending', 'looking answers nothing');
  await page.getByLabel('no', { exact: true }).check();
  await page.getByLabel('Text').fill('not now\nor never');
  await page.getByRole('button', { name: 'Answer' }).click();
  await page.getByText('answered by answer-link').waitFor();
  await close();
  const { answer, answered_by: by } = await agent.call('get_answer', { question_id: id });
  assert.deepEqual([answer.selected, answer.text, by.via], [['no'], 'not now\nor never', 'link']);
});

test('what agents write is text, and the page fits a phone', async () => {
  const [, link] = await ask({ question: HOSTILE, context: HOSTILE + 'L'.repeat(2_000), options: [{ value: HOSTILE, label: HOSTILE.slice(0, 60) }] });
  const { page, close } = await opened(link);
  assert.equal(await page.locator('h1').innerText(), HOSTILE);
  assert.deepEqual(await page.evaluate(() => [document.querySelectorAll('img, script').length, window.hacked, document.title]), [0, undefined, 'mcp-broker']);
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'nothing is wider than the window');
  await close();
});

async function opened(link) {
  const window = await browser.openAt(link, { width: 360 });
  await window.page.goto(link);
  return { page: window.page, close: () => window.close() };
}
