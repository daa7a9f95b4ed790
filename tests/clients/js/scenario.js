// How a scenario runs: one line per step, 30 seconds at most, exit code 0 or 1.

import process from 'node:process';

const DEADLINE_MS = 30_000;

let current = 'start';

/** Prints the heading of the following lines. */
export function step(text) {
  current = text;
  console.log(`  - ${text}`);
}

/** Runs `body` with the arguments of the script: the address of a broker, and the part of the scenario to run. */
export async function scenario(name, body) {
  const args = process.argv.slice(2);
  if (args.length === 0) {
    console.error(`usage: node ${process.argv[1]} ws://HOST:PORT/ws|http://HOST:PORT/mcp|stdio:PROGRAM ...`);
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

/** A queue of notifications, read in order. */
export class Events {
  #waiting = [];
  #readers = [];
  #count = 0;

  /** The number of arrivals, read or not. */
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
