import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { AgentError } from '../../../../src/core/errors.ts';
import { FairSemaphore } from '../../../../src/platform/work/fair-semaphore.ts';

/** Acquires a place for a caller and notes when it has it. */
const acquirer = (semaphore: FairSemaphore, served: string[]) => async (caller: string, name: string) => {
  const release = await semaphore.acquire(caller);
  served.push(name);
  return release;
};
const settled = () => new Promise((resolve) => setImmediate(resolve));

test('a caller that is alone has all places', async () => {
  const served: string[] = [];
  const acquire = acquirer(new FairSemaphore(4), served);
  await Promise.all([1, 2, 3, 4].map((n) => acquire('only', `a${n}`)));
  expect(served).toEqual(['a1', 'a2', 'a3', 'a4']);
});

test('callers are served in turn, however much one of them wants', async () => {
  const served: string[] = [];
  const semaphore = new FairSemaphore(1);
  const acquire = acquirer(semaphore, served);
  const pending = [
    ...['a1', 'a2', 'a3', 'a4'].map((name) => acquire('a', name)),
    acquire('b', 'b1'),
    acquire('c', 'c1'),
    acquire('b', 'b2'),
  ];
  expect(semaphore.waiting).toBe(6);
  for (const each of pending) void each.then((release) => release());
  await Promise.all(pending);
  expect(served).toEqual(['a1', 'a2', 'b1', 'c1', 'a3', 'b2', 'a4']);
  expect(semaphore.waiting).toBe(0);
});

test('while others wait a caller gets no more than a quarter of the places', async () => {
  const served: string[] = [];
  const acquire = acquirer(new FairSemaphore(12), served);
  const first = await Promise.all(Array.from({ length: 12 }, () => acquire('a', 'a')));
  for (let n = 0; n < 9; n++) void acquire('a', 'A');
  for (let n = 0; n < 3; n++) void acquire('b', 'B');
  for (let n = 0; n < 5; n++) void acquire('c', 'C');
  served.length = 0;
  for (const release of first.slice(0, 9)) release();
  await settled();
  // Then none waits that has less than three, and places go in turn.
  expect(served.join('')).toBe('BCBCBCACA');
  for (const release of first.slice(9)) release();
  await settled();
  expect(served.slice(9)).toEqual(['C', 'A', 'A']);
});

test('a place is given back once, and a waiter that gave up gets none', async () => {
  const semaphore = new FairSemaphore(1, { timeoutMs: 5, message: 'too long' });
  const release = await semaphore.acquire('a');
  await expect(semaphore.acquire('a')).rejects.toThrow('too long');
  expect(semaphore.waiting).toBe(0);
  release();
  release();
  const next = await semaphore.acquire('b');
  await expect(Promise.race([semaphore.acquire('c'), sleep(1, 'waits')])).resolves.toBe('waits');
  next();
});

test('a waiter that is aborted gets no place, now or later, and one that is aborted before it asks neither', async () => {
  const semaphore = new FairSemaphore(1, { timeoutMs: 600_000, message: 'busy' });
  const release = await semaphore.acquire('a');
  const [aborted, early] = [new AbortController(), AbortSignal.abort(new AgentError('cancelled', 'early'))];
  const waiting = semaphore.acquire('b', aborted.signal);
  aborted.abort(new AgentError('cancelled', 'not wanted'));
  await expect(waiting).rejects.toThrow('not wanted');
  expect(semaphore.waiting).toBe(0);
  release();
  await expect(semaphore.acquire('b', early)).rejects.toThrow('early');
  (await semaphore.acquire('c'))();
});

test('where that is strict, a caller has no more than its share, however many places are free', async () => {
  const served: string[] = [];
  const semaphore = new FairSemaphore(4, { timeoutMs: 600_000, message: 'busy', isStrict: true });
  const acquire = acquirer(semaphore, served);
  const [first] = await Promise.all([acquire('a', 'a1'), acquire('a', 'a2')]);
  const third = acquire('a', 'a3');
  await acquire('b', 'b1');
  expect(served).toEqual(['a1', 'a2', 'b1']);
  first();
  await third;
  expect(served).toEqual(['a1', 'a2', 'b1', 'a3']);
});
