// What the scenarios need of a client, whichever SDK is behind it.

import assert from 'node:assert/strict';

import { Events } from './scenario.js';

/** Options of a transport that brings the key of BROKER_KEY with every request, if there is one. */
export function withKey() {
  const key = process.env.BROKER_KEY;
  return key ? { requestInit: { headers: { Authorization: `Bearer ${key}` } } } : {};
}

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
  /** Each message that was pushed. */
  pushed = new Events();
  /** What the SDK reports apart from answers: a frame that it could not read, for example. */
  problems = [];
  /** The id of its session, once it has registered. */
  session;
  #told = new Map();

  watch(client) {
    client.onerror = error => this.problems.push(error);
    this.gone = new Promise(resolve => (client.onclose = resolve));
    this.client = client;
  }

  async connect(url, transport) {
    // Whether the broker reads everything in the order in which it is sent. HTTP requests overtake each other.
    this.ordered = url.startsWith('ws:');
    this.transport = transport;
    await this.client.connect(transport);
    // Only after this does the SDK check results against the outputSchema of their tool.
    await this.client.listTools();
    return this;
  }

  /** Each `notifications/resources/updated` of a URI. */
  told(uri) {
    if (!this.#told.has(uri)) this.#told.set(uri, new Events());
    return this.#told.get(uri);
  }

  /** Whether the broker knows nothing of it between two requests, so that each has to name the session. */
  get stateless() {
    return this.modern && !this.ordered;
  }

  /** Its inbox. Who is not known by the connection has to say whose it is. */
  get inbox() {
    return this.stateless ? this.namedInbox : INBOX;
  }

  get namedInbox() {
    return `broker://sessions/${this.session}/inbox`;
  }

  /** Calls a tool; its result, which the SDK has checked against the outputSchema. */
  async call(tool, args, options) {
    const { error, value } = await this.#ask(tool, args, options);
    if (error) throw new Refused(tool, error);
    if (tool === 'register_session') this.session = value.session_id;
    return value;
  }

  /** Calls a tool that must refuse; the error object. */
  async refusal(tool, args) {
    const { error, value } = await this.#ask(tool, args);
    assert.ok(error, `${tool} was to be refused and returned ${JSON.stringify(value)}`);
    assert.equal(typeof error.message, 'string');
    return error;
  }

  /** How many messages wait, as the `_meta` of every tool result says. */
  async unread() {
    const result = await this.callTool({ name: 'heartbeat', arguments: this.#named() });
    return result._meta?.[UNREAD];
  }

  async #ask(tool, args, options) {
    const result = await this.callTool({ name: tool, arguments: this.#named(args) }, options);
    assert.equal(result.content[0]?.type, 'text', `${tool} answers with text too`);
    const value = JSON.parse(result.content[0].text);
    if (result.isError) return { error: value };
    assert.deepEqual(result.structuredContent, value, `${tool}: text and structuredContent differ`);
    return { value };
  }

  /** What a tool, or a notification of ours, is told: over stateless HTTP also for whom. */
  #named(args = {}) {
    return this.stateless && this.session ? { session_id: this.session, ...args } : args;
  }

  tools() {
    return this.client.listTools().then(result => result.tools);
  }

  /** Begins a long poll; the broker is waiting with it then. What it will answer, and each progress it tells of. */
  async poll(args = {}, signal) {
    const progress = new Events();
    const options = { signal, onprogress: event => progress.push(event) };
    const answer = this.call('receive_messages', { wait_seconds: 20, ...args }, options);
    // Where frames are read in order, the answer to a later one tells of it too, and sooner.
    await (this.ordered ? this.call('heartbeat') : progress.next());
    return { answer, progress };
  }

  async read(uri) {
    const { contents } = await this.client.readResource({ uri });
    assert.deepEqual(contents.map(content => content.uri), [uri]);
    return JSON.parse(contents[0].text);
  }

  /** Acknowledges by notification: `{message_ids}` or `{up_to}`. */
  acknowledge(params) {
    return this.client.notification({ method: ACKNOWLEDGE, params: this.#named(params) });
  }

  /** Hangs up, and waits until the transport is closed. A session of HTTP is ended besides. */
  async close() {
    await this.transport.terminateSession?.();
    await this.client.close();
    await this.gone;
  }
}
