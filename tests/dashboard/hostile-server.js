// An MCP server on stdio whose name, tools and lines on stderr are the arguments of its command line.
import { createInterface } from 'node:readline';

const texts = process.argv.slice(2);
const [name, version] = texts;
for (const text of texts) process.stderr.write(`${text.replaceAll('\n', ' ')}\n`);

const RESULTS = {
  initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name, version } }),
  'tools/list': () => ({ tools: texts.map((text) => ({ name: text, description: text, inputSchema: { type: 'object' } })) }),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) continue;
  const outcome = RESULTS[method] ? { result: RESULTS[method](params) } : { error: { code: -32601, message: 'Method not found' } };
  process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', id, ...outcome })}\n`);
}
