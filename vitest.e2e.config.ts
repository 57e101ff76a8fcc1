import { defineConfig } from 'vitest/config';

/** Tests that drive the Web UI in a real browser: `npm run test:e2e`. */
export default defineConfig({
  test: {
    include: ['test/e2e/**/*.test.ts'],
    globalSetup: ['test/support/global-setup.ts'],
    pool: 'forks',
    maxWorkers: 1,
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // The steps of a file build on each other: what comes after a failure would only fail too.
    bail: 1,
  },
});
