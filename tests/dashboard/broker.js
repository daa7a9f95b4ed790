// A broker for the tests: the real binary on a free port, and requests to its REST API.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

export const ROOT = fileURLToPath(new URL('../../', import.meta.url));
export const BINARY = process.env.BROKER_BIN ?? join(ROOT, 'target/debug/mcp-broker');
// The scripted MCP server of the tests of the gateway.
export const FAKE_BACKEND = join(dirname(BINARY), 'fake-backend');
const ADMIN_KEY = 'admin_tests_0123456789abcdef0123456789abcdef0123456789abcdef';

/** Waits until a condition holds. */
export async function until(holds, what = 'the condition') {
  const end = Date.now() + 20_000;
  for (;;) {
    if (await Promise.resolve().then(holds).catch(() => false)) return;
    if (Date.now() > end) throw new Error(`${what} does not hold after 20 seconds`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

export class Broker {
  #process;
  #folder = null;
  log = [];

  /** Starts a broker. `settings` are flags without their dashes, `file` is the text of a configuration file. A broker with
   * `admin-key` has authentication. */
  static async start(settings = {}, file = null) {
    const broker = new Broker();
    broker.settings = settings;
    if (file !== null) {
      broker.#folder = await mkdtemp(join(tmpdir(), 'dashboard-'));
      const config = join(broker.#folder, 'broker.toml');
      await writeFile(config, file);
      broker.settings = { ...settings, config };
    }
    broker.key = settings['admin-key'];
    await broker.begin();
    return broker;
  }

  async begin() {
    const flags = { port: this.port ?? 0, 'log-format': 'json', ...this.settings };
    const args = Object.entries(flags).map(([name, value]) => `--${name}=${value}`);
    this.#process = spawn(BINARY, ['serve', ...args], { stdio: ['ignore', 'ignore', 'pipe'] });
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

  until(holds, what) {
    return until(holds, what);
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
    if (this.#folder) await rm(this.#folder, { recursive: true });
  }
}

/** A broker whose callers need keys. */
export const startSecured = (settings = {}, file = null) =>
  Broker.start({ 'enable-auth': true, 'admin-key': ADMIN_KEY, ...settings }, file);

/** Three replicas with a Redis and a load balancer, as scripts/cluster starts them. */
export class Cluster {
  #process;

  static async start() {
    const cluster = new Cluster();
    cluster.#process = spawn(join(ROOT, 'scripts/cluster'), ['--json'],
      { stdio: ['ignore', 'pipe', 'inherit'], env: { ...process.env, BROKER_BIN: BINARY } });
    cluster.exited = once(cluster.#process, 'exit');
    const ended = cluster.exited.then(([code]) => { throw new Error(`scripts/cluster ended with ${code}`); });
    ended.catch(() => {});
    const [line] = await Promise.race([once(createInterface({ input: cluster.#process.stdout }), 'line'), ended]);
    const { replicas } = JSON.parse(line);
    cluster.replicas = replicas.map(({ address, pid }) => ({ port: Number(address.split(':')[1]), pid, url: `http://${address}` }));
    return cluster;
  }

  async stop() {
    // A replica that is stopped would not end, and the cluster waits for all of them.
    for (const { pid } of this.replicas) {
      try { process.kill(pid, 'SIGCONT'); } catch { /* It has ended. */ }
    }
    this.#process.kill('SIGTERM');
    await this.exited;
  }
}
