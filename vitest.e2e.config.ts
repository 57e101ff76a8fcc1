import { defineConfig } from 'vitest/config';

/** Tests that drive the Web UI in a real browser: `npm run test:e2e`. */
export default defineConfig({
  test: {
    include: ['test/e2e/**/*.test.ts'],
    globalSetup: ['test/support/global-setup.ts', 'test/support/front-ends.ts'],
    pool: 'forks',
    maxWorkers: 1,
    // Long enough for a machine under any load: they end what hangs, and no test is about them.
    testTimeout: 300_000,
    hookTimeout: 300_000,
    expect: { poll: { timeout: 60_000 } },
    // The steps of a file build on each other: what comes after a failure would only fail too.
    bail: 1,
  },
});
