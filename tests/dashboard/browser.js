// Debian's Chromium with the page in it. What the console says, and what the content security policy refuses, fails a test.
import assert from 'node:assert/strict';
import { mkdir, readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { chromium } from 'playwright-core';
import { ROOT } from './broker.js';

export const SCREENSHOTS = join(ROOT, 'target/dashboard');
export const TIMEOUT_MS = 20_000;
const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

// What a browser says of every answer that is no success. Tests name the ones that they cause.
const FAILED_LOAD = /^Failed to load resource/;
// The desk claims a question as it knows it. If a change has come first, it is refused, and the page reads the question again.
const LATE_CLAIM = /status of 412.*\/claim$/;

export class Browser {
  #browser;

  static async start() {
    const browser = new Browser();
    const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium';
    browser.#browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage'] });
    await mkdir(SCREENSHOTS, { recursive: true });
    return browser;
  }

  /** A window of the dashboard with cookies of its own. */
  async open(url, { prefix = '', ...look } = {}) {
    const window = await this.openAt(`${url}${prefix}/dashboard`, look);
    await window.go('overview');
    return window;
  }

  /** A window of the desk, at which a person with a name sits. */
  async openDesk(url, name, look = {}) {
    const window = await this.openAt(`${url}/desk`, { width: 1280, ...look });
    await window.page.goto(window.address);
    await window.page.getByLabel('Your name').fill(name);
    await window.page.keyboard.press('Enter');
    await window.live();
    return window;
  }

  /** An empty window with cookies of its own, for the page at an address. */
  async openAt(address, { width = 1440, height = 900, theme = 'light', ...options } = {}) {
    const context = await this.#browser.newContext({ viewport: { width, height }, colorScheme: theme, reducedMotion: 'reduce',
      locale: 'en-GB', timezoneId: 'Europe/Berlin', ...options });
    context.setDefaultTimeout(TIMEOUT_MS);
    return new Window(await context.newPage(), address);
  }

  async stop() {
    await this.#browser.close();
  }
}

/** A page with what went wrong in it. */
class Window {
  problems = [];
  failedLoads = [];

  constructor(page, address) {
    this.page = page;
    this.address = address;
    page.on('console', (message) => {
      if (!['error', 'warning'].includes(message.type())) return;
      const where = message.location().url;
      if (FAILED_LOAD.test(message.text())) this.failedLoads.push(`${message.text()} ${where}`);
      else this.problems.push(`${message.type()}: ${message.text()} ${where}`);
    });
    page.on('pageerror', (error) => this.problems.push(error.stack));
    page.on('request', (request) => {
      const isOwn = request.url().replace(/^blob:/, '').startsWith(new URL(address).origin);
      if (!isOwn && !request.url().startsWith('data:')) this.problems.push(`asked ${request.url()}`);
    });
  }

  /** Goes to a view and waits until its data is there. */
  async go(place) {
    await this.page.goto(`${this.address}#/${place}`);
    await this.loaded();
  }

  async loaded() {
    await this.page.waitForFunction(() => document.querySelector('main') && !document.querySelector('.loading, [aria-busy=true]')
      && document.fonts.status === 'loaded');
  }

  get(role, name, options = {}) {
    return this.page.getByRole(role, { name, ...options });
  }

  /** Waits until the page shows a text. */
  async sees(text, within = 'body') {
    await this.page.locator(within).getByText(text).filter({ visible: true }).first().waitFor();
  }

  async seesNot(text, within = 'body') {
    await this.page.waitForFunction(([wanted, place]) => !document.querySelector(place)?.textContent.includes(wanted), [text, within]);
  }

  async live() {
    await this.page.locator('.live').getByText('Live').waitFor({ state: 'attached' });
  }

  async logIn(key) {
    await this.page.getByLabel('API key').fill(key);
    await this.get('button', 'Log in').click();
  }

  /** Presses a button, confirms, and returns what the dialog says then. */
  async act(button, verb) {
    await button.click();
    const dialog = this.page.getByRole('dialog');
    await dialog.getByRole('button', { name: verb, exact: true }).click();
    await dialog.getByRole('button', { name: 'Close' }).waitFor();
    const said = await dialog.locator('.said').textContent();
    await dialog.getByRole('button', { name: 'Close' }).click();
    await dialog.waitFor({ state: 'detached' });
    return said;
  }

  /** When the page first shows a text, in milliseconds since the epoch. The promise is to be awaited after the cause. */
  whenShown(text, within = 'main') {
    return this.page.evaluate(([wanted, place]) => new Promise((resolve) => {
      const isShown = () => document.querySelector(place).textContent.includes(wanted);
      const observer = new MutationObserver(() => {
        if (!isShown()) return;
        observer.disconnect();
        requestAnimationFrame(() => resolve(Date.now()));
      });
      observer.observe(document.body, { subtree: true, childList: true, characterData: true });
    }), [text, within]);
  }

  /** What axe finds that is serious or critical. */
  async assertAccessible(what) {
    if (!await this.page.evaluate(() => 'axe' in window)) await this.page.evaluate(axe);
    const violations = await this.page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }).then((found) => found.violations
      .filter(({ impact }) => ['serious', 'critical'].includes(impact))
      .map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ html, failureSummary }) => `${html}\n${failureSummary}`).join('\n')}`)));
    assert.deepEqual(violations, [], what);
  }

  /** The page is not wider than the window. */
  async assertFits(what) {
    const over = await this.page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    assert.ok(over <= 0, `${what} is ${over} pixels too wide`);
  }

  async screenshot(name) {
    await this.page.screenshot({ path: join(SCREENSHOTS, `${name}.png`), animations: 'disabled' });
  }

  /** Nothing went wrong but what the test caused. */
  assertClean(expected = []) {
    const unexpected = this.failedLoads.filter((text) => ![LATE_CLAIM, ...expected].some((one) => one.test(text)));
    assert.deepEqual([...this.problems, ...unexpected], []);
  }

  async close(expected) {
    await this.page.context().close();
    this.assertClean(expected);
  }
}

/** The answers that a page without a login gets before the form. */
export const NOT_LOGGED_IN = /status of 401.*\/api\/v1\/(me|events)/;
