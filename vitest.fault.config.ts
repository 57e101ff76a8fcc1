import { randomInt } from 'node:crypto';
import { defineConfig } from 'vitest/config';

/** Faults are injected into real processes, one file after another: times are part of what is asserted. */
const seed = (process.env['FAULT_SEED'] ??= String(randomInt(2 ** 31)));
console.log(`fault tests: FAULT_SEED=${seed}${process.env['FAULT_LONG'] === '1' ? ' FAULT_LONG=1' : ''}`);

export default defineConfig({
  test: {
    include: ['test/fault/**/*.test.ts'],
    globalSetup: ['test/support/global-setup.ts'],
    pool: 'forks',
    maxWorkers: 1,
    fileParallelism: false,
    disableConsoleIntercept: true,
    testTimeout: 3_600_000,
    hookTimeout: 120_000,
    expect: { poll: { timeout: 60_000 } },
  },
});
