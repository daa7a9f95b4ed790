// The official SDK v1 with the WebSocket transport it ships.

import WebSocket from 'ws';
import * as z from 'zod';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { WebSocketClientTransport } from '@modelcontextprotocol/sdk/client/websocket.js';
import { ResourceUpdatedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';

import { Agent, INBOX, PUSH, PUSHED } from './agent.js';

// Node 20 has no WebSocket of its own, and the transport takes the global one.
globalThis.WebSocket = WebSocket;

const PushedSchema = z.object({
  method: z.literal(PUSHED),
  params: z.object({ message: z.record(z.string(), z.unknown()) })
});

export class AgentV1 extends Agent {
  static sdk = 'TypeScript SDK v1';
  /** What the era answers when a resource is not there. */
  resourceNotFound = -32002;

  /** `push`: the settings of the push extension, or none of it. */
  static async connect(url, { push } = {}) {
    const agent = new AgentV1();
    const capabilities = push ? { experimental: { [PUSH]: push } } : {};
    agent.watch(new Client({ name: 'scenario-v1', version: '1.0.0' }, { capabilities }));
    agent.client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => agent.updated.push(params.uri));
    agent.client.setNotificationHandler(PushedSchema, ({ params }) => agent.pushed.push(params.message));
    await agent.client.connect(new WebSocketClientTransport(new URL(url)));
    // Only after this does the SDK check results against the outputSchema of their tool.
    await agent.client.listTools();
    return agent;
  }

  subscribe(uri = INBOX) {
    return this.client.subscribeResource({ uri });
  }

  unsubscribe(uri = INBOX) {
    return this.client.unsubscribeResource({ uri });
  }

  /** A connection is all that a legacy client needs to be pushed messages. */
  async expectPushes() {}

  callTool(params, options) {
    return this.client.callTool(params, undefined, options);
  }
}
