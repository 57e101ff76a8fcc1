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

/** Attacks of one signed-in user on a real process: `npm run test:security`. */
export default defineConfig({
  test: {
    projects: [
      {
        // What another user may see and do has no times in it: two files at once.
        test: {
          ...shared,
          name: 'rights',
          include: ['test/security/{b,d,e}-*.test.ts'],
          exclude: ['test/security/e-worst-input.test.ts'],
          maxWorkers: 2,
          sequence: { groupOrder: 0 },
        },
      },
      {
        // What an attack costs others is measured, so one file after the other.
        test: {
          ...shared,
          name: 'load',
          include: ['test/security/{a,c}-*.test.ts', 'test/security/e-worst-input.test.ts'],
          maxWorkers: 1,
          fileParallelism: false,
          // None replaces a module, so all share what one has loaded: the services that are measured are processes.
          isolate: false,
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
});
