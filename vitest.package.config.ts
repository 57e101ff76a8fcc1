import { defineConfig } from 'vitest/config';

/** `npm run test:package`: what is installed from the packed package, in a directory that knows nothing of this one. */
export default defineConfig({
  test: { include: ['test/package/**/*.test.ts'], testTimeout: 300_000, hookTimeout: 300_000 },
});
