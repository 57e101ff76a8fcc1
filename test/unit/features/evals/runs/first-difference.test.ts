import { expect, test } from 'vitest';
import type { Part } from '../../../../../src/core/content.ts';
import type { Event } from '../../../../../src/core/event.ts';
import { firstDifference } from '../../../../../src/features/evals/runs/summary.ts';

const said = (parts: Part[], more: Event = {}): Event => ({
  author: 'agent',
  content: { role: 'model', parts },
  ...more,
});
const question: Event = { author: 'user', content: { role: 'user', parts: [{ text: 'q' }] } };
const call = (args: object, id = 'c') => said([{ functionCall: { id, name: 'f', args: { ...args } } }]);

test('ids, times and what a provider counts are no difference', () => {
  const before = [question, call({ a: 1 }), said([{ text: 'x' }], { id: '1', timestamp: 1, modelVersion: 'm' })];
  const after = [question, call({ a: 1 }, 'd'), said([{ text: 'x' }], { id: '2', timestamp: 2, modelVersion: 'n' })];
  expect(firstDifference(before, after)).toBeUndefined();
});

test.each<[string, Event[], Event[], object]>([
  ['a text', [said([{ text: 'x' }])], [said([{ text: 'y' }])], { event: 1, path: '/texts/0', before: 'x', after: 'y' }],
  [
    'an argument deep in a call',
    [call({ 'a/b': { c: [1, 2] } })],
    [call({ 'a/b': { c: [1, 3] } })],
    { event: 1, path: '/calls/0/args/a~1b/c/1', before: 2, after: 3 },
  ],
  [
    'an argument that is absent',
    [call({ a: 1 })],
    [call({})],
    { event: 1, path: '/calls/0/args/a', before: 1, after: null },
  ],
  [
    'who speaks',
    [said([{ text: 'x' }])],
    [said([{ text: 'x' }], { author: 'b' })],
    { path: '/author', event: 1, before: 'agent', after: 'b' },
  ],
  [
    'an event that only one of them has',
    [],
    [said([], { errorCode: 'model_timeout' })],
    {
      event: 1,
      path: '',
      before: null,
      after: { author: 'agent', texts: [], calls: [], responses: [], errorCode: 'model_timeout' },
    },
  ],
])('%s is named by event and path, the first one only', (_, before, after, expected) => {
  const later = said([{ text: 'later' }]);
  expect(firstDifference([question, ...before, ...(before.length ? [later] : [])], [question, ...after])).toEqual(
    expected,
  );
});
