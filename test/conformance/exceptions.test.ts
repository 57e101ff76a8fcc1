import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { parse } from 'yaml';
import { exceptionsFile, REVISIONS, runSuite } from './suite.ts';

test.each(REVISIONS)('each exception of %s names a scenario of the suite', async (revision) => {
  const listed = (await runSuite(['list', '--requirements', revision])).output;
  const known = new Set([...listed.matchAll(/^ +- (\S+)/gm)].map(([, name]) => name));
  const exceptions = parse(readFileSync(exceptionsFile(revision), 'utf8')) as Record<string, string[] | null>;
  const names = Object.values(exceptions).flatMap((entries) => (entries ?? []).map((entry) => entry.split(':')[0]));
  expect(known.size).toBeGreaterThan(40);
  expect(names.filter((name) => !known.has(name))).toEqual([]);
});
