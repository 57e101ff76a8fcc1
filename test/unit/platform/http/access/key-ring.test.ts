import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test, vi } from 'vitest';
import { createKey, createKeyRing } from '../../../../../src/platform/http/access/key-ring.ts';

/** Keys as values; over HTTP and with a file that changes they are `test/security/b-keys.test.ts`'s. */

const folder = mkdtempSync(join(tmpdir(), 'agent-runtime-key-ring-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const write = (text: string) => {
  writeFileSync(join(folder, 'keys'), text);
  return join(folder, 'keys');
};

test('a key of the file is found by its secret; another secret and an expired one are not', async () => {
  const limited = createKey({ id: 'one', scopes: ['read'], users: ['u1'], apps: ['a'] });
  const old = createKey({ id: 'old', scopes: ['read'], expires: '2020-01-01T00:00:00Z' });
  const find = createKeyRing({ plain: [], file: write(`# a comment\n\n${limited.entry}\n${old.entry}\n`) });
  expect(await find(limited.key)).toMatchObject({ kind: 'key', id: 'one' });
  for (const wrong of [`${limited.key}x`, 'one.', 'one', '', old.key, 'none.secret'])
    expect(await find(wrong)).toBeUndefined();
});

test.each([
  ['a line that is no JSON', 'x\n'],
  ['an id that is there twice', `${createKey({ id: 'i', scopes: ['read'] }).entry}\n`.repeat(2)],
  ['a scope that there is not', '{"id":"i","digest":"00","scopes":["root"]}\n'],
])('%s is refused', (_, text) => {
  expect(() => createKeyRing({ plain: [], file: write(text) })).toThrow(/RUNTIME_API_KEYS_FILE|keys/);
});

test('a scope that there is not makes no key', () => {
  expect(() => createKey({ scopes: ['root' as 'read'] })).toThrow(/scopes\.0/);
});

test('a file that a busy process reads slowly revokes no key, nor refuses it', async () => {
  const { key, entry } = createKey({ id: 'one', scopes: ['read'] });
  const find = createKeyRing({ plain: [], file: write(entry) });
  const principal = await find(key);
  let isRevoked = false;
  const cancel = principal?.onRevoked?.(() => (isRevoked = true));
  // Each look at the clock is a minute after the one before.
  let time = performance.now();
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => (time += 60_000));
  try {
    await expect.poll(() => clock.mock.calls.length, { interval: 50 }).toBeGreaterThan(3);
    expect(await find(key)).toMatchObject({ id: 'one' });
    expect(isRevoked).toBe(false);
  } finally {
    clock.mockRestore();
    cancel?.();
  }
});
