// The picture of who talks to whom: every participant up to 200, groups above, and always the table.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { NOTE } from './agent.js';
import { Broker } from './broker.js';
import { Browser, SCREENSHOTS } from './browser.js';

const TEAMS = ['billing', 'crawler', 'editor', 'planner', 'translator'];

let broker, browser;
before(async () => {
  [broker, browser] = await Promise.all([Broker.start(), Browser.start()]);
  await broker.rest('POST', 'protocols', NOTE);
});
after(() => Promise.all([browser?.stop(), broker?.stop()]));

const send = (from, to) => broker.rest('POST', 'messages',
  { from, recipient_id: to, protocol_name: 'note', protocol_version: '1.0.0', payload: { text: 'x' } });

/** Each member of each team talks to its neighbour and to the first member of the next team. */
async function talk(members) {
  const names = TEAMS.flatMap((team) => Array.from({ length: members }, (_, at) => `${team}-${at + 1}`));
  // A first message makes its sender, so that the others find it.
  for (const name of names) await broker.rest('POST', 'messages', { from: name, protocol_name: 'note', protocol_version: '1.0.0', payload: { text: 'here' },
    capability_filter: { features: ['none has this'] } }).catch(() => {});
  for (const [at, name] of names.entries()) {
    await send(name, names[(at + 1) % names.length]);
    await send(name, names[(Math.floor(at / members) * members + members) % names.length]);
  }
}

test('200 participants are in the picture, 205 are folded into groups', async () => {
  await talk(40);
  const window = await browser.open(broker.url);
  await window.go('flow');
  await window.sees('200 participants');
  const labels = await window.page.locator('svg.flow text').allTextContents();
  assert.equal(labels.length, 200);
  // Neighbours on the circle do not cover each other.
  const boxes = await window.page.locator('svg.flow circle').evaluateAll((circles) => circles.map((one) => [one.cx.baseVal.value, one.cy.baseVal.value]));
  const nearest = boxes.map(([x, y], at) => Math.hypot(x - boxes[(at + 1) % 200][0], y - boxes[(at + 1) % 200][1]));
  assert.ok(Math.min(...nearest) > 8, `${Math.min(...nearest)}`);
  await window.page.locator('svg.flow').scrollIntoViewIfNeeded();
  await window.page.locator('svg.flow').screenshot({ path: `${SCREENSHOTS}/flow-200.png` });
  assert.equal(await window.page.locator('tbody tr').count(), 100);
  const picture = () => window.page.locator('svg.flow').evaluate((svg) => svg.innerHTML);
  const before = await picture();
  await window.page.reload();
  await window.loaded();
  await window.sees('200 participants');
  assert.equal(await picture(), before, 'the same data gives the same picture');
  await talk(41);
  await window.page.reload();
  await window.sees('5 groups');
  await window.page.locator('svg.flow').screenshot({ path: `${SCREENSHOTS}/flow-folded.png` });
  await window.page.getByLabel('Name').fill('billing-7');
  await window.sees(/^\d participants/);
  await window.sees('billing-7', 'main table');
  await window.close();
});
