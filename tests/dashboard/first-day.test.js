// A first day, played with the commands of the README: two agents with the official SDK over `connect`, one person in a
// terminal and one on a phone, and a broker that restarts twice in between. At the end all views say what happened.
import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { BINARY, ROOT, until } from './broker.js';
import { Browser } from './browser.js';

const sdk = createRequire(join(ROOT, 'tests/clients/package.json'));
const { Client } = sdk('@modelcontextprotocol/sdk/client/index.js');
const { StdioClientTransport } = sdk('@modelcontextprotocol/sdk/client/stdio.js');
const run = promisify(execFile);

let home, env, browser, screen;
const agents = [];

before(async () => {
  // A short name: the path of a socket has 103 bytes at most.
  home = await mkdtemp(join(tmpdir(), 'mb-'));
  for (const folder of ['run', 'state', 'shop', 'api']) await mkdir(join(home, folder), { mode: 0o700 });
  // The port of the default belongs to the machine.
  env = { HOME: home, XDG_RUNTIME_DIR: join(home, 'run'), XDG_STATE_HOME: join(home, 'state'), MCP_BROKER_PORT: '0', USER: 'mara',
    PATH: `${dirname(BINARY)}:/usr/bin:/bin`, LANG: 'C.UTF-8', TERM: 'xterm-256color' };
  browser = await Browser.start();
});

after(async () => {
  await Promise.all(agents.map((agent) => agent.close().catch(() => {})));
  screen?.end();
  await browser?.stop();
  await command('stop').catch(() => {});
  await rm(home, { recursive: true, force: true });
});

/** Runs a command of the README, and returns what it prints. */
async function command(...words) {
  const { stdout } = await run('mcp-broker', words, { env, cwd: home });
  return stdout;
}

const json = async (...words) => (await command(...words, '--json')).trim().split('\n').map((line) => JSON.parse(line));

/** An agent as the entry of its client starts it, in a folder. */
async function start(folder) {
  const { mcpServers } = JSON.parse(await readFile(join(home, '.claude.json'), 'utf8'));
  const { command: program, args } = mcpServers.broker;
  const client = new Client({ name: 'first-day', version: '1.0.0' });
  await client.connect(new StdioClientTransport({ command: program, args, env, cwd: join(home, folder), stderr: 'ignore' }));
  await client.listTools();
  agents.push(client);
  return client;
}

async function call(client, name, args = {}) {
  const result = await client.callTool({ name, arguments: args });
  assert.ok(!result.isError, `${name}: ${result.content?.[0]?.text}`);
  return result.structuredContent ?? JSON.parse(result.content[0].text);
}

/** The texts that an agent receives next. */
async function receive(client) {
  const { messages } = await call(client, 'receive_messages', { wait_seconds: 20 });
  return messages.map(({ payload, sender_name: from }) => [from, payload.text]);
}

/** A terminal with the console of the person. */
class Screen {
  #server = `mcp-broker-first-day-${process.pid}`;

  constructor(words) {
    const variables = Object.entries(env).map(([name, value]) => `${name}='${value}'`).join(' ');
    this.tmux('-u', '-f', '/dev/null', 'new-session', '-d', '-x', '80', '-y', '24', `env -i ${variables} ${BINARY} ${words}; cat`);
  }

  tmux(...words) {
    const { status, stdout, stderr } = spawnSync('tmux', ['-L', this.#server, ...words], { encoding: 'utf8' });
    assert.equal(status, 0, stderr);
    return stdout;
  }

  async shows(text) {
    await until(() => this.tmux('capture-pane', '-p').includes(text), `the screen shows ${text}`)
      .catch((error) => { throw new Error(`${error.message}:\n${this.tmux('capture-pane', '-p')}`); });
  }

  presses(...keys) {
    this.tmux('send-keys', ...keys);
  }

  end() {
    spawnSync('tmux', ['-L', this.#server, 'kill-server']);
  }
}

test('a first day', async (t) => {
  const begun = performance.now();
  await command('setup', 'claude');
  const [shop, api] = [await start('shop'), await start('api')];
  await t.test('each agent knows its name, and hello needs no schema', async () => {
    assert.match(shop.getInstructions(), /You are "shop"/);
    await until(async () => (await json('sessions')).length === 2, 'both agents are there');
    await call(shop, 'send_message', { recipient_id: 'api', payload: { text: 'Which endpoint lists orders?' } });
    assert.deepEqual(await receive(api), [['shop', 'Which endpoint lists orders?']]);
    t.diagnostic(`from setup to the first message: ${((performance.now() - begun) / 1000).toFixed(1)} s`);
    await call(api, 'send_message', { recipient_id: 'shop', payload: { text: 'GET /orders' } });
    assert.deepEqual(await receive(shop), [['api', 'GET /orders']]);
  });

  await t.test('joining under another name keeps the session, and mail to the old name arrives', async () => {
    await call(shop, 'register_session', { name: 'alice' });
    await call(api, 'send_message', { recipient_id: 'shop', payload: { text: 'for the folder' } });
    await call(api, 'send_message', { recipient_id: 'alice', payload: { text: 'for the name' } });
    const texts = [...await receive(shop)];
    while (texts.length < 2) texts.push(...await receive(shop));
    assert.deepEqual(texts.map(([, text]) => text), ['for the folder', 'for the name']);
    const sessions = await json('sessions', '--status', 'all');
    assert.deepEqual(sessions.map(({ name }) => name).sort(), ['alice', 'api']);
  });

  await t.test('the command line speaks with the agents of its user, and leaves nobody behind', async () => {
    await command('send', '--to', 'api', 'hello from the shell');
    assert.deepEqual((await receive(api)).map(([, text]) => text), ['hello from the shell']);
    await command('send', '--from', 'alice', '--to', 'api', 'on behalf of alice');
    assert.deepEqual(await receive(api), [['alice', 'on behalf of alice']]);
    await call(shop, 'list_sessions');
    const sessions = await json('sessions', '--status', 'all');
    assert.deepEqual(sessions.map(({ name }) => name).sort(), ['alice', 'api']);
  });

  await t.test('a person answers in a terminal', async () => {
    screen = new Screen('console');
    await screen.shows('mara');
    const asked = call(api, 'clarify', { question: 'Blue or green?', wait_seconds: 40 });
    await screen.shows('Blue or green?');
    screen.presses('Enter');
    await screen.shows('Ctrl-D');
    screen.presses('-l', 'Blue');
    screen.presses('C-d');
    const { answer, state } = await asked;
    assert.deepEqual([state, answer.text], ['answered', 'Blue']);
    screen.presses('q');
  });

  await command('restart');

  await t.test('a person answers on a phone, after a restart of the broker', async () => {
    const { question_id: id } = await call(shop, 'clarify', { question: 'Async or threads?', wait_seconds: 0 });
    const [{ http }] = await json('status');
    const phone = await browser.openDesk(http, 'lena', { width: 390, height: 844 });
    await phone.get('link', /Async or threads/).click();
    await phone.page.getByLabel('Your answer').fill('Async');
    await phone.get('button', 'Send').click();
    await phone.sees(/lena answered/, 'main');
    await phone.assertFits('the desk on a phone');
    await phone.close();
    const { answer } = await call(shop, 'get_answer', { question_id: id, wait_seconds: 20 });
    assert.equal(answer.text, 'Async');
  });

  await api.close();
  await command('restart');

  await t.test('at the end, all views say what happened', async () => {
    // An agent that lives comes back by itself; one that has left does not.
    await call(shop, 'list_sessions');
    const stateOf = async (name) => (await json('sessions', '--status', 'all')).find((one) => one.name === name)?.status;
    assert.equal(await stateOf('alice'), 'active');
    await until(async () => await stateOf('api') !== 'active', 'api has left');
    const [status] = await json('status');
    assert.ok(status.running && status.warnings.length === 0, JSON.stringify(status));
    const texts = await command('messages');
    for (const text of ['Which endpoint lists orders?', 'GET /orders', 'hello from the shell']) assert.ok(texts.includes(text), texts);
    assert.match(await command('status'), /alice/);
  });
});
