import { randomUUID } from 'node:crypto';
import { expect, onTestFinished, test } from 'vitest';
import { stateRefusal } from '../../src/core/errors.ts';
import { claimSession } from '../../src/invocations/lock-store.ts';
import { appendEvents } from '../../src/conversation/sessions/append-store.ts';
import { startApp } from '../support/app.ts';
import { openPool } from '../support/store.ts';
import { startTokenIssuer } from '../support/token-issuer.ts';
import { staged } from '../support/staged.ts';

/** Users whose agents fill what all users share (the built-in tools write no `app:` state, agents in code may). */

const tokens = staged(() => startTokenIssuer());
const app = staged(() => startApp({ ...tokens.environment, DEV_UI: 'false' }));

const SESSIONS = (user: string) => `/apps/harness_agent/users/${user}/sessions`;
const stateEvent = (name: string) => ({
  id: randomUUID(),
  invocationId: 'e-1',
  author: 'harness_agent',
  actions: { stateDelta: { [name]: 'x'.repeat(30_000) } },
});

test('agents write so much `app:` state for one user, and as before for others', async () => {
  const store = openPool(app.databaseUrl, 2);
  onTestFinished(() => store.close());
  const agentOf = async (userId: string) => {
    const key = { appName: 'harness_agent', userId, sessionId: randomUUID() };
    const lease = { key, invocationId: randomUUID(), token: randomUUID(), durationMs: 60_000 };
    await claimSession(store.db, lease, [], true);
    return (name: string) => appendEvents(store.db, key, [stateEvent(name)], { leaseToken: lease.token });
  };
  const [mallory, alice] = [await agentOf('mallory'), await agentOf('alice')];
  await mallory('app:a');
  await mallory('app:b');
  const refusal = await mallory('app:c').catch((error: unknown) => stateRefusal(error));
  expect(refusal).toBe('Agents have written as much `app:` state for this user as they may for one: 65536 bytes.');
  await alice('app:d');
  // What an operator takes over is the operator's, and makes room.
  const operator = await tokens.headersOf('mallory', { scopes: 'read write admin' });
  const { body } = await app.post(SESSIONS('mallory'), { state: { 'app:a': 'mine' } }, operator);
  expect((body as { state: object }).state).toEqual({
    'app:a': 'mine',
    'app:b': expect.any(String),
    'app:d': expect.any(String),
  });
  await mallory('app:c');
});

test('a state has so many keys: that of a session, and that of a user', async () => {
  const bob = await tokens.headersOf('bob');
  const keys = (count: number, prefix = '') =>
    Object.fromEntries(Array.from({ length: count }, (_, index) => [`${prefix}k${index}`, 1]));
  const full = { status: 413, body: { detail: 'The state would have more than 10000 keys.' } };
  await app.post(SESSIONS('bob'), { sessionId: 's', state: { ...keys(10_000), ...keys(10_000, 'user:') } }, bob);
  for (const stateDelta of [{ more: 1 }, { 'user:more': 1 }])
    expect(await app.send('PATCH', `${SESSIONS('bob')}/s`, { stateDelta }, bob)).toMatchObject(full);
  expect(await app.post(SESSIONS('bob'), { state: keys(10_001) }, bob)).toMatchObject(full);
  expect((await app.send('PATCH', `${SESSIONS('bob')}/s`, { stateDelta: { k0: 2 } }, bob)).status).toBe(200);
});
