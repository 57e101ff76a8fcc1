import { createHash } from 'node:crypto';
import { Client } from 'pg';
import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import type { Part } from '../../src/core/content.ts';
import { client, startApp, startOn, type TestApp } from '../support/app.ts';
import { type ConsentIssuer, startConsentIssuer } from '../support/consent-issuer.ts';
import { startTokenIssuer, type TokenIssuer } from '../support/token-issuer.ts';

/** Users give access to an MCP server in their browsers, at a service with logins and on a second replica. */

const APP = '/apps/harness_agent/users';
interface RunEvent {
  invocationId: string;
  content: { parts: Part[] };
  longRunningToolIds?: string[];
}

let [issuer, hostile]: (ConsentIssuer | undefined)[] = [];
let logins: TokenIssuer;
let environment: Record<string, string>;
let app: TestApp;
let local: Awaited<ReturnType<typeof startOn>>;
let sql: Client;
beforeAll(async () => {
  [issuer, hostile] = [await startConsentIssuer(), await startConsentIssuer('http://169.254.169.254')];
  logins = await startTokenIssuer();
  const entry = ({ server }: ConsentIssuer, name: string) => ({ name, url: server.url, user_oauth: {} });
  const allowed = [issuer, hostile].flatMap(({ url, server }) => [url, new URL(server.url).origin]);
  environment = {
    MCP_SERVERS: JSON.stringify([entry(issuer, 'docs'), entry(hostile, 'hostile')]),
    MCP_ALLOWED_HOSTS: allowed.join(','),
    RUNTIME_SECRET_KEY: 'kw7Jt2Qz9xL4mNs8Vb3c',
    OAUTH_REDIRECT_URL: 'http://front.example/back',
  };
  app = await startApp({ ...environment, ...logins.environment, DEV_UI: 'false' });
  local = await startOn(app.databaseUrl, environment);
  sql = new Client({ connectionString: app.databaseUrl });
  await sql.connect();
});
afterAll(async () => {
  await sql.end();
  await local.close();
  await app.close();
  await Promise.all([issuer?.close(), hostile?.close(), logins.close()]);
});

const as = async (user: string) => logins.headersOf(user, { scopes: 'invoke read write' });
async function run(user: string, part: Part, own = {}): Promise<RunEvent[]> {
  const at = { appName: 'harness_agent', userId: user, sessionId: 's' };
  await app.post(`${APP}/${user}/sessions`, { sessionId: 's' }, await as(user));
  const { body } = await app.post(
    '/run',
    { ...at, newMessage: { role: 'user', parts: [part] }, ...own },
    await as(user),
  );
  return body as RunEvent[];
}
const answersIn = (events: RunEvent[]) =>
  events.flatMap(({ content }) => content.parts.flatMap(({ functionResponse }) => functionResponse?.response ?? []));

/** Asks for access to a server. @returns the page, and what confirms the open call */
async function ask(user: string, name = 'docs') {
  const events = await run(user, { text: `use connect_${name} {}` });
  const [call] = events.flatMap(({ longRunningToolIds: ids, content }) =>
    content.parts.flatMap(({ functionCall }) =>
      functionCall && ids?.includes(functionCall.id ?? '') ? functionCall : [],
    ),
  );
  const { url: page = '', hint } = (call?.args?.['toolConfirmation'] ?? {}) as { url?: string; hint?: string };
  const confirm = (confirmed: boolean) =>
    run(
      user,
      { functionResponse: { id: call?.id ?? '', name: call?.name ?? '', response: { confirmed } } },
      { invocationId: events[0]?.invocationId },
    );
  return { page, hint, confirm, events };
}
const callback = async (user: string, back: URL | string) =>
  app.get(`/oauth/callback${new URL(back).search}`, await as(user));
async function grant(user: string) {
  const { page, confirm } = await ask(user);
  const back = (await issuer?.open(page)) ?? '';
  expect(await callback(user, back)).toMatchObject({ status: 200 });
  return { back, confirm };
}
const tokenRequests = () => (issuer?.asked ?? []).filter(({ path }) => path === '/token').length;

test('a call waits while its user gives access in a browser; then the tools of the server are there', async () => {
  const { page, hint, confirm } = await ask('ann');
  expect(hint).toContain(page);
  expect(page).toContain(`resource=${encodeURIComponent(issuer?.server.url ?? '')}`);
  const back = (await issuer?.open(page)) ?? '';
  expect(String(back)).toMatch(/^http:\/\/front\.example\/back\?/);
  // Another user who has the address gives nothing to either.
  expect((await callback('eve', back)).status).toBe(404);
  expect((await app.get(`/oauth/callback${new URL(back).search}`)).status).toBe(401);
  expect((await callback('ann', back)).body).toEqual({
    appName: 'harness_agent',
    userId: 'ann',
    sessionId: 's',
    resource: issuer?.server.url,
  });
  expect((await callback('ann', back)).status).toBe(404);
  expect(answersIn(await confirm(true))).toEqual([{ result: 'There is access, and the tools can be called.' }]);
  expect(answersIn(await run('ann', { text: 'use work {}' }))).toEqual([{ result: 'ok' }]);
  // Eve still has none.
  const [refused] = answersIn(await run('eve', { text: 'use work {}' }));
  expect(refused).not.toEqual({ result: 'ok' });
  const { rows } = await sql.query('select * from user_credentials where user_id = $1', ['ann']);
  expect(JSON.stringify(rows)).not.toMatch(/access_token|client_id|verifier/);
});

test('what is declined, came too late, or is not from its issuer gives no access', async () => {
  const declined = await ask('bob');
  expect(answersIn(await declined.confirm(false))).toEqual([{ error: 'The user gave no access.' }]);
  const first = (await issuer?.open(declined.page)) ?? '';
  const { page, confirm } = await ask('bob');
  // A newer consent takes the place of one before it.
  expect((await callback('bob', first)).status).toBe(404);
  await sql.query(
    `update user_credentials set consent_expire_time = now() - interval '1 second' where user_id = 'bob'`,
  );
  expect((await callback('bob', (await issuer?.open(page)) ?? '')).status).toBe(404);
  const third = await ask('bob');
  if (issuer) issuer.names.iss = 'https://other.example';
  const wrong = (await issuer?.open(third.page)) ?? '';
  if (issuer) delete issuer.names.iss;
  const before = tokenRequests();
  expect(await callback('bob', wrong)).toMatchObject({ status: 400 });
  expect(tokenRequests()).toBe(before);
  const denied = new URL((await issuer?.open((await ask('bob')).page)) ?? '');
  denied.searchParams.delete('code');
  denied.searchParams.set('error', 'access_denied');
  expect(await callback('bob', denied)).toMatchObject({ status: 400 });
  expect(answersIn(await confirm(true))).toEqual([
    { error: 'The user was asked, and access is still missing or not enough.' },
  ]);
});

test('with a key a consent is of the user that the call names: another one gives nothing to who asked', async () => {
  const keys = {
    all: 'k3yForAllUsersOfThisService',
    one: 'k3yForVictimAloneOfThisOne',
    two: 'k3yForVictimAndMalloryHere',
    apps: 'k3yForAnotherAppOfThisOne',
  };
  const file = join(await mkdtemp(join(tmpdir(), 'agent-runtime-keys-')), 'keys');
  const bound: Record<string, object> = {
    one: { users: ['victim'] },
    two: { users: ['victim', 'mallory'] },
    apps: { apps: ['other'] },
  };
  const lines = Object.entries(keys).map(([id, key]) => {
    const digest = createHash('sha256').update(key).digest('hex');
    return JSON.stringify({ id, digest, scopes: ['invoke', 'read', 'write'], ...bound[id] });
  });
  await writeFile(file, lines.join('\n'));
  const settings = { ...environment, RUNTIME_API_KEYS_FILE: file, DEV_UI: 'false' };
  const keyed = await startOn(app.databaseUrl, settings);
  onTestFinished(() => keyed.close());
  const front = client(keyed.url);
  const withKey = (name: keyof typeof keys) => ({ authorization: `Bearer ${keys[name]}` });
  const finish = async (back: URL | string, key: keyof typeof keys, user?: string) => {
    const query = new URLSearchParams(new URL(back).search);
    if (user !== undefined) query.set('user_id', user);
    return (await front.get(`/oauth/callback?${query.toString()}`, withKey(key))).status;
  };
  const back = (await issuer?.open((await ask('mallory')).page)) ?? '';
  const before = tokenRequests();
  expect(await finish(back, 'all')).toBe(422);
  expect(await finish(back, 'two')).toBe(422);
  expect(await finish(back, 'all', 'victim')).toBe(404);
  expect(await finish(back, 'two', 'victim')).toBe(404);
  expect(await finish(back, 'one')).toBe(404);
  expect(await finish(back, 'one', 'victim')).toBe(404);
  expect(await finish(back, 'one', 'mallory')).toBe(404);
  expect(await finish(back, 'apps', 'mallory')).toBe(404);
  expect(tokenRequests()).toBe(before);
  expect(await finish(back, 'two', 'mallory')).toBe(200);
  expect(await finish((await issuer?.open((await ask('victim')).page)) ?? '', 'one')).toBe(200);
  const [again, other] = [(await ask('zoe')).page, (await ask('yara')).page];
  expect(await finish((await issuer?.open(again)) ?? '', 'all', 'zoe')).toBe(200);
  const third = new URL((await issuer?.open(other)) ?? '');
  third.searchParams.set('user_id', 'yara');
  expect((await callback('eve', third)).status).toBe(404);
  expect((await callback('yara', third)).status).toBe(200);
});

test('an issuer inward is not asked', async () => {
  const { events, page } = await ask('carl', 'hostile');
  expect(page).toBe('');
  expect(JSON.stringify(answersIn(events))).toContain('169.254.169.254');
});

test('tokens that have expired are renewed once, by one of the processes that want them', async () => {
  await grant('dora');
  const before = tokenRequests();
  issuer?.expire();
  const replica = client(local.url);
  const at = {
    appName: 'harness_agent',
    userId: 'dora',
    newMessage: { role: 'user', parts: [{ text: 'use work {}' }] },
  };
  const sessions = ['r1', 'r2', 'r3', 'r4'];
  await Promise.all(sessions.map(async (id) => replica.post(`${APP}/dora/sessions`, { sessionId: id })));
  const runs = sessions.map(async (sessionId, index) =>
    index % 2 ? replica.post('/run', { ...at, sessionId }) : app.post('/run', { ...at, sessionId }, await as('dora')),
  );
  const answers = (await Promise.all(runs)).map(({ body }) => answersIn(body as RunEvent[]));
  expect(answers).toEqual(sessions.map(() => [{ result: 'ok' }]));
  expect(tokenRequests() - before).toBe(1);
});

test('with its user a grant is erased, and revoked first; a user may delete it too', async () => {
  await grant('emil');
  await grant('fred');
  expect((await app.send('DELETE', `${APP}/fred/grants`, undefined, await as('emil'))).status).toBe(404);
  expect((await app.send('DELETE', `${APP}/fred/grants`, undefined, await as('fred'))).status).toBe(200);
  const erased = await client(local.url).send('DELETE', `${APP}/emil`);
  expect(erased.body).toMatchObject({ status: 'done', counts: { user_credentials: 1 } });
  const revoked = (issuer?.asked ?? []).filter(({ path }) => path === '/revoke').map(({ form }) => form['token']);
  expect(revoked).toHaveLength(2);
  const { rowCount } = await sql.query(`select from user_credentials where user_id in ('emil', 'fred')`);
  expect(rowCount).toBe(0);
});
