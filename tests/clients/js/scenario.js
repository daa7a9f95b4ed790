// How a scenario runs: one line per step, 30 seconds at most, exit code 0 or 1.

import process from 'node:process';

const DEADLINE_MS = 30_000;

let current = 'start';

/** Names what the lines that follow are about. */
export function step(text) {
  current = text;
  console.log(`  - ${text}`);
}

/** Runs `body` with the arguments of the script: where a broker is, and what is to be run of the scenario. */
export async function scenario(name, body) {
  const args = process.argv.slice(2);
  if (args.length === 0) {
    console.error(`usage: node ${process.argv[1]} ws://HOST:PORT/ws|http://HOST:PORT/mcp ...`);
    process.exit(1);
  }
  const fail = error => {
    console.error(`FAILED ${name}: ${current}\n${error?.stack ?? error}`);
    process.exit(1);
  };
  setTimeout(() => fail(new Error(`not done after ${DEADLINE_MS} ms`)), DEADLINE_MS);
  process.on('unhandledRejection', fail);
  process.on('uncaughtException', fail);
  console.log(name, ...args);
  try {
    await body(...args);
  } catch (error) {
    fail(error);
  }
  console.log(`ok ${name}`);
  process.exit(0);
}

/** What arrives by itself, in order, for whoever asks for the next. */
export class Events {
  #waiting = [];
  #readers = [];
  #count = 0;

  /** How many have arrived, taken or not. */
  get count() {
    return this.#count;
  }

  push(event) {
    this.#count += 1;
    const reader = this.#readers.shift();
    if (reader) reader(event);
    else this.#waiting.push(event);
  }

  next() {
    if (this.#waiting.length > 0) return Promise.resolve(this.#waiting.shift());
    return new Promise(resolve => this.#readers.push(resolve));
  }
}
