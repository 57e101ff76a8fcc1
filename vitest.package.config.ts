import { defineConfig } from 'vitest/config';

/** `npm run test:package`: what others get: the packed package, installed elsewhere, and programs that read the document. */
export default defineConfig({
  test: { include: ['test/package/**/*.test.ts'], testTimeout: 300_000, hookTimeout: 300_000 },
});
