#!/usr/bin/env node
// Runs the binary of the package for this platform, in place of this process where Node can do that, else as its child.
'use strict';

const { spawn } = require('node:child_process');
const { constants } = require('node:os');
const { isatty } = require('node:tty');

const platform = `${process.platform}-${process.arch}`;

function binary() {
  const name = `@mcp-broker/${platform}`;
  try {
    return require.resolve(`${name}/bin/mcp-broker`);
  } catch {
    const known = Object.keys(require('../package.json').optionalDependencies);
    return fail(
      known.includes(name)
        ? `the package ${name} is missing: install mcp-broker again, without --omit=optional`
        : `there is no binary for ${platform}: build it from the sources, ${require('../package.json').homepage}`,
    );
  }
}

function fail(reason) {
  process.stderr.write(`mcp-broker: ${reason}\n`);
  process.exit(1);
}

// One process in place of two: signals, the exit code and the parent are those of the binary. Node has it since 22.15.
function replaceThisProcess(file, args) {
  if (!process.execve) return;
  try {
    process.execve(file, [file, ...args], process.env);
  } catch {
    // The permission model of Node forbids it, or this system cannot. A child serves as well.
  }
}

function runAsChild(file, args) {
  const child = spawn(file, args, { stdio: 'inherit' });
  child.on('error', (error) => fail(`${file} cannot be run: ${error.message}`));
  for (const signal of ['SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGTERM']) {
    process.on(signal, () => {
      // A terminal sends these two to the child too.
      const isFromTerminal = (signal === 'SIGINT' || signal === 'SIGQUIT') && isatty(0);
      if (!isFromTerminal) child.kill(signal);
    });
  }
  child.on('exit', (code, signal) => {
    if (!signal) process.exit(code);
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
    // A signal that this process survives.
    process.exitCode = 128 + constants.signals[signal];
  });
}

const [file, args] = [binary(), process.argv.slice(2)];
replaceThisProcess(file, args);
runAsChild(file, args);
