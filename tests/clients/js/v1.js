// The official SDK v1 with the transports it ships.

import WebSocket from 'ws';
import * as z from 'zod';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { WebSocketClientTransport } from '@modelcontextprotocol/sdk/client/websocket.js';
import { ResourceUpdatedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';

import { Agent, PUSH, PUSHED, connectCommand, withKey } from './agent.js';

// The transport uses the global WebSocket, which Node 20 lacks.
globalThis.WebSocket = WebSocket;

const PushedSchema = z.object({
  method: z.literal(PUSHED),
  params: z.object({ message: z.record(z.string(), z.unknown()) })
});

export class AgentV1 extends Agent {
  static sdk = 'TypeScript SDK v1';
  modern = false;
  /** The error code for a missing resource in this era. */
  resourceNotFound = -32002;

  /** `push`: the settings of the push extension, or undefined. `sse`: the transport of 2024-11-05. */
  static connect(url, { push, sse = false } = {}) {
    if (url.startsWith('stdio:')) return AgentV1.over(url, new StdioClientTransport(connectCommand(url)), push);
    const Http = sse ? SSEClientTransport : StreamableHTTPClientTransport;
    const Transport = url.startsWith('ws:') ? WebSocketClientTransport : Http;
    return AgentV1.over(url, new Transport(new URL(url), withKey()), push);
  }

  /** Connects over an existing transport. */
  static over(url, transport, push) {
    const agent = new AgentV1();
    const capabilities = push ? { experimental: { [PUSH]: push } } : {};
    agent.watch(new Client({ name: 'scenario-v1', version: '1.0.0' }, { capabilities }));
    agent.client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => agent.told(params.uri).push(params));
    agent.client.setNotificationHandler(PushedSchema, ({ params }) => agent.pushed.push(params.message));
    return agent.connect(url, transport);
  }

  subscribe(uri = this.inbox) {
    return this.client.subscribeResource({ uri });
  }

  unsubscribe(uri = this.inbox) {
    return this.client.unsubscribeResource({ uri });
  }

  /** A legacy client receives pushed messages on its connection. */
  async expectPushes() {}

  callTool(params, options) {
    return this.client.callTool(params, undefined, options);
  }
}
