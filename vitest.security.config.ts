import { defineConfig } from 'vitest/config';

const shared = {
  globalSetup: ['test/support/global-setup.ts'],
  pool: 'forks' as const,
  disableConsoleIntercept: true,
  testTimeout: 300_000,
  hookTimeout: 120_000,
  // Vitest's own second is over before a busy machine has answered once.
  expect: { poll: { timeout: 60_000 } },
};

/** Attacks on all that a service has at once, or on how soon others are served. */
const ALONE = ['test/security/c-*.test.ts', 'test/security/a-together.test.ts'];

/** Attacks of one signed-in user on a real process: `npm run test:security`. */
export default defineConfig({
  test: {
    projects: [
      {
        // What another user may see and do has no times in it, and what an attack costs is CPU time of the service's
        // thread, compared with what a fixed piece of work costs at that moment: two files at once.
        test: {
          ...shared,
          name: 'together',
          include: ['test/security/*.test.ts'],
          exclude: ALONE,
          maxWorkers: 2,
          sequence: { groupOrder: 0 },
        },
      },
      {
        test: {
          ...shared,
          name: 'alone',
          include: ALONE,
          maxWorkers: 1,
          fileParallelism: false,
          // None replaces a module, so all share what one has loaded.
          isolate: false,
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
});
