// The interface that the scenarios need of a client, for every SDK.

import assert from 'node:assert/strict';
import process from 'node:process';

import { Events } from './scenario.js';

/** Options of a transport that sends the key in BROKER_KEY, if set, with every request. */
export function withKey() {
  const key = process.env.BROKER_KEY;
  return key ? { requestInit: { headers: { Authorization: `Bearer ${key}` } } } : {};
}

/** The command of a server over stdio: `stdio:PROGRAM`, in the environment of the scenario. */
export function connectCommand(url) {
  return { command: url.slice('stdio:'.length), args: ['connect'], env: process.env };
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

/** A client of one of the SDKs. A subclass has the parts that differ. */
export class Agent {
  /** The pushed messages. */
  pushed = new Events();
  /** Errors that the SDK reports outside of answers: an unreadable frame, for example. */
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
    // Whether the broker reads frames in the order in which they are sent. HTTP requests may overtake each other.
    this.ordered = !url.startsWith('http:');
    // A front keeps its client when the broker closes its own connection.
    this.hasFront = url.startsWith('stdio:');
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

  /** Whether the client is stateless: each request has to name the session. */
  get stateless() {
    return this.modern && !this.ordered;
  }

  /** The URI of its inbox. A stateless client has to name the session in it. */
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

  /** The number of waiting messages in the `_meta` of the last tool result. */
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

  /** Arguments of a tool or of a notification; over stateless HTTP with the session. */
  #named(args = {}) {
    return this.stateless && this.session ? { session_id: this.session, ...args } : args;
  }

  tools() {
    return this.client.listTools().then(result => result.tools);
  }

  /** Begins a long poll and returns when the broker waits. Returns its answer and its progress. */
  async poll(args = {}, signal) {
    const progress = new Events();
    const options = { signal, onprogress: event => progress.push(event) };
    const answer = this.call('receive_messages', { wait_seconds: 20, ...args }, options);
    // If frames are read in order, the answer to a later request proves it too, and sooner.
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

  /** Closes the transport and waits for it. Over HTTP it also ends the HTTP session. */
  async close() {
    await this.transport.terminateSession?.();
    await this.client.close();
    await this.gone;
  }
}
