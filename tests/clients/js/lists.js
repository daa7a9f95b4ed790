// Prints what a client of an official SDK sees in the lists, as JSON: lists.js URL v1 | pin | legacy

import { Client as ClientV1 } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as HttpV1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { Client as ClientV2, StreamableHTTPClientTransport as HttpV2 } from '@modelcontextprotocol/client';

const [url, kind] = process.argv.slice(2);
const info = { name: 'lists', version: '1.0.0' };
const mode = kind === 'pin' ? { pin: '2026-07-28' } : 'legacy';
const client = kind === 'v1' ? new ClientV1(info) : new ClientV2(info, { versionNegotiation: { mode } });
const Http = kind === 'v1' ? HttpV1 : HttpV2;
await client.connect(new Http(new URL(url)));

/** All pages of a list. */
const all = async (list, member, key) => {
  const found = [];
  let cursor;
  do {
    const page = await list(cursor === undefined ? {} : { cursor });
    found.push(...page[member].map(item => item[key]));
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return found;
};

console.log(JSON.stringify({
  tools: await all(params => client.listTools(params), 'tools', 'name'),
  prompts: await all(params => client.listPrompts(params), 'prompts', 'name'),
  resources: await all(params => client.listResources(params), 'resources', 'uri'),
  templates: await all(params => client.listResourceTemplates(params), 'resourceTemplates', 'uriTemplate')
}));
await client.close();
process.exit(0);
