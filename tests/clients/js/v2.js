// The official SDK v2, over Streamable HTTP or a WebSocket transport of our own.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

import { Agent, PUSH, PUSHED, withKey } from './agent.js';
import { WebSocketTransport } from './ws-transport.js';

export const PINNED = { pin: '2026-07-28' };

/** A schema that lets everything through: the broker's envelope is checked by the scenario. */
const anything = { '~standard': { version: 1, vendor: 'scenario', validate: value => ({ value }) } };

export class AgentV2 extends Agent {
  static sdk = 'TypeScript SDK v2';
  #subscriptions = new Map();

  /** `push`: the settings of the push extension, or none of it. `mode`: how to agree on a protocol version. */
  static async connect(url, { push, mode = PINNED } = {}) {
    const agent = new AgentV2();
    // Each era has its own place for extensions.
    const capabilities = push ? { [mode === 'legacy' ? 'experimental' : 'extensions']: { [PUSH]: push } } : {};
    agent.watch(new Client({ name: 'scenario-v2', version: '1.0.0' }, { capabilities, versionNegotiation: { mode } }));
    agent.client.setNotificationHandler('notifications/resources/updated', ({ params }) => agent.told(params.uri).push(params));
    agent.client.setNotificationHandler(PUSHED, { params: anything }, ({ message }) => agent.pushed.push(message));
    const Transport = url.startsWith('ws:') ? WebSocketTransport : StreamableHTTPClientTransport;
    return agent.connect(url, new Transport(new URL(url), withKey()));
  }

  get modern() {
    return this.client.getProtocolEra() === 'modern';
  }

  /** What the modern era answers when a resource is not there. The SDK makes this of what the legacy one answers. */
  resourceNotFound = -32602;

  async subscribe(uri = this.inbox) {
    if (!this.modern) return this.client.subscribeResource({ uri });
    this.#subscriptions.set(uri, await this.client.listen({ resourceSubscriptions: [uri] }));
  }

  unsubscribe(uri = this.inbox) {
    return this.modern ? this.#subscriptions.get(uri).close() : this.client.unsubscribeResource({ uri });
  }

  /** A modern client is pushed messages while it is subscribed. */
  async expectPushes() {
    if (this.modern) await this.subscribe();
  }

  callTool(params, options) {
    return this.client.callTool(params, options);
  }
}
