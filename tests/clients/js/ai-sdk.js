// Agents with the MCP client of the AI SDK. It negotiates over HTTP and stdio (2026-07-28), and is a legacy client over
// SSE, where it sends a revision that has no such transport.

import assert from 'node:assert/strict';

import { createMCPClient } from '@ai-sdk/mcp';
import { Experimental_StdioMCPTransport as StdioTransport } from '@ai-sdk/mcp/mcp-stdio';

import { Refused, connectCommand, withKey } from './agent.js';
import { exchange } from './exchange.js';
import { scenario, step } from './scenario.js';

class AiSdkAgent {
  /** The id of its session, once it has registered. */
  session;

  static async connect(url, type) {
    const agent = new AiSdkAgent();
    const { requestInit: { headers } = {} } = withKey();
    const onUncaughtError = error => agent.problems.push(error);
    const transport = type === 'stdio' ? new StdioTransport(connectCommand(url)) : { type, url, headers };
    agent.client = await createMCPClient({ transport, onUncaughtError });
    agent.tools = await agent.client.tools();
    return agent;
  }

  problems = [];

  get version() {
    return this.client.initializeResult.protocolVersion;
  }

  async call(tool, args) {
    const { error, value } = await this.#ask(tool, args);
    if (error) throw new Refused(tool, error);
    if (tool === 'register_session') this.session = value.session_id;
    return value;
  }

  async refusal(tool, args) {
    const { error, value } = await this.#ask(tool, args);
    assert.ok(error, `${tool} was to be refused and returned ${JSON.stringify(value)}`);
    return error;
  }

  /** Calls a tool as `generateText` does. Each call names the session, as the tool descriptions ask a model to. */
  async #ask(tool, args) {
    const named = this.session ? { session_id: this.session, ...args } : args;
    const result = await this.tools[tool].execute(named, { toolCallId: tool, messages: [] });
    const value = JSON.parse(result.content[0].text);
    if (result.isError) return { error: value };
    assert.deepEqual(result.structuredContent, value, `${tool}: text and structuredContent differ`);
    return { value };
  }
}

await scenario('AI SDK', async (url, type) => {
  const [alice, bob] = [await AiSdkAgent.connect(url, type), await AiSdkAgent.connect(url, type)];
  step(`it agreed on a revision over ${type}`);
  assert.equal(alice.version, type === 'sse' ? '2025-11-25' : '2026-07-28');
  assert.ok(alice.client.instructions, 'the instructions of the broker');
  await exchange(alice, bob, 'ai');
  for (const agent of [alice, bob]) {
    // Before it closes: over SSE the client aborts, and reports, a POST whose answer came on the stream first.
    assert.deepEqual(agent.problems, []);
    await agent.client.close();
  }
});
