import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { securityPage } from '../../../docs/security.ts';

test('docs/security.md has the bounds of all that comes in: npm run docs:config', () => {
  expect(readFileSync(new URL('../../../docs/security.md', import.meta.url), 'utf8')).toBe(securityPage());
});
