import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import type * as Access from '../../src/platform/http/access/authorize.ts';
import { createKey } from '../../src/platform/http/access/key-ring.ts';
import { startApp, type TestApp } from '../support/app.ts';
import { startTokenIssuer, type TokenIssuer } from '../support/token-issuer.ts';

/**
 * Keys of operators beside tokens of users in one process: nothing that is counted, kept or recorded for a user is that
 * of a key with the same name. The matrix has who may do what.
 */

/** False takes down the application's own check, so that row-level security stands alone. */
const wall = vi.hoisted(() => ({ isUp: true }));
vi.mock('../../src/platform/http/access/authorize.ts', async (original) => {
  const real = await original<typeof Access>();
  const createAuthorize: typeof Access.createAuthorize = (operation) => {
    const authorize = real.createAuthorize(operation);
    return (principal, resource) => {
      if (wall.isUp) authorize(principal, resource);
    };
  };
  return { ...real, createAuthorize };
});

const KEY = createKey({ id: 'batch', scopes: ['invoke', 'read', 'write', 'admin'] });
const file = join(mkdtempSync(join(tmpdir(), 'agent-runtime-both-')), 'keys');
writeFileSync(file, KEY.entry);
const byKey = { authorization: `Bearer ${KEY.key}` };

let tokens: TokenIssuer;
let app: TestApp;
beforeAll(async () => {
  tokens = await startTokenIssuer();
  app = await startApp({
    ...tokens.environment,
    RUNTIME_API_KEYS_FILE: file,
    EVALS: 'true',
    AUDIT: 'all',
    MAX_WRITES_PER_MINUTE: '30',
  });
});
afterEach(() => {
  wall.isUp = true;
});
afterAll(async () => {
  await app.close();
  await tokens.close();
});

const sessionsOf = (user: string) => `/apps/harness_agent/users/${encodeURIComponent(user)}/sessions`;
const make = (user: string, headers: Record<string, string>, body: object = {}) =>
  app.post(sessionsOf(user), body, headers);

test('each is told what it is', async () => {
  const asUser = await tokens.headersOf('batch');
  expect((await app.get('/caller', asUser)).body).toMatchObject({ kind: 'user', id: 'batch', users: ['batch'] });
  const { body } = await app.get('/caller', byKey);
  expect(body).toMatchObject({ kind: 'key', id: 'batch' });
  expect(body).not.toHaveProperty('users');
});

test('an Idempotency-Key of one is another one for the other', async () => {
  const again = { 'idempotency-key': 'the same' };
  const ids: unknown[] = [];
  for (const headers of [await tokens.headersOf('batch'), byKey]) {
    const [first, second] = [
      await make('batch', { ...headers, ...again }),
      await make('batch', { ...headers, ...again }),
    ];
    expect([first.status, second.text]).toEqual([200, first.text]);
    ids.push((first.body as { id: string }).id);
  }
  expect(new Set(ids).size).toBe(2);
});

test('a verdict of a key is not replaced by a user who is called like its author', async () => {
  const owner = 'key batch';
  const asUser = await tokens.headersOf(owner);
  await make(owner, byKey, { sessionId: 'judged' });
  const verdict = `${sessionsOf(owner)}/judged/verdict`;
  expect((await app.send('PUT', verdict, { passed: false }, byKey)).status).toBe(200);
  expect((await app.send('PUT', verdict, { passed: true }, asUser)).status).toBe(200);
  expect((await app.send('PUT', verdict, { passed: null }, asUser)).status).toBe(200);
  const { body } = await app.get('/apps/harness_agent/session-verdicts', byKey);
  expect(body).toMatchObject({ items: [{ author: 'key batch', passed: false }] });
});

test('the rates of a user are not those of the key, and the audit tells the two apart', async () => {
  const asUser = await tokens.headersOf('batch');
  const statuses = new Set<number>();
  for (let n = 0; n < 31 && !statuses.has(429); n += 1) statuses.add((await make('batch', asUser)).status);
  expect([...statuses]).toEqual([200, 429]);
  expect((await make('batch', byKey)).status).toBe(200);
  const listed = async (query: string) =>
    (await app.get(`/audit?operation=createSession&limit=100&caller=batch&${query}`, byKey)).body as {
      items: { callerKind: string; reason?: string }[];
    };
  const kinds = async (query: string) => [...new Set((await listed(query)).items.map(({ callerKind }) => callerKind))];
  expect(await kinds('callerKind=user')).toEqual(['user']);
  expect(await kinds('callerKind=key')).toEqual(['key']);
  await expect.poll(async () => (await listed('callerKind=user&decision=refused')).items).toHaveLength(1);
  expect((await listed('callerKind=key&decision=refused')).items).toEqual([]);
});

test('row-level security alone holds for a token beside keys', async () => {
  await make('ann', byKey, { sessionId: 'hers' });
  const [ann, bob] = [await tokens.headersOf('ann'), await tokens.headersOf('bob')];
  wall.isUp = false;
  const idsFor = async (headers: Record<string, string>) =>
    ((await app.get(sessionsOf('ann'), headers)).body as { id: string }[]).map(({ id }) => id);
  expect([await idsFor(bob), await idsFor(ann), await idsFor(byKey)]).toEqual([[], ['hers'], ['hers']]);
  const session = `${sessionsOf('ann')}/hers`;
  expect((await app.get(session, bob)).status).toBe(404);
  const hello = { appName: 'harness_agent', userId: 'ann', sessionId: 'hers', newMessage: { parts: [{ text: 'Hi' }] } };
  expect((await app.post('/run', hello, bob)).status).toBe(404);
  expect((await app.send('DELETE', session, undefined, bob)).status).not.toBe(500);
  expect((await app.get(session, ann)).body).toMatchObject({ id: 'hers', events: [] });
});
