import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { operationsPage } from '../../../../docs/operations.ts';

test('docs/operations.md has every metric with its labels: npm run docs:config', () => {
  expect(readFileSync(new URL('../../../../docs/operations.md', import.meta.url), 'utf8')).toBe(operationsPage());
});
