import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from 'pg';
import { WebSocket } from 'ws';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { createKey } from '../../src/platform/http/access/key-ring.ts';
import { type Answer, client, startApp, startOn, type TestApp } from '../support/app.ts';
import { startTokenIssuer, type TokenIssuer } from '../support/token-issuer.ts';

/** One caller who asks as often as he can, on two replicas, and another who asks once. */

type Headers = Record<string, string>;
type Replica = Pick<TestApp, 'get' | 'post'>;

const SESSIONS = (user: string) => `/apps/harness_agent/users/${user}/sessions`;
const limitOf = ({ status, body, headers }: Answer) => ({
  status,
  limit: (body as { limit?: string }).limit,
  named: headers.get('x-limit'),
  waits: Number(headers.get('retry-after')) >= 1,
});
const refused = (limit: string) => ({ status: 429, limit, named: limit, waits: true });
const count = (answers: Answer[], status: number) => answers.filter((answer) => answer.status === status).length;

async function query<Row extends object>(databaseUrl: string, text: string): Promise<Row[]> {
  const database = new Client({ connectionString: databaseUrl });
  await database.connect();
  const { rows } = await database.query<Row>(text);
  await database.end();
  return rows;
}

describe('C: rates of a user, over all replicas', () => {
  let tokens: TokenIssuer;
  let app: TestApp;
  let replicas: Replica[];
  let mallory: Headers;
  let alice: Headers;

  beforeAll(async () => {
    tokens = await startTokenIssuer();
    const environment = {
      ...tokens.environment,
      DEV_UI: 'false',
      AUDIT: 'writes',
      MAX_READS_PER_MINUTE: '400',
      MAX_WRITES_PER_MINUTE: '40',
      MAX_INVOCATIONS_PER_MINUTE: '5',
    };
    app = await startApp(environment);
    const other = await startOn(app.databaseUrl, environment);
    replicas = [app, client(other.url)];
    [mallory, alice] = [await tokens.headersOf('mallory'), await tokens.headersOf('alice')];
    return () => other.close();
  });
  afterAll(async () => {
    await app.close();
    await tokens.close();
  });

  const onBoth = (times: number, ask: (replica: Replica) => Promise<Answer>) =>
    Promise.all(Array.from({ length: times }, (_, index) => ask(replicas[index % 2] as Replica)));

  test('writes: all replicas together let the limit through and no more; another user writes', async () => {
    const answers = await onBoth(60, (replica) => replica.post(SESSIONS('mallory'), {}, mallory));
    expect(count(answers, 200)).toBe(40);
    expect(limitOf(answers.find(({ status }) => status === 429) as Answer)).toEqual(refused('MAX_WRITES_PER_MINUTE'));
    expect((await app.post(SESSIONS('alice'), {}, alice)).status).toBe(200);
  });

  test('each class has a rate of its own: invocations, large reads', async () => {
    const newMessage = { role: 'user', parts: [{ text: 'Hello' }] };
    const run = { appName: 'harness_agent', userId: 'mallory', sessionId: 'none', newMessage };
    const runs = await onBoth(8, (replica) => replica.post('/run', run, mallory));
    expect([count(runs, 404), count(runs, 429)]).toEqual([5, 3]);
    expect(limitOf(runs.find(({ status }) => status === 429) as Answer)).toEqual(refused('MAX_INVOCATIONS_PER_MINUTE'));
    const lists = [];
    for (let index = 0; index < 42; index += 1)
      lists.push(await (replicas[index % 2] as Replica).get(`${SESSIONS('mallory')}?limit=1`, mallory));
    expect(limitOf(lists.at(-1) as Answer)).toEqual(refused('MAX_READS_PER_MINUTE'));
  });

  test('each turn of a live session is one run more, and one that is refused is in the audit', async () => {
    const dave = await tokens.headersOf('dave');
    await app.post(SESSIONS('dave'), { sessionId: 'live' }, dave);
    const live = new URLSearchParams({ user_id: 'dave', session_id: 'live', modalities: 'TEXT' });
    const socket = new WebSocket(`${app.url.replace('http', 'ws')}/run_live?${live.toString()}`, { headers: dave });
    onTestFinished(() => socket.terminate());
    const frames: { turnComplete?: boolean; error?: string }[] = [];
    socket.on('message', (data: Buffer) => frames.push(JSON.parse(data.toString()) as (typeof frames)[0]));
    await new Promise((resolve) => socket.once('open', resolve));
    const turn = JSON.stringify({ content: { role: 'user', parts: [{ text: 'Hello' }] } });
    for (let index = 0; index < 5; index += 1) socket.send(turn);
    const error = expect.stringContaining('MAX_INVOCATIONS_PER_MINUTE');
    await expect.poll(() => frames.filter((frame) => frame.error)).toEqual([{ error }]);
    expect(frames.filter(({ turnComplete }) => turnComplete)).toHaveLength(4);
    const kept = `select reason from audit_log where operation = 'runLive' and decision = 'refused'`;
    await expect.poll(() => query(app.databaseUrl, kept)).toEqual([{ reason: 'limit MAX_INVOCATIONS_PER_MINUTE' }]);
  });

  test('20 reads in a row take their right to it with one statement', async () => {
    const bob = await tokens.headersOf('bob');
    const before = await query<{ key: string }>(app.databaseUrl, 'select key from rate_limits');
    for (let index = 0; index < 20; index += 1) await app.get('/list-apps', bob);
    const known = new Set(before.map(({ key }) => key));
    const rows = await query<{ key: string; points: number }>(app.databaseUrl, 'select key, points from rate_limits');
    expect(rows.filter(({ key }) => !known.has(key)).map(({ points }) => points)).toEqual([20]);
    expect(JSON.stringify(rows)).not.toContain('bob');
  });

  test('while the database does not count, each replica does', async () => {
    const carol = await tokens.headersOf('carol');
    await query(app.databaseUrl, 'alter table rate_limits rename to rate_limits_away');
    onTestFinished(async () => {
      await query(app.databaseUrl, 'alter table rate_limits_away rename to rate_limits');
    });
    const answers = await Promise.all(Array.from({ length: 50 }, () => app.post(SESSIONS('carol'), {}, carol)));
    expect([count(answers, 200), count(answers, 429)]).toEqual([40, 10]);
  });
});

describe('C: failed logins', () => {
  const file = join(mkdtempSync(join(tmpdir(), 'agent-runtime-logins-')), 'keys');
  const known = createKey({ id: 'known', scopes: ['read'] });
  const other = createKey({ id: 'other', scopes: ['read'] });
  let app: TestApp;
  let second: Replica;

  beforeAll(async () => {
    writeFileSync(file, `${known.entry}\n${other.entry}\n`);
    const environment = {
      RUNTIME_API_KEYS_FILE: file,
      TRUSTED_PROXIES: '127.0.0.1',
      DEV_UI: 'false',
    };
    app = await startApp(environment);
    const replica = await startOn(app.databaseUrl, environment);
    second = client(replica.url);
    return () => replica.close();
  });
  afterAll(() => app.close());

  const MOST_REFUSED = [...Array.from({ length: 30 }, () => 401), 429, 429];
  const from = (address: string, key: string) => ({ authorization: `Bearer ${key}`, 'x-forwarded-for': address });
  const statuses = async (replica: Replica, address: string, keys: string[]) => {
    const found: number[] = [];
    for (const key of keys) found.push((await replica.get('/list-apps', from(address, key))).status);
    return found;
  };
  const guesses = (times: number) => Array.from({ length: times }, (_, index) => `wrong-guess-${index}-aaaaaaaa`);

  test('of one address: on all replicas together, and who was let in before is not shut out', async () => {
    expect(await statuses(app, '198.51.100.1', [known.key])).toEqual([200]);
    expect(await statuses(app, '198.51.100.1', guesses(32))).toEqual(MOST_REFUSED);
    expect(await statuses(second, '198.51.100.1', guesses(2))).toEqual([429, 429]);
    const answer = await app.get('/list-apps', from('198.51.100.1', 'wrong-guess-aaaaaaaa'));
    expect(limitOf(answer)).toEqual(refused('wrong credentials per minute'));
    expect(await statuses(app, '198.51.100.1', [known.key])).toEqual([200]);
    // Nor is a right one that was never seen here.
    expect(await statuses(app, '198.51.100.1', [other.key])).toEqual([200]);
    expect(await statuses(app, '198.51.100.2', [other.key])).toEqual([200]);
  });

  test('of one key id, from however many addresses', async () => {
    const found = [];
    for (let index = 0; index < 32; index += 1)
      found.push(...(await statuses(app, `203.0.113.${index}`, [`other.guess-${index}-aaaaaaaaaaaaaaa`])));
    expect(found).toEqual(MOST_REFUSED);
    expect(await statuses(app, '203.0.113.200', [other.key])).toEqual([200]);
  });

  test('while the database does not count, the door is not open', async () => {
    await query(app.databaseUrl, 'alter table rate_limits rename to rate_limits_away');
    onTestFinished(async () => {
      await query(app.databaseUrl, 'alter table rate_limits_away rename to rate_limits');
    });
    expect(await statuses(app, '198.51.100.9', guesses(32))).toEqual(MOST_REFUSED);
  });

  test('an address that a stranger claims counts for nothing', async () => {
    const direct = await startOn(app.databaseUrl, { RUNTIME_API_KEYS_FILE: file, DEV_UI: 'false' });
    onTestFinished(() => direct.close());
    const found = [];
    for (const [index, guess] of guesses(32).entries())
      found.push(...(await statuses(client(direct.url), `203.0.113.${index}`, [guess])));
    expect(found).toEqual(MOST_REFUSED);
  });
});
