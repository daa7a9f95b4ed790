// The official SDK v2, over Streamable HTTP, stdio or a WebSocket transport of our own.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

import { Agent, PUSH, PUSHED, connectCommand, withKey } from './agent.js';
import { WebSocketTransport } from './ws-transport.js';

export const PINNED = { pin: '2026-07-28' };

/** A schema that accepts everything: the scenario checks the broker's envelope. */
const anything = { '~standard': { version: 1, vendor: 'scenario', validate: value => ({ value }) } };

export class AgentV2 extends Agent {
  static sdk = 'TypeScript SDK v2';
  #subscriptions = new Map();

  /** `push`: the settings of the push extension, or undefined. `mode`: the mode of version negotiation. */
  static async connect(url, { push, mode = PINNED } = {}) {
    const agent = new AgentV2();
    // Each era has its own place for extensions.
    const capabilities = push ? { [mode === 'legacy' ? 'experimental' : 'extensions']: { [PUSH]: push } } : {};
    agent.watch(new Client({ name: 'scenario-v2', version: '1.0.0' }, { capabilities, versionNegotiation: { mode } }));
    agent.client.setNotificationHandler('notifications/resources/updated', ({ params }) => agent.told(params.uri).push(params));
    agent.client.setNotificationHandler(PUSHED, { params: anything }, ({ message }) => agent.pushed.push(message));
    if (url.startsWith('stdio:')) return agent.connect(url, new StdioClientTransport(connectCommand(url)));
    const Transport = url.startsWith('ws:') ? WebSocketTransport : StreamableHTTPClientTransport;
    return agent.connect(url, new Transport(new URL(url), withKey()));
  }

  get modern() {
    return this.client.getProtocolEra() === 'modern';
  }

  /** The error code for a missing resource in the modern era. The SDK maps the legacy code to it. */
  resourceNotFound = -32602;

  async subscribe(uri = this.inbox) {
    if (!this.modern) return this.client.subscribeResource({ uri });
    this.#subscriptions.set(uri, await this.client.listen({ resourceSubscriptions: [uri] }));
  }

  unsubscribe(uri = this.inbox) {
    return this.modern ? this.#subscriptions.get(uri).close() : this.client.unsubscribeResource({ uri });
  }

  /** A modern client receives pushed messages while it is subscribed. */
  async expectPushes() {
    if (this.modern) await this.subscribe();
  }

  callTool(params, options) {
    return this.client.callTool(params, options);
  }
}
