// The desk as it is served and as it looks: its policy, hostile texts, narrow windows, accessibility, keys and scopes.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startSecured, Broker } from './broker.js';
import { Browser, NOT_LOGGED_IN } from './browser.js';

const POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
const HOSTILE = ['<img src=x onerror="document.title=1"><script>window.hacked=1</script>', '\u001b[31mred\u001b[0m \u001b]0;title\u0007',
  'abc\u202egnp.exe\u202c\u2066x\u2069', '![x](http://evil.example/x.png) [y](javascript:alert(1)) <a href="http://evil.example">z</a>',
  'L'.repeat(7_000)];

let broker, browser;
before(async () => {
  [broker, browser] = await Promise.all([Broker.start(), Browser.start()]);
});
after(() => Promise.all([browser?.stop(), broker?.stop()]));

const ask = (question, from = 'alice') => broker.rest('POST', 'questions', { from, ...question });

test('the page is served with its policy, and an address of a question leads to its place', async () => {
  const page = await fetch(`${broker.url}/desk`);
  assert.equal(page.status, 200);
  assert.equal(page.headers.get('content-security-policy'), POLICY);
  assert.equal(page.headers.get('content-type'), 'text/html; charset=utf-8');
  const id = '0198f3a2-7c55-7a10-8f31-9d2c64b1e001';
  const moved = await fetch(`${broker.url}/desk/q/${id}`, { redirect: 'manual' });
  assert.deepEqual([moved.status, moved.headers.get('location')], [303, `../../desk#/q/${id}`]);
});

test('without a script the page says what to do', async () => {
  const window = await browser.openAt(`${broker.url}/desk`, { javaScriptEnabled: false });
  await window.page.goto(window.address);
  const command = window.page.locator('noscript code').nth(1);
  assert.deepEqual([await command.innerText(), await command.isVisible()], ['mcp-broker desk answer ID TEXT', true]);
  await window.close();
});

test('the browser refuses what the policy does not allow', async () => {
  const window = await browser.openDesk(broker.url, 'mara');
  await window.page.evaluate(() => {
    const script = document.createElement('script');
    script.textContent = 'window.hacked = 1';
    const image = document.createElement('img');
    image.src = 'data:image/gif;base64,R0lGODlhAQABAAAAACw=';
    document.body.append(script, image);
  });
  assert.equal(await window.page.evaluate(() => 'hacked' in window), false);
  const refused = window.problems.filter((one) => one.includes('Content Security Policy'));
  assert.equal(refused.length, 2, window.problems.join('\n'));
  window.problems = [];
  await window.close();
});

test('hostile texts are shown and do nothing', async () => {
  const asked = [];
  for (const text of HOSTILE) {
    asked.push(await ask({ question: text, context: text, options: [{ value: text.slice(0, 60), label: text.slice(0, 100), description: text.slice(0, 400) }],
      links: [{ title: text.slice(0, 100), uri: 'javascript:alert(1)' }] }).catch(() => ask({ question: text })));
    await broker.rest('POST', 'yaps', { from: 'alice', message: text.slice(0, 4_000) });
  }
  for (const width of [1280, 360]) {
    const window = await browser.openDesk(broker.url, 'mara', { width });
    for (const { question_id: id } of asked) {
      await window.go(`q/${id}`);
      await window.page.locator('form.answer').waitFor();
      await window.assertFits(`question at ${width}`);
      const found = await window.page.evaluate(() => ({ hacked: 'hacked' in globalThis, images: document.querySelectorAll('main img').length,
        links: [...document.querySelectorAll('main article a:not([href^="#"])')].map((one) => one.href), raw: /[\u001b\u202e\u2066]/.test(document.body.innerText) }));
      assert.deepEqual(found, { hacked: false, images: 0, links: [], raw: false });
    }
    await window.go('');
    await window.assertFits(`list at ${width}`);
    await window.screenshot(`desk-hostile-${width}-light`);
    await window.close();
  }
  const hostile = await browser.openDesk(broker.url, '<b>mara</b>');
  await hostile.sees('<b>mara</b>', '.bar');
  await hostile.close();
  await Promise.all(asked.map(({ question_id: id }) => broker.rest('POST', `questions/${id}/cancel`, {})));
});

test('every view fits, is accessible in both themes, and looks as in its screenshots', async () => {
  const first = await ask({ question: 'Drop the old table?', urgency: 'high', context: 'Migration 42; **1.2 M rows** in `orders_old`.\n\n- the new table '
    + 'has been filled since Monday\n- no reader has touched the old one for 9 days', links: [{ title: 'Migration 42', uri: 'https://example.org/migrations/42' }],
  options: [{ value: 'drop', label: 'Drop it', description: 'irreversible' }, { value: 'keep', label: 'Keep it' }] });
  await ask({ question: 'Async or threads?' }, 'bob');
  await ask({ question: 'Name for the crate?', urgency: 'low', to: 'lena' }, 'carol');
  await broker.rest('POST', `questions/${first.question_id}/claim`, {}, { 'X-Human': 'lena' });
  for (const [from, message] of [['alice', 'starting migration'], ['bob', 'reading package.json']]) await broker.rest('POST', 'yaps', { from, message });
  const done = await ask({ question: 'Which port?' }, 'bob');
  await broker.rest('POST', `questions/${done.question_id}/answer`, { text: '443' }, { 'X-Human': 'lena' });
  for (const width of [1280, 360]) {
    const window = await browser.openDesk(broker.url, 'mara', { width, height: 860 });
    for (const [name, place, text] of [['list', '', 'Async or threads?'], ['question', `q/${first.question_id}`, 'irreversible'],
      ['answered', `q/${done.question_id}`, '443'], ['history', 'history', 'Which port?']]) {
      await window.go(place);
      await window.sees(text);
      await window.assertFits(`${name} at ${width}`);
      for (const theme of ['light', 'dark']) {
        await window.page.emulateMedia({ colorScheme: theme });
        await window.screenshot(`desk-${name}-${width}-${theme}`);
        await window.assertAccessible(`${name} at ${width}, ${theme}`);
      }
      await window.page.emulateMedia({ colorScheme: 'light' });
    }
    await window.close();
  }
});

test('the overview of the dashboard says what waits at the desk', async () => {
  const window = await browser.open(broker.url);
  const desk = window.page.locator('.panel').filter({ has: window.page.getByRole('heading', { name: 'Desk' }) });
  await desk.getByText('Waiting questions').waitFor();
  await window.get('link', 'Answer', { exact: true }).click();
  await window.page.waitForURL(/\/desk$/);
  await window.sees('Your name');
  await window.close();
});

test('a key with the scope answer is a person, and other keys are told that they are not', async () => {
  const secured = await startSecured();
  await secured.rest('POST', 'projects', { project_id: 'acme', name: 'Acme' });
  const keys = {};
  for (const [scope, more] of [['answer', { human: 'mara', roles: ['oncall'] }], ['member', {}]]) {
    keys[scope] = (await secured.rest('POST', 'projects/acme/keys', { scope, ...more })).api_key;
  }
  const asked = await secured.rest('POST', 'questions', { from: 'alice', question: 'Restart it?', to: 'oncall' }, { 'X-API-Key': keys.member });
  const mara = await browser.openAt(`${secured.url}/desk`);
  await mara.page.goto(mara.address);
  await mara.assertAccessible('the login form');
  await mara.logIn(keys.answer);
  await mara.sees('Restart it?', 'nav.list');
  await mara.go(`q/${asked.question_id}`);
  await mara.page.getByLabel('Your answer').fill('yes');
  await mara.get('button', 'Send').click();
  await mara.sees(/mara answered/, 'main');
  await mara.get('button', 'Log out').click();
  await mara.sees('You are logged out.');
  await mara.logIn(keys.member);
  await mara.sees('this key asks and does not answer', '[role=alert]');
  await mara.close([NOT_LOGGED_IN, /status of 403/]);
  await secured.stop();
});
