import { defineConfig } from 'vitest/config';

/** Attacks of one signed-in user on a real process: `npm run test:security`. */
export default defineConfig({
  test: {
    include: ['test/security/**/*.test.ts'],
    globalSetup: ['test/support/global-setup.ts'],
    pool: 'forks',
    maxWorkers: 1,
    fileParallelism: false,
    disableConsoleIntercept: true,
    testTimeout: 300_000,
    hookTimeout: 120_000,
  },
});
