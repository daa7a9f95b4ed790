// Measures the dashboard; no part of the tests. Give it the machine alone:
//
//   cargo build --release --workspace --bins
//   BROKER_BIN=target/release/mcp-broker node tests/dashboard/measure.js paint [--sessions 10000] [--rate 1000]
//   BROKER_BIN=target/release/mcp-broker node tests/dashboard/measure.js cost [--rounds 5]
//
// `paint`: the time from an input to the next paint, as the page measures it, and to the data, with many sessions and messages.
// `cost`: the throughput of the broker with 0, 1 and 10 dashboards that show the messages, in turn. A dashboard is played by
// its requests, because a browser on the same machine would take the processor from the broker.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { dirname, join } from 'node:path';
import { parseArgs } from 'node:util';
import { Broker } from './broker.js';
import { Browser } from './browser.js';

const { positionals: [command], values } = parseArgs({ allowPositionals: true, options: { sessions: { type: 'string', default: '10000' },
  rate: { type: 'string', default: '1000' }, rounds: { type: 'string', default: '5' }, samples: { type: 'string', default: '100' } } });
const LOAD = join(dirname(process.env.BROKER_BIN ?? 'target/release/mcp-broker'), 'mcp-broker-load');

/** Runs the load generator, which needs a file for each connection. */
function load(broker, ...args) {
  const shell = 'ulimit -n $(ulimit -H -n); exec "$0" "$@"';
  return spawn('bash', ['-c', shell, LOAD, ...args, '--url', `ws://127.0.0.1:${broker.port}/ws`], { stdio: ['ignore', 'pipe', 'inherit'] });
}

async function output(child) {
  let text = '';
  child.stdout.on('data', (chunk) => { text += chunk; });
  const [code] = await once(child, 'exit');
  if (code !== 0) throw new Error(`mcp-broker-load ended with ${code}: ${text}`);
  return text;
}

const quantile = (numbers, share) => [...numbers].sort((a, b) => a - b)[Math.min(numbers.length - 1, Math.floor(numbers.length * share))];
const median = (numbers) => quantile(numbers, 0.5);

const start = () => Broker.start({ 'log-level': 'warn', 'connections-max': 50_000, 'connections-per-address': 50_000, 'stale-threshold': '1h',
  'disconnect-threshold': '2h' });

// In the page: from the time of an input to the frame after its handlers.
function watchInputs() {
  window.inputs = [];
  for (const type of ['keydown', 'click']) {
    addEventListener(type, (event) => requestAnimationFrame(() => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => window.inputs.push(performance.now() - event.timeStamp);
      port2.postMessage(null);
    }), { capture: true });
  }
}

async function paint() {
  const broker = await start();
  const children = [load(broker, 'idle', '--connections', values.sessions, '--seconds', '600', '--names', 'agent'),
    load(broker, 'direct', '--pairs', '20', '--rate', values.rate, '--seconds', '600', '--names', 'talk')];
  const browser = await Browser.start();
  try {
    const wanted = Number(values.sessions);
    while ((await broker.rest('GET', 'stats')).sessions.active < wanted) await new Promise((resolve) => setTimeout(resolve, 500));
    const window = await browser.open(broker.url);
    await window.page.evaluate(watchInputs);
    for (const [place, act] of Object.entries(interactions(window))) {
      await window.page.evaluate((hash) => { location.hash = hash; }, `#/${place}`);
      await window.loaded();
      await window.page.evaluate(() => { window.inputs = []; });
      const data = [];
      while ((await window.page.evaluate(() => window.inputs.length)) < Number(values.samples)) {
        const startedAt = performance.now();
        await act();
        await window.page.waitForFunction(() => !document.querySelector('.loading, [aria-busy=true]'));
        data.push(performance.now() - startedAt);
      }
      const inputs = await window.page.evaluate(() => window.inputs);
      const of = (numbers) => `median ${median(numbers).toFixed(1)} ms, p95 ${quantile(numbers, 0.95).toFixed(1)} ms`;
      console.log(`${place.padEnd(12)} input to paint: ${of(inputs)} (${inputs.length} inputs); to the data: ${of(data)}`);
    }
    console.log(`with ${JSON.stringify((await broker.rest('GET', 'stats')).sessions)}`);
  } finally {
    for (const child of children) child.kill('SIGTERM');
    await browser.stop();
    await broker.stop();
  }
}

// What is done in each view, one input or a few at a time.
const interactions = ({ page, get }) => ({
  'sessions': async () => {
    await page.keyboard.press('/');
    await page.keyboard.type('a');
    await page.keyboard.press('Backspace');
    await page.keyboard.press('Escape');
    await page.locator('th .sort').nth(Math.floor(Math.random() * 4)).click();
  },
  'messages': async () => {
    await page.locator('a[rel=next]').click();
    await page.keyboard.press('/');
    await page.keyboard.type('talk');
    await page.keyboard.press('Escape');
    await page.locator('.filters a').first().click();
  },
  'overview': async () => {
    await page.keyboard.press('g');
    await page.keyboard.press('s');
    await page.keyboard.press('g');
    await page.keyboard.press('o');
  },
});

// The requests of a page that shows the messages while they come: the stream, and the list once a second.
function follower(broker) {
  const abort = new AbortController();
  const stream = fetch(`${broker.url}/api/v1/events?topics=message,dead_letter`, { signal: abort.signal }).then(async (response) => {
    for await (const _ of response.body) { /* What a browser would hand to the page. */ }
  }).catch(() => {});
  const timer = setInterval(() => broker.rest('GET', 'messages?limit=50').catch(() => {}), 1_000);
  return async () => {
    clearInterval(timer);
    abort.abort();
    await stream;
  };
}

async function cost() {
  const broker = await start();
  const found = { 0: [], 1: [], 10: [] };
  try {
    for (let round = 0; round < Number(values.rounds); round += 1) {
      for (const dashboards of [0, 1, 10]) {
        const stops = Array.from({ length: dashboards }, () => follower(broker));
        const text = await output(load(broker, 'direct', '--json', '--names', `round-${round}-${dashboards}`));
        await Promise.all(stops.map((stop) => stop()));
        const { messages_per_second: rate } = JSON.parse(text);
        found[dashboards].push(rate);
        console.log(`${dashboards} dashboards: ${Math.round(rate)} messages/s`);
      }
    }
    for (const dashboards of [1, 10]) {
      const ratios = found[dashboards].map((rate, round) => rate / found[0][round]);
      console.log(`${dashboards} dashboards: median of the ratios ${median(ratios).toFixed(3)}`);
    }
  } finally {
    await broker.stop();
  }
}

const commands = { paint, cost };
if (!commands[command]) {
  console.error('measure.js paint | cost; see the first lines of the file');
  process.exit(2);
}
await commands[command]();
