// Every view, in both themes and on a narrow screen: it shows its data, fits, is accessible, and looks as the screenshots in
// target/dashboard do.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { Agent } from './agent.js';
import { Broker, ROOT } from './broker.js';
import { Browser } from './browser.js';
import { BACKENDS, NAMES, closeAll, converse, populate, review } from './world.js';

let broker, browser, agents, talks, reviewed;
before(async () => {
  [broker, browser] = await Promise.all([Broker.start({ 'message-history-payloads': true }, BACKENDS), Browser.start()]);
  agents = await populate(broker);
  talks = await converse(broker, agents);
  reviewed = await review(agents);
});
after(async () => {
  await closeAll(agents ?? {});
  await Promise.all([browser?.stop(), broker?.stop()]);
});

// Place, and a text that only its data brings.
async function places() {
  const { messages } = await broker.rest('GET', 'messages?session=planner&limit=1');
  const { began, asked } = talks;
  return [
    ['overview', 'overview', '1 backend has failed'],
    ['actors', 'actors', 'registry'],
    ['sessions', 'sessions', 'release-manager'],
    ['session', `sessions/${agents.planner.id}`, 'green'],
    ['flow', 'flow', 'coder-1'],
    ['protocols', 'protocols', 'A short text from one agent to another'],
    ['protocol', 'protocols/note/1.1.0', 'The platform team'],
    ['lenses', 'protocols/review/2.0.0', 'from 1.0.0: defaulted, back lossy'],
    ['use of versions', 'protocols/note/1.0.0', '8 active, 0 kept'],
    ['compatibility', 'protocols/compatibility', 'note 1.1.0'],
    ['backends', 'backends', 'no-such-program'],
    ['backend', 'backends/files', 'files__echo'],
    ['messages', 'messages', 'acknowledged'],
    ['message', `messages/${messages[0].message_id}`, 'accepted'],
    ['transformed message', `messages/${reviewed}`, 'transformed from 1.0.0 to 2.0.0, made up /urgency'],
    ['reports', 'messages?protocol=delivery-report', 'mcp-broker'],
    ['threads', 'threads', 'translation'],
    ['thread', 'threads/manual', 'chapter 4'],
    ['conversation', `threads/${began}`, 'GET /orders, with pages'],
    ['people', `threads/${asked}?by=correlation`, 'Use threads'],
    ['dead-letters', 'dead-letters', 'recipient gone'],
    ['projects', 'projects', 'A second tenant'],
    ['project', 'projects/acme', 'admin'],
    ['audit', 'audit', 'project.create'],
    ['settings', 'settings', 'queue_capacity'],
    ['nothing', 'nothing-of-this-name', 'No such view'],
  ];
}

test('every view shows its data in both themes and is accessible', async () => {
  const window = await browser.open(broker.url);
  for (const [name, place, text] of await places()) {
    await window.page.emulateMedia({ colorScheme: 'light' });
    await window.go(place);
    await window.sees(text, 'main');
    await window.assertFits(name);
    await window.screenshot(`${name}-1440-light`);
    await window.assertAccessible(`${name}, light`);
    await window.page.emulateMedia({ colorScheme: 'dark' });
    await window.screenshot(`${name}-1440-dark`);
    await window.assertAccessible(`${name}, dark`);
  }
  await window.close();
});

test('every view fits a screen of 360 pixels', async () => {
  const window = await browser.open(broker.url, { width: 360, height: 780 });
  for (const [name, place, text] of await places()) {
    await window.go(place);
    await window.page.locator('main').getByText(text).first().waitFor({ state: 'attached' });
    await window.assertFits(name);
    await window.screenshot(`${name}-360-light`);
  }
  await window.assertAccessible('narrow');
  await window.get('button', 'Menu').click();
  await window.get('link', 'Dead letters').click();
  await window.sees('recipient gone', 'main');
  await window.close();
});

test('the keyboard reaches every view, the search and the dialogs', async () => {
  const window = await browser.open(broker.url);
  const { page } = window;
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.textContent.replace(/\s+/g, ' ').trim()), 'Skip to the content');
  await page.keyboard.press('Enter');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'main');
  for (const [key, heading] of [['s', 'Sessions'], ['m', 'Messages'], ['d', 'Dead letters'], ['p', 'Protocols'],
    ['b', 'Backends'], ['o', 'Overview']]) {
    await page.keyboard.press('g');
    await page.keyboard.press(key);
    await page.locator('h1').getByText(heading).waitFor();
  }
  await page.keyboard.press('g');
  await page.keyboard.press('s');
  await page.locator('h1').getByText('Sessions').waitFor();
  await window.loaded();
  await page.locator('[data-search]').waitFor();
  await page.keyboard.press('/');
  await page.keyboard.type('coder-2');
  await window.seesNot('planner', 'main');
  await window.sees('coder-2', 'main table');
  await page.keyboard.press('Escape');
  await page.keyboard.press('?');
  await page.getByRole('dialog').waitFor();
  await window.assertAccessible('the list of shortcuts');
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await window.close();
});

test('a link carries filter, order and item to another browser', async () => {
  const window = await browser.open(broker.url);
  await window.go('sessions');
  await window.page.getByLabel('State').selectOption('active');
  await window.get('link', /^Waiting/).click();
  await window.get('link', /^Waiting/).click();
  await window.page.getByRole('columnheader', { name: /Waiting/ }).and(window.page.locator('[aria-sort=descending]')).waitFor();
  const address = window.page.url();
  assert.match(address, /status=active/);
  const other = await browser.open(broker.url);
  await other.page.goto(address);
  await other.loaded();
  await other.page.locator('[aria-sort=descending]').waitFor();
  assert.equal(await other.page.locator('tbody tr').first().locator('td').first().textContent(), 'writer');
  await other.close();
  await window.close();
});

test('the theme that a viewer chose stays', async () => {
  const window = await browser.open(broker.url);
  const background = () => window.page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  await window.get('button', /^Theme: system/).click();
  await window.get('button', /^Theme: light/).click();
  await window.get('button', /^Theme: dark/).waitFor();
  assert.notEqual(await background(), light);
  await window.page.reload();
  await window.loaded();
  assert.notEqual(await background(), light);
  await window.close();
});

// The picture of the README: five minutes of agents at work.
test('the picture of the documentation', { skip: !process.env.DASHBOARD_PICTURE }, async () => {
  const window = await browser.open(broker.url);
  const end = Date.now() + 310_000;
  for (let at = 0; Date.now() < end; at += 1) {
    const [from, to] = [NAMES[at % 5], NAMES[(at * 3 + 1) % 6]];
    if (from !== to) await agents[from].send(to, `step ${at}`, { correlation_id: `feature-${at % 9}` });
    const busy = 1 + Math.sin(Date.now() / 17_000) + 0.5 * Math.sin(Date.now() / 5_000);
    await new Promise((resolve) => setTimeout(resolve, 12 + 14 * Math.max(0, busy)));
  }
  await window.page.setViewportSize({ width: 1280, height: 800 });
  await window.go('overview?window=5m');
  await window.live();
  // The rate needs two answers.
  await window.page.locator('.tile', { hasText: 'Accepted' }).getByText(/\d\/s/).waitFor();
  await mkdir(join(ROOT, 'docs/images'), { recursive: true });
  await window.page.screenshot({ path: join(ROOT, 'docs/images/dashboard.png') });
  await window.close();
});

test('the charts of the overview say how much there was in a second', async () => {
  const window = await browser.open(broker.url);
  await window.page.route('**/api/v1/stats?*step=10s*', async (route) => {
    const response = await route.fetch();
    const answer = await response.json();
    const points = Object.fromEntries(Object.keys(answer.series.points).map((name) => [name, [20, 50]]));
    const series = { ...answer.series, step_seconds: 10, points: { ...points, cpu_seconds: [2, 1] } };
    await route.fulfill({ response, json: { ...answer, series } });
  });
  await window.go('overview');
  const legend = (title) => window.page.locator('figure.chart', { hasText: title }).locator('.legend');
  await legend('Messages').getByText('5.0/s').first().waitFor();
  await legend('Processor').getByText('10 %').waitFor();
  // What is counted has one number on the page, which is newer than the last point.
  const tile = (name) => window.page.locator('.tile', { hasText: name }).locator('.value');
  await tile('Accepted').getByText('5.0/s').waitFor();
  const waiting = await tile('Waiting').textContent();
  assert.notEqual(waiting, '50');
  await legend('Waiting messages').locator('b').first().getByText(waiting, { exact: true }).waitFor();
  await window.close();
});

test('a conversation is read from its beginning, and leads from each of its messages', async () => {
  const window = await browser.open(broker.url);
  await window.go('messages');
  // The message that began the thread has no header of its own.
  await window.page.locator('main table').getByText('Which endpoint lists').click();
  await window.sees('Thank you.', '.conversation');
  const texts = await window.page.locator('.conversation li').allTextContents();
  assert.deepEqual(texts.map((text) => /Which|GET|Thank/.exec(text)?.[0]), ['Which', 'GET', 'Thank']);
  await window.sees('curl -fsS', '.conversation pre');
  await window.go('threads');
  await window.sees('Which endpoint lists', 'main table');
  await window.page.locator('main table').getByText('mara answered').click();
  await window.sees('Async or threads?', '.conversation');
  await window.sees('Use threads', '.conversation li:last-child');
  await window.close();
});

test('lenses are drawn between the versions that they join', async () => {
  const window = await browser.open(broker.url);
  await window.go('protocols/review/2.0.0');
  const picture = window.page.locator('svg.versions');
  await picture.getByText('defaulted, back lossy', { exact: true }).waitFor();
  assert.match(await picture.getAttribute('aria-label'), /2 versions and 1 lens/);
  assert.deepEqual(await picture.locator('.name').allTextContents(), ['1.0.0', '2.0.0']);
  assert.equal(await picture.locator('.chosen .name').textContent(), '2.0.0');
  await window.sees('from 1.0.0: defaulted, back lossy', 'main table');
  // Versions without a lens need no picture.
  await window.go('protocols/note/1.0.0');
  await window.sees('8 active, 0 kept', 'main table');
  assert.equal(await picture.count(), 0);
  await window.close();
});

test('sessions begin with all of them', async () => {
  const window = await browser.open(broker.url);
  await (await Agent.connect(broker, 'passer-by')).close();
  await broker.rest('DELETE', 'sessions/passer-by');
  await window.go('sessions');
  await window.sees('passer-by', 'main table');
  await window.page.getByLabel('State').selectOption('active');
  await window.seesNot('passer-by', 'main');
  await window.close();
});
