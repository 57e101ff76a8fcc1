import { beforeEach, expect, test } from 'vitest';
import type { Invocation } from '../../../src/invocations/invocation.ts';
import { LocalRun } from '../../../src/invocations/local-run.ts';

/** What a follower in the same process gets of an invocation, and when it has to read on elsewhere. */

const MEBIBYTE = 1_048_576;
const ended = { id: 'i', status: 'succeeded' } as Invocation;
let run: LocalRun;
beforeEach(() => {
  run = new LocalRun(false);
});

const toEvent = (id: string) => ({ id, author: 'a', invocationId: 'i' });
const add = (sequence: number, text = `event ${sequence}`) =>
  run.addFrame({ text, event: toEvent(`e${sequence}`), sequence });
const addText = (sequence: number, delta: number) =>
  run.addDelta({ text: `piece ${delta}`, event: toEvent('next'), sequence, delta });

/** Reads until the follower is let go. @returns the texts and what following returned */
async function read(after: number, { withText = true, signal = new AbortController().signal } = {}) {
  const texts: string[] = [];
  const steps = run.follow(after, signal, withText);
  for (;;) {
    const { value, done } = await steps.next();
    if (done) return { texts, hasEnded: value };
    texts.push(value.text);
  }
}

test('the prompt, the text as it comes and the events, up to the end', async () => {
  run.begin(4, [{ sequence: 5, text: 'prompt' }], [toEvent('e5')]);
  expect(run.before).toBe(4);
  const reading = read(4);
  addText(5, 1);
  addText(5, 2);
  add(6, 'answer');
  run.end(ended);
  expect(await reading).toEqual({ texts: ['prompt', 'piece 1', 'piece 2', 'answer'], hasEnded: true });
  expect(run.invocation).toBe(ended);
});

test('who wants no text gets none', async () => {
  addText(4, 1);
  add(5);
  run.end(ended);
  expect(await read(4, { withText: false })).toEqual({ texts: ['event 5'], hasEnded: true });
});

test('a partial event that is not stored is not shown', async () => {
  run.addFrame({ text: 'partial', event: toEvent('e5'), sequence: undefined });
  add(5);
  run.end(ended);
  expect(await read(4)).toEqual({ texts: ['event 5'], hasEnded: true });
});

test('what the follower has already is dropped by its sequence', async () => {
  for (const sequence of [5, 6, 7]) add(sequence);
  run.end(ended);
  expect(await read(6)).toEqual({ texts: ['event 7'], hasEnded: true });
});

test('the last events come although the run ends while an earlier one is taken', async () => {
  add(5);
  const steps = run.follow(4, new AbortController().signal, false);
  expect(await steps.next()).toMatchObject({ value: { text: 'event 5' } });
  add(6);
  run.end(ended);
  expect(await steps.next()).toMatchObject({ value: { text: 'event 6' } });
  expect(await steps.next()).toEqual({ value: true, done: true });
});

test.each([
  ['an event of another client', () => add(6)],
  ['text behind an event of another client', () => addText(5, 1)],
])('%s is a gap: the follower reads on elsewhere, even if the run has ended', async (_, appendNext) => {
  appendNext();
  run.end(ended);
  expect(await read(4)).toEqual({ texts: [], hasEnded: false });
});

test('text of an event whose beginning the follower has not is not shown', async () => {
  addText(4, 1);
  add(5);
  run.end(ended);
  expect(await read(5)).toEqual({ texts: [], hasEnded: false });
});

test('a follower that is more than 1 MiB behind reads on elsewhere', async () => {
  const text = 'x'.repeat(MEBIBYTE / 4);
  for (let sequence = 5; sequence <= 9; sequence++) add(sequence, text);
  run.end(ended);
  expect(await read(4)).toEqual({ texts: [], hasEnded: false });
});

test('one that is 1 MiB behind does not', async () => {
  const text = 'x'.repeat(MEBIBYTE / 4);
  for (let sequence = 5; sequence <= 8; sequence++) add(sequence, text);
  run.end(ended);
  expect(await read(4)).toEqual({ texts: [text, text, text, text], hasEnded: true });
});

test('one that was let back while it took an event reads on elsewhere', async () => {
  const text = 'x'.repeat(MEBIBYTE / 2);
  add(5, text);
  const steps = run.follow(4, new AbortController().signal, false);
  await steps.next();
  for (const sequence of [6, 7, 8]) add(sequence, text);
  expect(await steps.next()).toEqual({ value: false, done: true });
});

test('a run that left this process has not ended', async () => {
  add(5);
  const reading = read(4);
  run.leave();
  expect(await reading).toEqual({ texts: ['event 5'], hasEnded: false });
});

test('a run that has ended does not leave', async () => {
  run.end(undefined);
  run.leave();
  expect(await read(4)).toEqual({ texts: [], hasEnded: true });
});

test('a follower whose client has gone stops, and nothing is kept for it', async () => {
  const client = new AbortController();
  const reading = read(4, { signal: client.signal });
  client.abort();
  expect(await reading).toEqual({ texts: [], hasEnded: false });
  add(5);
  run.end(ended);
  expect(await read(4)).toEqual({ texts: [], hasEnded: false });
});

test('another event at the place of one that was shown, after a failover, is a gap', async () => {
  add(5, 'lost with the primary');
  add(5, 'at its place');
  add(6);
  run.end(ended);
  expect(await read(4)).toEqual({ texts: ['lost with the primary'], hasEnded: false });
});
