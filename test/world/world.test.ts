import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { playMcp } from './mcp.ts';
import { playProvider } from './provider.ts';
import type { Case, Played } from './case.ts';

/**
 * A tour of the world as it is: what real providers, servers and clients send and take, each oddity one file below
 * `cases/`. The protocol says who plays it; to add one is to add a file.
 */

const folder = new URL('cases/', import.meta.url);
const play = (played: Case): Promise<Played> => (played.protocol === 'mcp' ? playMcp(played) : playProvider(played));

const cases = readdirSync(folder, { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.json'))
  .toSorted()
  .map((name) => [name, JSON.parse(readFileSync(new URL(name, folder), 'utf8')) as Case] as const);

test('there are cases, each with a sentence and a source', () => {
  expect(cases.length).toBeGreaterThan(20);
  for (const [name, { about, source }] of cases) {
    expect([name, about]).toEqual([name, expect.stringMatching(/\S.{20,}\.$/s)]);
    expect([name, source]).toEqual([name, expect.stringMatching(/\S{3,}/)]);
  }
});

test.each(cases)('%s', async (_name, played) => {
  const { found, holds } = await play(played);
  expect({ about: played.about, found }).toEqual({ about: played.about, found: holds });
});
