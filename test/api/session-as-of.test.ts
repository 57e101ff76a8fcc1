import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { testApp } from '../support/app.ts';

const app = testApp();
const list = (userId: string) => `/apps/harness_agent/users/${userId}/sessions`;
const one = (userId: string, sessionId = 's') => `${list(userId)}/${sessionId}`;
const newUser = () => `user-${randomUUID()}`;
const at = (timestamp: number, stateDelta: object) => ({ author: 'user', timestamp, actions: { stateDelta } });

interface Session {
  id: string;
  state: Record<string, unknown>;
  events: { timestamp: number }[];
  lastUpdateTime: number;
}

test('a session as it was after each event: its events, its state, its time', async () => {
  const user = newUser();
  await app.post(list(user), { sessionId: 's', state: { a: 0, kept: true, 'user:x': 'first' } });
  const deltas = [{ a: 1 }, { b: 2, 'user:x': 'own', 'temp:t': 1 }, { a: null, 'app:y': 3 }, { a: 4 }];
  for (const [n, delta] of deltas.entries()) await app.post(`${one(user)}/events`, at(100 + n, delta));
  await app.post(list(user), { sessionId: 'other', state: { 'user:x': 'of another', 'app:y': 'of another' } });
  const states = [
    { a: 0, kept: true },
    { a: 1, kept: true },
    { a: 1, b: 2, kept: true, 'user:x': 'own' },
    { a: null, b: 2, kept: true, 'user:x': 'own', 'app:y': 3 },
    { a: 4, b: 2, kept: true, 'user:x': 'own', 'app:y': 3 },
  ];
  const now = (await app.get(one(user))).body as Session;
  const createTime = expect.any(Number);
  for (const [n, state] of states.entries()) {
    const expected = {
      ...now,
      state,
      events: now.events.slice(0, n),
      lastUpdateTime: n === 0 ? createTime : n === 4 ? now.lastUpdateTime : 99 + n,
    };
    expect((await app.get(`${one(user)}?atSequence=${n}`)).body).toEqual(expected);
    expect((await app.get(`${one(user)}?atTime=${99.5 + n}`)).body).toEqual(expected);
    const detailed = await app.get(`${one(user)}?atSequence=${n}&withDetails=true`);
    expect(detailed.body).toEqual({ ...expected, createTime, lastSequence: n, labels: {}, firstText: '' });
  }
  const some = await app.get(`${one(user)}?atSequence=3&afterSequence=1&numRecentEvents=5`);
  expect((some.body as Session).events).toEqual(now.events.slice(1, 3));
  const recent = await app.get(`${one(user)}?atSequence=3&numRecentEvents=1`);
  expect((recent.body as Session).events).toEqual(now.events.slice(2, 3));
});

test('what is after an event that is later than the time is not of then, whatever time it says', async () => {
  const user = newUser();
  await app.post(list(user), { sessionId: 's', events: [at(10, { a: 1 }), at(30, { a: 2 }), at(20, { a: 3 })] });
  const seen = async (time: number) =>
    ((await app.get(`${one(user)}?atTime=${encodeURIComponent(time)}`)).body as Session).events.length;
  expect([await seen(-1e300), await seen(10), await seen(25), await seen(30), await seen(1e300)]).toEqual([
    0, 1, 1, 3, 3,
  ]);
});

test('a sequence that was not reached is 400, one and a time is 422, an absent session 404', async () => {
  const user = newUser();
  await app.post(list(user), { sessionId: 's', events: [at(10, {})] });
  const ahead = await app.get(`${one(user)}?atSequence=2`);
  expect([ahead.status, ahead.body]).toEqual([400, { detail: 'The session has 1 events; it has not reached 2.' }]);
  expect((await app.get(`${one(user)}?atSequence=1&atTime=1`)).status).toBe(422);
  expect((await app.get(`${one(user, 'absent')}?atSequence=0`)).status).toBe(404);
});

test('a long session as of a place in it comes whole, in parts', async () => {
  const user = newUser();
  const events = Array.from({ length: 2_500 }, (_, n) => at(n, { n, [`k${n % 10}`]: '\u0000' }));
  await app.post(list(user), { sessionId: 's', events });
  const body = (await app.get(`${one(user)}?atSequence=2400&withDetails=true`)).body as Session;
  expect(body.events.map(({ timestamp }) => timestamp)).toEqual(Array.from({ length: 2_400 }, (_, n) => n));
  expect(body.state).toMatchObject({ n: 2_399, k3: '\u0000' });
});
