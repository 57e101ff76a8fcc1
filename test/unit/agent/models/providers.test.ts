import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { agentsPage } from '../../../../docs/agents.ts';

test('docs/agents.md has the examples of all providers', () => {
  expect(readFileSync(new URL('../../../../docs/agents.md', import.meta.url), 'utf8')).toBe(agentsPage());
});
