import { randomInt } from 'node:crypto';
import { defineConfig } from 'vitest/config';

/** Faults are injected into real processes, two files at once: these wait for leases and starts most of their time. */
const seed = (process.env['FAULT_SEED'] ??= String(randomInt(2 ** 31)));
console.log(`fault tests: FAULT_SEED=${seed}${process.env['FAULT_LONG'] === '1' ? ' FAULT_LONG=1' : ''}`);

export default defineConfig({
  test: {
    include: ['test/fault/**/*.test.ts'],
    globalSetup: ['test/support/global-setup.ts'],
    pool: 'forks',
    maxWorkers: 2,
    disableConsoleIntercept: true,
    testTimeout: 3_600_000,
    hookTimeout: 120_000,
    expect: { poll: { timeout: 60_000 } },
  },
});
