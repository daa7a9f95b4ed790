// A broker for the tests: the real binary on a free port, and requests to its REST API.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export const ROOT = fileURLToPath(new URL('../../', import.meta.url));
export const ADMIN_KEY = 'the-admin-key-of-these-tests-0123456789';

export class Broker {
  #process;
  log = [];

  /** Starts a broker. `settings` are flags without their dashes. A broker with `admin-key` has authentication. */
  static async start(settings = {}) {
    const broker = new Broker();
    broker.settings = settings;
    broker.key = settings['admin-key'];
    await broker.begin();
    return broker;
  }

  async begin() {
    const flags = { port: this.port ?? 0, 'log-format': 'json', ...this.settings };
    const args = Object.entries(flags).flatMap(([name, value]) => [`--${name}`, String(value)]);
    const binary = process.env.BROKER_BIN ?? join(ROOT, 'target/debug/mcp-broker');
    this.#process = spawn(binary, ['serve', ...args], { stdio: ['ignore', 'ignore', 'pipe'] });
    this.exited = once(this.#process, 'exit');
    const lines = createInterface({ input: this.#process.stderr });
    const port = new Promise((resolve, reject) => {
      lines.on('line', (line) => {
        this.log.push(line);
        const found = /ws:\/\/127\.0\.0\.1:(\d+)\/ws/.exec(line);
        if (found) resolve(Number(found[1]));
      });
      this.exited.then(([code]) => reject(new Error(`the broker ended with ${code}:\n${this.log.join('\n')}`)));
    });
    this.port = await port;
    await this.until(async () => (await fetch(`${this.url}/readyz`)).ok);
  }

  get url() {
    return `http://127.0.0.1:${this.port}`;
  }

  async rest(method, path, body, headers = {}) {
    const response = await fetch(`${this.url}/api/v1/${path}`, { method, headers: { ...(this.key ? { 'X-API-Key': this.key } : {}),
      ...(body ? { 'Content-Type': 'application/json' } : {}), ...headers }, body: body && JSON.stringify(body) });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text ? JSON.parse(text) : null;
  }

  /** Waits until a condition holds. */
  async until(holds, what = 'the condition') {
    const end = Date.now() + 20_000;
    for (;;) {
      if (await Promise.resolve().then(holds).catch(() => false)) return;
      if (Date.now() > end) throw new Error(`${what} does not hold after 20 seconds`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  async kill(signal = 'SIGKILL') {
    this.#process.kill(signal);
    await this.exited;
  }

  async stop() {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    const timer = setTimeout(() => this.#process.kill('SIGKILL'), 10_000);
    await this.kill('SIGTERM');
    clearTimeout(timer);
  }
}

/** A folder that is gone after `use`. */
export async function withFolder(use) {
  const folder = await mkdtemp(join(tmpdir(), 'mcp-broker-dashboard-'));
  try {
    return await use(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
