import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { testApp } from '../support/app.ts';

const app = testApp();
const list = (userId: string) => `/apps/harness_agent/users/${userId}/sessions`;
const newUser = () => `user-${randomUUID()}`;
const say = (text: string, more: object = {}) => ({
  author: 'user',
  content: { role: 'user', parts: [{ text }] },
  ...more,
});
const call = (id: string, expression: string) => ({
  author: 'harness_agent',
  usageMetadata: { totalTokenCount: Math.random() },
  content: { role: 'model', parts: [{ functionCall: { id, name: 'calculator', args: { expression } } }] },
});
const diff = async (user: string, a: string, b: string, query = '') => {
  const { status, body } = await app.get(`${list(user)}/${a}/diff?other=${b}${query}`);
  return [status, body];
};
const NONE = { differingEvents: 0, events: [], firstDifference: null, differingKeys: 0, state: [] };

test('sessions that said and did the same are the same, whatever ids, times and tokens', async () => {
  const user = newUser();
  for (const sessionId of ['a', 'b']) {
    const response = {
      role: 'user',
      parts: [{ functionResponse: { id: sessionId, name: 'calculator', response: {} } }],
    };
    const events = [say('hi'), call(sessionId, '1+1'), { author: 'harness_agent', content: response }];
    await app.post(list(user), { sessionId, state: { x: 1 }, events });
  }
  expect(await diff(user, 'a', 'b')).toEqual([200, { ...NONE, sameEvents: 3 }]);
  expect(await diff(user, 'a', 'a')).toEqual([200, { ...NONE, sameEvents: 3 }]);
});

test('a fork that goes another way differs from there on: the first difference, the others, the state', async () => {
  const user = newUser();
  const events = [say('one', { actions: { stateDelta: { n: 1 } } }), call('c', '1+1'), say('three')];
  await app.post(list(user), { sessionId: 's', state: { gone: 'x'.repeat(5_000) }, events });
  await app.post(`${list(user)}/s/fork`, { sessionId: 'f', atSequence: 1 });
  await app.post(`${list(user)}/f/events`, call('d', '1+2'));
  await app.post(`${list(user)}/f/events`, say('three', { actions: { stateDelta: { n: 2, m: null } } }));
  await app.post(`${list(user)}/f/events`, say('four'));
  const first = { sequence: 2, path: '/content/parts/0/functionCall/args/expression', value: '1+1', other: '1+2' };
  const last = { sequence: 4, path: '', value: null, other: say('four'), missing: 'value' };
  const third = {
    sequence: 3,
    path: '/actions',
    value: null,
    other: { stateDelta: { n: 2, m: null } },
    missing: 'value',
  };
  const state = [{ key: 'n', value: 1, other: 2 }];
  const expected = {
    sameEvents: 1,
    differingEvents: 3,
    events: [first, third, last],
    firstDifference: first,
    differingKeys: 2,
    state: [{ key: 'm', value: null, other: null, missing: 'value' }, ...state],
  };
  expect(await diff(user, 's', 'f')).toEqual([200, expected]);
  expect(await diff(user, 's', 'f', '&limit=1')).toEqual([
    200,
    { ...expected, events: [first], state: [expected.state[0]] },
  ]);
  expect(await diff(user, 's', 'f', '&atSequence=1&otherAtSequence=1')).toEqual([200, { ...NONE, sameEvents: 1 }]);
  expect(await diff(user, 's', 's', '&atSequence=0&limit=1')).toMatchObject([
    200,
    { differingEvents: 3, sameEvents: 0 },
  ]);
});

test('a long value is shown by its beginning; long sessions are compared whole', async () => {
  const user = newUser();
  const many = Array.from({ length: 1_500 }, (_, n) => say(`event ${n}`));
  await app.post(list(user), { sessionId: 'a', events: many, state: { long: 'x'.repeat(5_000) } });
  await app.post(list(user), { sessionId: 'b', events: many.with(1_400, say('another')) });
  const path = '/content/parts/0/text';
  const only = { sequence: 1_401, path, value: 'event 1400', other: 'another' };
  const state = [{ key: 'long', value: `"${'x'.repeat(1_999)}…`, other: null, missing: 'other' }];
  const expected = { sameEvents: 1_400, differingEvents: 1, events: [only], firstDifference: only };
  expect(await diff(user, 'a', 'b')).toEqual([200, { ...expected, differingKeys: 1, state }]);
});

test('all that differs in an event is named; what is null is told from what is missing', async () => {
  const user = newUser();
  const event = (more: object) => ({
    author: 'harness_agent',
    content: { role: 'model', parts: [{ text: 'hi' }] },
    ...more,
  });
  const lost = { errorCode: 'internal', errorMessage: 'It failed.', interrupted: true };
  await app.post(list(user), { sessionId: 'a', events: [event({ modelVersion: 'one', output: null })] });
  await app.post(list(user), { sessionId: 'b', events: [event({ modelVersion: 'two', output: 7, ...lost })] });
  const [, { events }] = (await diff(user, 'a', 'b')) as [
    number,
    { events: { path: string; further: string[]; missing?: string }[] },
  ];
  const [{ path, further, missing }] = events as [(typeof events)[number]];
  expect([path, ...further].toSorted()).toEqual([
    '/errorCode',
    '/errorMessage',
    '/interrupted',
    '/modelVersion',
    '/output',
  ]);
  expect(missing).toBe(['/modelVersion', '/output'].includes(path) ? undefined : 'value');
});

test('an absent session is 404 as the other one; what is not reached is 400', async () => {
  const user = newUser();
  await app.post(list(user), { sessionId: 'a' });
  await app.post(list('stranger'), { sessionId: 'theirs' });
  expect(await diff(user, 'a', 'theirs')).toEqual([404, { detail: 'Session not found: theirs' }]);
  expect(await diff(user, 'a', 'a', '&otherAtSequence=1')).toMatchObject([400, {}]);
  expect((await app.get(`${list(user)}/a/diff`)).status).toBe(422);
});
