// Agents behind mcp-remote, the bridge by which clients that know only stdio reach a server over HTTP.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import process from 'node:process';

import { StdioClientTransport, getDefaultEnvironment } from '@modelcontextprotocol/sdk/client/stdio.js';

import { exchange } from './exchange.js';
import { scenario, step } from './scenario.js';
import { AgentV1 } from './v1.js';

const BRIDGE = join(dirname(createRequire(import.meta.url).resolve('mcp-remote/package.json')), 'dist/proxy.js');

/** The folder of a bridge's state, removed with the scenario. */
const folder = mkdtempSync(join(tmpdir(), 'mcp-remote-'));
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));

/** A bridge to the broker, with this key if given. Its output is kept. */
function bridge(url, strategy, key) {
  const header = key ? ['--header', `X-API-Key:${key}`] : [];
  const transport = new StdioClientTransport({
    command: process.execPath,
    args: [BRIDGE, url, '--transport', strategy, ...header],
    env: { ...getDefaultEnvironment(), MCP_REMOTE_CONFIG_DIR: folder },
    stderr: 'pipe'
  });
  transport.said = '';
  transport.stderr.on('data', text => (transport.said += text));
  return transport;
}

await scenario('mcp-remote', async (url, strategy) => {
  const key = process.env.BROKER_KEY;
  if (key) {
    step('a bridge without a key ends, and says why');
    const locked = bridge(url, strategy);
    await assert.rejects(AgentV1.over(url, locked));
    assert.match(locked.said, /404/, locked.said);
  }
  const connect = () => AgentV1.over(url, bridge(url, strategy, key));
  const [alice, bob] = [await connect(), await connect()];
  await exchange(alice, bob, 'remote');
  for (const agent of [alice, bob]) {
    await agent.close();
    assert.deepEqual(agent.problems, []);
  }
});
