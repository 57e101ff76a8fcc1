import { SignJWT } from 'jose';
import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Answer, startApp, type TestApp } from '../support/app.ts';
import { type Issuer, type SigningKey, signingKey, startIssuer } from '../support/issuer.ts';

/**
 * Two users of tokens: what is one's does not exist for the other, also where a body or a header names it. Row-level
 * security, the second wall, is taken down here: it would hide that the application's own check is missing.
 */

let issuer: Issuer;
let key: SigningKey;
let app: TestApp;
let alice: Record<string, string>;
let bob: Record<string, string>;

const tokenOf = async (user: string) => {
  const claims = new SignJWT({ sub: user, scope: 'invoke read write develop' }).setProtectedHeader({
    alg: 'ES256',
    kid: 'one',
  });
  const token = await claims.setIssuer(issuer.url).setAudience('runtime').setExpirationTime('2h').sign(key.privateKey);
  return { authorization: `Bearer ${token}` };
};

beforeAll(async () => {
  key = await signingKey('ES256', 'one');
  issuer = await startIssuer([key.jwk]);
  app = await startApp({ JWT_ISSUER: issuer.url, JWT_AUDIENCE: 'runtime', JWT_SCOPE_CLAIM: 'scope', DEV_UI: 'true' });
  await takeDownRowSecurity(app.databaseUrl);
  [alice, bob] = [await tokenOf('alice'), await tokenOf('bob')];
  await app.post('/apps/harness_agent/users/alice/sessions', { sessionId: 'hers' }, alice);
});
afterAll(async () => {
  await app.close();
  await issuer.close();
});

async function takeDownRowSecurity(databaseUrl: string): Promise<void> {
  const client = new Client({ connectionString: databaseUrl });
  await client.connect();
  const { rows } = await client.query<{ name: string }>(
    'select oid::regclass::text as name from pg_class where relrowsecurity',
  );
  // Each by itself: the service works meanwhile, and locks tables in its own order.
  for (const { name } of rows) await client.query(`alter table ${name} disable row level security`);
  await client.end();
}

const run = (sessionId: string, userId = 'alice') => ({
  appName: 'harness_agent',
  userId,
  sessionId,
  newMessage: { role: 'user', parts: [{ text: 'Hello' }] },
});
const eventsOf = async (sessionId: string, user: string, headers: Record<string, string>) =>
  ((await app.get(`/apps/harness_agent/users/${user}/sessions/${sessionId}`, headers)).body as { events: unknown[] })
    .events;
const bytes = ({ status, text }: Answer) => [status, text];
const absent = (sessionId: string) => [404, `{"detail":"Session not found: ${sessionId}"}`];

const ADD = '/dev/apps/harness_agent/eval-sets/set/add-session';
const bodyOperations: [path: string, body: (sessionId: string, userId: string) => object][] = [
  ['/run', run],
  ['/run_sse', run],
  [ADD, (sessionId, userId) => ({ evalId: 'case', sessionId, userId })],
  ['/dev/apps/harness_agent/eval_sets/set/add_session', (sessionId, userId) => ({ evalId: 'case', sessionId, userId })],
  ['/apps/harness_agent/eval_sets/set/add_session', (sessionId, userId) => ({ evalId: 'case', sessionId, userId })],
];

describe.each(bodyOperations)('POST %s', (path, bodyOf) => {
  test("another user's session is as absent as one that is not there", async () => {
    expect(bytes(await app.post(path, bodyOf('hers', 'alice'), bob))).toEqual(absent('hers'));
    expect(bytes(await app.post(path, bodyOf('nobodys', 'bob'), bob))).toEqual(absent('nobodys'));
    expect(await eventsOf('hers', 'alice', alice)).toEqual([]);
    expect((await app.get('/dev/apps/harness_agent/eval-sets', alice)).body).toEqual({ evalSetIds: [] });
  });

  test('is refused for its form before it is compared with the caller', async () => {
    expect((await app.post(path, { ...bodyOf('hers', 'alice'), sessionId: 1 }, bob)).status).toBe(422);
  });
});

describe('POST /invoke', () => {
  const invoke = (headers: Record<string, string>) => app.post('/invoke', { prompt: 'Hello' }, headers);

  test("another user's session is absent, and none is created for somebody else", async () => {
    expect(bytes(await invoke({ ...bob, user_id: 'alice', session_id: 'hers' }))).toEqual(absent('hers'));
    expect(bytes(await invoke({ ...bob, user_id: 'alice', session_id: 'new' }))).toEqual(absent('new'));
    expect((await invoke({ ...bob, session_id: 'new' })).status).toBe(404);
    expect(await eventsOf('hers', 'alice', alice)).toEqual([]);
    const sessions = (await app.get('/apps/harness_agent/users/alice/sessions', alice)).body as { id: string }[];
    expect(sessions.map(({ id }) => id)).toEqual(['hers']);
  });

  test('runs for the caller', async () => {
    expect((await invoke({ ...bob, user_id: 'bob', session_id: 'his' })).status).toBe(200);
    expect((await eventsOf('his', 'bob', bob)).length).toBeGreaterThan(1);
  });
});

describe('the owner', () => {
  test.each(['/run', '/run_sse'])('runs with %s', async (path) => {
    const sessionId = path.slice(1);
    await app.post('/apps/harness_agent/users/alice/sessions', { sessionId }, alice);
    expect((await app.post(path, run(sessionId), alice)).status).toBe(200);
    expect((await eventsOf(sessionId, 'alice', alice)).length).toBeGreaterThan(1);
  });

  test('adds a session to an evaluation set', async () => {
    expect(bytes(await app.post(ADD, { evalId: 'own', sessionId: 'run', userId: 'alice' }, alice))).toEqual([
      200,
      'null',
    ]);
  });
});

describe('an Idempotency-Key', () => {
  const sameKey = { 'idempotency-key': 'the same' };

  test('is its user’s: another one’s request with it is another request', async () => {
    const create = (user: string, headers: Record<string, string>) =>
      app.post(`/apps/harness_agent/users/${user}/sessions`, { sessionId: `of-${user}` }, { ...headers, ...sameKey });
    for (const [user, headers] of [
      ['alice', alice],
      ['bob', bob],
    ] as const) {
      const { status, body } = await create(user, headers);
      expect([status, body]).toMatchObject([200, { id: `of-${user}`, userId: user }]);
    }
  });

  test('is its operation’s: the same key may come with another one', async () => {
    const own = { ...alice, 'idempotency-key': 'one key' };
    const created = await app.post('/apps/harness_agent/users/alice/sessions', { sessionId: 'k' }, own);
    expect([created.status, created.body]).toMatchObject([200, { id: 'k' }]);
    const saved = await app.post(
      '/apps/harness_agent/users/alice/sessions/k/artifacts',
      { filename: 'f', artifact: { text: 'x' } },
      own,
    );
    expect([saved.status, saved.body]).toMatchObject([200, { version: 0 }]);
  });
});
