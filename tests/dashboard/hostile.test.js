// Texts that clients choose stay texts: markup, control characters of terminals, characters that turn the direction, and
// 64 KiB of one letter.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Agent, NOTE } from './agent.js';
import { Broker } from './broker.js';
import { Browser } from './browser.js';

const MARKUP = '<img src=x onerror="document.title=1"><script>window.hacked=1</script>';
const TERMINAL = '\u001b[31mred\u001b[0m \u001b]0;title\u0007';
const DIRECTION = 'abc\u202egnp.exe\u202c\u2066x\u2069';
const LONG = 'L'.repeat(64 * 1024);

// A server that calls itself and its tool so and writes such lines, and a program of such a name, which is the reason why it
// cannot be started.
const BACKENDS = `
[backends.hostile]
command = ${JSON.stringify(process.execPath)}
args = ${JSON.stringify([fileURLToPath(new URL('hostile-server.js', import.meta.url)), MARKUP, TERMINAL, DIRECTION])}

[backends.missing]
command = ${JSON.stringify(MARKUP)}
`;

let broker, browser;
before(async () => {
  [broker, browser] = await Promise.all([Broker.start({}, BACKENDS), Browser.start()]);
});
after(() => Promise.all([browser?.stop(), broker?.stop()]));

test('hostile texts are shown and do nothing', async () => {
  await broker.rest('POST', 'protocols', { ...NOTE, metadata: { description: MARKUP, author: TERMINAL.replace(/[\u0000-\u001f]/g, ''), tags: ['<b>'] } });
  const texts = [MARKUP, TERMINAL, DIRECTION, LONG];
  const names = [];
  const agents = [];
  for (const [at, text] of texts.entries()) {
    // Where the broker takes no such name, the text is in the metadata alone.
    const connect = (name) => Agent.connect(broker, name, { metadata: { text: text.slice(0, 12_000), [text.slice(0, 60)]: at }, reads: false });
    const agent = await connect(text.slice(0, 60)).catch(() => connect(`agent-${at}`));
    agents.push(agent);
    names.push(agent.name);
  }
  const sent = [];
  for (const [at, text] of texts.entries()) {
    sent.push(await agents[0].send(names[at], text, { correlation_id: text.slice(0, 100) }).catch(() => agents[0].send(names[at], text)));
  }
  const of = (path) => broker.rest('GET', `backends/${path}`);
  await broker.until(async () => (await of('hostile')).tools === 3 && (await of('missing')).state === 'failed', 'the backends');
  assert.ok((await of('missing')).reason.includes(MARKUP), 'the name of the program is in the reason');
  const window = await browser.open(broker.url);
  const places = ['overview', 'sessions', ...agents.map(({ id }) => `sessions/${id}`), 'messages', 'threads', 'flow', 'protocols', 'protocols/note/1.0.0',
    'actors', 'protocols/compatibility', 'backends', 'backends/hostile', 'backends/missing', `backends/${encodeURIComponent(MARKUP)}`, ...sent.map(({ message_id: id }) => `messages/${id}`),
    `sessions?q=${encodeURIComponent(MARKUP)}`, `${encodeURIComponent(MARKUP)}/${encodeURIComponent(MARKUP)}`];
  for (const place of places) {
    await window.go(place);
    await window.assertFits(place.slice(0, 80));
    if (/^messages\//.test(place)) {
      await window.get('button', 'Show the payload').click();
      await window.page.locator('pre.json').waitFor();
    }
    const found = await window.page.evaluate(() => ({ hacked: 'hacked' in globalThis, images: document.querySelectorAll('main img').length,
      raw: /[\u001b\u202e\u2066]/.test(document.body.innerText) }));
    assert.deepEqual(found, { hacked: false, images: 0, raw: false }, place.slice(0, 80));
  }
  await window.go('backends/hostile');
  await window.sees(MARKUP, 'main dd');
  await window.sees('␛[31mred', 'pre.json');
  await window.screenshot('hostile-backend-1440-light');
  await window.go('sessions');
  await window.screenshot('hostile-1440-light');
  await Promise.all(agents.map((agent) => agent.close()));
  await window.close([/status of 4\d\d/]);
});
