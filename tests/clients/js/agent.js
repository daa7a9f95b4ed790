// What the scenarios need of a client, whichever SDK is behind it.

import assert from 'node:assert/strict';

import { Events } from './scenario.js';

export const INBOX = 'broker://inbox';
export const PUSH = 'dev.mcp-broker/push';
export const UNREAD = 'dev.mcp-broker/unread';
export const PUSHED = 'notifications/dev.mcp-broker/message';
export const ACKNOWLEDGE = 'notifications/dev.mcp-broker/ack';

/** A failure inside a tool: the error object of the broker. */
export class Refused extends Error {
  constructor(tool, error) {
    super(`${tool} was refused: ${JSON.stringify(error)}`);
    this.error = error;
  }
}

/** A client of one of the SDKs. The subclass brings what its SDK spells differently. */
export class Agent {
  /** The URI of each `notifications/resources/updated`. */
  updated = new Events();
  /** Each message that was pushed. */
  pushed = new Events();
  /** What the SDK reports apart from answers: a frame that it could not read, for example. */
  problems = [];

  watch(client) {
    client.onerror = error => this.problems.push(error);
    this.gone = new Promise(resolve => (client.onclose = resolve));
    this.client = client;
  }

  /** Calls a tool; its result, which the SDK has checked against the outputSchema. */
  async call(tool, args = {}) {
    const { error, value } = await this.#ask(tool, args);
    if (error) throw new Refused(tool, error);
    return value;
  }

  /** Calls a tool that must refuse; the error object. */
  async refusal(tool, args = {}) {
    const { error, value } = await this.#ask(tool, args);
    assert.ok(error, `${tool} was to be refused and returned ${JSON.stringify(value)}`);
    assert.equal(typeof error.message, 'string');
    return error;
  }

  /** How many messages wait, as the `_meta` of every tool result says. */
  async unread() {
    const result = await this.callTool({ name: 'heartbeat', arguments: {} });
    return result._meta?.[UNREAD];
  }

  async #ask(tool, args) {
    const result = await this.callTool({ name: tool, arguments: args });
    assert.equal(result.content[0]?.type, 'text', `${tool} answers with text too`);
    const value = JSON.parse(result.content[0].text);
    if (result.isError) return { error: value };
    assert.deepEqual(result.structuredContent, value, `${tool}: text and structuredContent differ`);
    return { value };
  }

  tools() {
    return this.client.listTools().then(result => result.tools);
  }

  /** Asks for messages until a signal says that they are not wanted any more. */
  poll(signal) {
    return this.callTool({ name: 'receive_messages', arguments: { wait_seconds: 20 } }, { signal });
  }

  async read(uri) {
    const { contents } = await this.client.readResource({ uri });
    assert.deepEqual(contents.map(content => content.uri), [uri]);
    return JSON.parse(contents[0].text);
  }

  /** Acknowledges by notification: `{message_ids}` or `{up_to}`. */
  acknowledge(params) {
    return this.client.notification({ method: ACKNOWLEDGE, params });
  }

  /** Hangs up, and waits until the socket is closed. */
  async close() {
    await this.client.close();
    await this.gone;
  }
}
