// An agent for the tests: MCP over a WebSocket, in the legacy era, with messages pushed to it.
import WebSocket from 'ws';

export const NOTE = { name: 'note', version: '1.0.0', schema: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] } };

export class Agent {
  #socket;
  #calls = new Map();
  #next = 1;
  received = [];

  /** Connects and registers. With `reads: false` messages stay in the inbox. */
  static async connect(broker, name, { key = broker.key, reads = true, acknowledges = true, capabilities, metadata } = {}) {
    const agent = new Agent();
    agent.name = name;
    agent.acknowledges = acknowledges;
    const headers = key ? { 'X-API-Key': key } : {};
    agent.#socket = new WebSocket(`ws://127.0.0.1:${broker.port}/ws`, 'mcp', { headers });
    agent.closed = new Promise((resolve) => agent.#socket.on('close', (code) => {
      for (const { reject } of agent.#calls.values()) reject(new Error(`closed with ${code}`));
      resolve(code);
    }));
    await new Promise((resolve, reject) => agent.#socket.once('open', resolve).once('error', reject));
    agent.#socket.on('error', () => {});
    agent.#socket.on('message', (data) => agent.#hear(JSON.parse(data)));
    const push = reads ? { experimental: { 'dev.mcp-broker/push': { window: 64, ack: acknowledges ? 'auto' : 'manual' } } } : {};
    await agent.#request('initialize', { protocolVersion: '2025-11-25', capabilities: push, clientInfo: { name: 'test', version: '1' } });
    agent.#send({ method: 'notifications/initialized' });
    const session = await agent.call('register_session', { name, metadata,
      capabilities: capabilities ?? { supported_protocols: { note: ['1.0.0'] }, supported_features: ['tests'] } });
    // As lists show it: the last eight digits of the own id act as the session.
    agent.id = `${session.session_id.slice(0, -8)}00000000`;
    return agent;
  }

  async call(name, args = {}) {
    const { structuredContent, isError, content } = await this.#request('tools/call', { name, arguments: args });
    if (isError) throw new Error(content[0].text);
    return structuredContent;
  }

  send(recipient, text, headers) {
    return this.call('send_message', { recipient_id: recipient, protocol_name: 'note', protocol_version: '1.0.0',
      payload: { text }, headers });
  }

  async close() {
    this.#socket.close();
    await this.closed;
  }

  #request(method, params) {
    const id = this.#next++;
    const answer = new Promise((resolve, reject) => this.#calls.set(id, { resolve, reject }));
    this.#send({ id, method, params });
    return answer;
  }

  #send(frame) {
    this.#socket.send(JSON.stringify({ jsonrpc: '2.0', ...frame }));
  }

  #hear({ id, method, result, error, params }) {
    if (method) {
      if (params?.message) this.received.push(params.message);
      return;
    }
    const { resolve, reject } = this.#calls.get(id);
    this.#calls.delete(id);
    if (error) reject(new Error(error.message));
    else resolve(result);
  }
}
