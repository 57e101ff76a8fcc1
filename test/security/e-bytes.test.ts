import { sql } from 'drizzle-orm';
import pino from 'pino';
import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { saveArtifactVersion } from '../../src/conversation/artifacts/artifact-store.ts';
import { rowContent } from '../../src/conversation/artifacts/artifact.ts';
import { insertVersionCopies } from '../../src/conversation/artifacts/copies.ts';
import { insertFork } from '../../src/conversation/sessions/fork.ts';
import type { Database, DatabasePool } from '../../src/platform/db/database.ts';
import { applyRetention } from '../../src/features/users/retention.ts';
import { createForgetSessions, type FeatureContext } from '../../src/process/context.ts';
import { hostScript } from '../support/agents.ts';
import { type Answer, startApp, type TestApp } from '../support/app.ts';
import { s3Environment, type S3Server, startS3 } from '../support/s3-server.ts';
import { callPart } from '../support/scripted-model.ts';
import { openPool, statementsOf } from '../support/store.ts';

/** What users keep has an owner: every byte is counted by the write itself, and has a limit. */

const MAX = 2_097_152;
const FULL = {
  detail: 'What is kept of the user would be more than MAX_USER_BYTES. Delete sessions, artifacts or memories.',
  limit: 'MAX_USER_BYTES',
};
const APP = '/apps/harness_agent/users';
const sessions = (user: string) => `${APP}/${user}/sessions`;
const event = (text: string, more: object = {}) => ({
  author: 'user',
  content: { role: 'user', parts: [{ text }] },
  ...more,
});
const file = (filename: string, bytes: number, customMetadata = {}) => ({
  filename,
  artifact: { inlineData: { mimeType: 'text/plain', data: Buffer.alloc(bytes, 'x').toString('base64') } },
  customMetadata,
});

interface Counted {
  bytes: number;
  eventBytes: number;
  artifactBytes: number;
  memoryBytes: number;
}

let app: TestApp;
let client: Client;
const rows = async <T>(text: string, values: unknown[] = []) => (await client.query(text, values)).rows as T[];

async function open(environment: Record<string, string>, overrides = {}): Promise<void> {
  app = await startApp(environment, overrides);
  client = new Client({ connectionString: app.databaseUrl });
  await client.connect();
  await client.query(`set agent_runtime.all_users = 'on'`);
}
async function close(): Promise<void> {
  await client.end();
  await app.close();
}

/** What a user keeps, counted anew from the rows. */
async function recount(user: string): Promise<Counted> {
  const [row] = await rows<Counted>(
    `select e + a + m as bytes, e as "eventBytes", a as "artifactBytes", m as "memoryBytes" from (select
       (select coalesce(sum(bytes), 0)::int from events where user_id = $1) +
       (select coalesce(sum(octet_length(state::text) + octet_length(initial_state::text) - 4), 0)::int
        from sessions where user_id = $1) +
       (select coalesce(sum(octet_length(request::text)), 0)::int from invocations where user_id = $1) e,
       (select coalesce(sum(size_bytes + octet_length(part::text) + octet_length(custom_metadata::text)), 0)::int
        from artifact_versions where user_id = $1) a,
       (select coalesce(sum(octet_length(content::text) + 4 * coalesce(cardinality(embedding), 0)), 0)::int
        from memories where user_id = $1) m) sums`,
    [user],
  );
  return row as Counted;
}

/** What the service says that a user keeps, after a comparison with the rows. */
async function counted(user: string): Promise<Counted> {
  const { maxBytes, ...kept } = (await app.get(`${APP}/${user}/storage`)).body as Counted & { maxBytes: number | null };
  expect([user, kept]).toEqual([user, await recount(user)]);
  expect(maxBytes).toBe(MAX);
  return kept;
}

const isRefused = ({ status, body }: Answer) => expect([status, body]).toEqual([413, FULL]);
const ok = async (answer: Promise<Answer>) => {
  const { status, text } = await answer;
  expect([status, text]).toEqual([200, text]);
};

/** A session with an artifact, which its second invocation changes. */
async function plant(user: string, bytes: number, id = 's'): Promise<void> {
  await ok(app.post(sessions(user), { sessionId: id }));
  await ok(app.post(`${sessions(user)}/${id}/artifacts`, file('a.txt', bytes)));
  for (const version of [0, 1])
    await ok(
      app.post(
        `${sessions(user)}/${id}/events`,
        event('hi', { invocationId: `i${version}`, actions: { artifactDelta: { 'a.txt': version } } }),
      ),
    );
}

describe('with a limit of 2 MiB', () => {
  beforeAll(() => open({ MAX_USER_BYTES: String(MAX) }));
  afterAll(close);

  test('A4: 12 forks of a session with artifacts stop at the quota, and a deletion makes room', async () => {
    await plant('forks', 500_000);
    const answers = [];
    for (let n = 0; n < 12; n++) answers.push(await app.post(`${sessions('forks')}/s/fork`, { sessionId: `f${n}` }));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, ...Array.from({ length: 9 }, () => 413)]);
    isRefused(answers[11] as Answer);
    expect((await counted('forks')).bytes).toBeLessThanOrEqual(MAX);
    expect(await rows(`select bytes::int from inspect.user_storage where user_id = 'forks'`)).toEqual([
      { bytes: (await counted('forks')).bytes },
    ]);
    await ok(app.send('DELETE', `${sessions('forks')}/f0/artifacts/a.txt`));
    await ok(app.send('DELETE', `${sessions('forks')}/f0`));
    await ok(app.post(`${sessions('forks')}/s/fork`, { sessionId: 'again' }));
    await counted('forks');
  });

  test('A4: forks at the same moment stop at the quota too', async () => {
    await plant('parallel', 500_000);
    const forks = Array.from({ length: 12 }, () => app.post(`${sessions('parallel')}/s/fork`, {}));
    const answers = await Promise.all(forks);
    expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([
      200,
      200,
      200,
      ...Array.from({ length: 9 }, () => 413),
    ]);
    expect((await counted('parallel')).bytes).toBeLessThanOrEqual(MAX);
  });

  test('states count: sessions that begin with one, and their forks, stop at the quota', async () => {
    const state = { text: 'x'.repeat(300_000) };
    await ok(app.post(sessions('states'), { sessionId: 's', state }));
    const answers = [];
    for (let n = 0; n < 4; n++) answers.push(await app.post(`${sessions('states')}/s/fork`, {}));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 413, 413]);
    isRefused(await app.post(sessions('states'), { state }));
    expect((await counted('states')).bytes).toBeLessThanOrEqual(MAX);
    const makes = Array.from({ length: 6 }, () => app.post(sessions('at once'), { state }));
    const made = (await Promise.all(makes)).map(({ status }) => status);
    expect(made.toSorted((a, b) => a - b)).toEqual([200, 200, 200, 413, 413, 413]);
    await ok(app.send('DELETE', `${sessions('states')}/s`));
    await ok(app.post(sessions('states'), { state: { text: 'x'.repeat(200_000) } }));
    await counted('states');
  });

  test('A4: rewinds stop at the quota, and the session goes on', async () => {
    await plant('rewinds', 500_000);
    const body = { rewindBeforeInvocationId: 'i1' };
    const answers = [];
    for (let n = 0; n < 5; n++) answers.push(await app.post(`${sessions('rewinds')}/s/rewind`, body));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 413, 413]);
    isRefused(answers[4] as Answer);
    await ok(app.post(`${sessions('rewinds')}/s/events`, event('small')));
    expect((await counted('rewinds')).bytes).toBeLessThanOrEqual(MAX);
  });

  test('A4: no write passes the quota: events, sessions, artifacts, their notes, memories, prompts', async () => {
    await ok(app.post(sessions('full'), { sessionId: 's' }));
    for (let n = 0; n < 8; n++) await ok(app.post(`${sessions('full')}/s/events`, event('word '.repeat(12_500))));
    await ok(app.post(`${sessions('full')}/s/artifacts`, file('a.txt', 1_500_000)));
    isRefused(await app.post(`${sessions('full')}/s/events`, event('x'.repeat(200_000))));
    isRefused(await app.post(sessions('full'), { sessionId: 'new', events: [event('x'.repeat(200_000))] }));
    isRefused(await app.post(`${sessions('full')}/s/artifacts`, file('b.txt', 200_000)));
    isRefused(await app.post(`${sessions('full')}/s/artifacts`, file('b.txt', 1, { notes: 'x'.repeat(200_000) })));
    isRefused(await app.send('PATCH', `${APP}/full/memory`, { sessionId: 's' }));
    const run = {
      appName: 'harness_agent',
      userId: 'full',
      sessionId: 's',
      newMessage: event('x'.repeat(200_000)).content,
    };
    isRefused(await app.post('/run', run));
    expect(
      await rows(`select from sessions where user_id = 'full' and (id = 'new' or lease_token is not null)`),
    ).toEqual([]);
    await counted('full');
    await ok(app.send('DELETE', `${sessions('full')}/s/artifacts/a.txt`));
    await ok(app.send('PATCH', `${APP}/full/memory`, { sessionId: 's' }));
    expect((await counted('full')).memoryBytes).toBeGreaterThan(490_000);
    await ok(app.send('DELETE', `${sessions('full')}/s`));
    expect(await counted('full')).toMatchObject({ eventBytes: 0 });
    await ok(app.send('DELETE', `${APP}/full`));
    expect(await rows(`select from user_storage where user_id = 'full'`)).toEqual([]);
  });

  test('A4: the count is the sum of what is there after any mix of operations, also ones rolled back', async () => {
    // A generator of its own: a failure is repeated by its seed.
    let seed = 4711;
    const draw = (n: number) => (seed = (seed * 48_271) % 2_147_483_647) % n;
    const users = ['mix0', 'mix1'];
    const pool = openPool(app.databaseUrl, 2);
    const retention = () =>
      applyRetention(
        {
          database: pool,
          contentStore: rowContent(1e6),
          log: pino({ level: 'silent' }),
          forgetSessions: createForgetSessions({} as FeatureContext),
        },
        { sessions: { days: 0, count: 4 }, artifactVersions: 3 },
      );
    const acts: ((user: string, id: string) => Promise<unknown>)[] = [
      (user, id) =>
        app.post(sessions(user), {
          sessionId: id,
          state: { text: 'x'.repeat(draw(90)) },
          events: [event('first'.repeat(draw(50)))],
        }),
      (user, id) => app.send('PATCH', `${sessions(user)}/${id}`, { stateDelta: { more: 'x'.repeat(draw(900)) } }),
      (user, id) =>
        client.query(`update sessions set initial_state = '{"a": "b"}' where user_id = $1 and id = $2`, [user, id]),
      (user, id) =>
        app.post(
          `${sessions(user)}/${id}/events`,
          event('said'.repeat(draw(500)), {
            invocationId: 'i1',
            actions: { artifactDelta: { 'a.txt': draw(3), 'b.txt': 0 } },
          }),
        ),
      (user, id) => app.post(`${sessions(user)}/${id}/artifacts`, file('a.txt', draw(9_000), { note: draw(1_000) })),
      (user, id) => app.post(`${sessions(user)}/${id}/artifacts`, file('user:mine', draw(2_000))),
      (user, id) => app.post(`${sessions(user)}/${id}/fork`, { sessionId: `s${draw(6)}` }),
      (user, id) => app.post(`${sessions(user)}/${id}/rewind`, { rewindBeforeInvocationId: 'i1' }),
      (user, id) => app.send('PATCH', `${APP}/${user}/memory`, { sessionId: id }),
      (user, id) => app.send('DELETE', `${sessions(user)}/${id}/artifacts/a.txt`),
      (user, id) => app.send('DELETE', `${sessions(user)}/${id}?forgetMemories=${draw(2) === 0}`),
      (user, id) =>
        app.post('/run', { appName: 'harness_agent', userId: user, sessionId: id, newMessage: event('hi').content }),
      (user, id) =>
        client.query(
          `update events set payload = payload || '{"more": "text"}'
           where user_id = $1 and session_id = $2 and sequence = 1`,
          [user, id],
        ),
      (user) => client.query(`delete from memories where user_id = $1`, [user]),
      (user, id) =>
        client.query(
          `update memories set embedding = array_fill(1::real, array[$3::int]) where user_id = $1 and session_id = $2`,
          [user, id, draw(9)],
        ),
      (user, id) =>
        client.query(
          `update artifact_versions set size_bytes = size_bytes + 1 where user_id = $1 and session_id = $2`,
          [user, id],
        ),
      (user, id) => client.query(`begin; delete from sessions where user_id = '${user}' and id = '${id}'; rollback`),
    ];
    for (let n = 0; n < 160; n++) {
      await acts[draw(acts.length)]?.(users[draw(2)] as string, `s${draw(6)}`);
      if (n % 20 === 0) await retention();
      if (n % 10 === 0) for (const user of users) await counted(user);
    }
    const [one] = await Promise.all(users.map(counted));
    expect(Math.min(...Object.values(one as Counted))).toBeGreaterThanOrEqual(0);
    const lines = (await app.get(`${APP}/mix0/export`)).text;
    expect(lines).not.toContain('user_storage');
    await ok(
      app.send('POST', `${APP}/copy/import`, lines, {
        'content-type': 'application/x-ndjson',
        'x-requested-with': 'test',
      }),
    );
    // An import measures anew: SQL has changed sizes above.
    expect((await counted('copy')).bytes).toBeGreaterThan(0);
    await ok(app.send('DELETE', `${APP}/mix0`));
    expect(await counted('mix0')).toEqual({ bytes: 0, eventBytes: 0, artifactBytes: 0, memoryBytes: 0 });
    await pool.close();
  });

  test('A4: appends in 16 sessions and in one, forks and deletions at once: no deadlock, right counts', async () => {
    const users = Array.from({ length: 16 }, (_, n) => `s${n}`);
    for (const id of users) await app.post(sessions('hot'), { sessionId: id });
    await app.post(`${sessions('hot')}/s0/artifacts`, file('a.txt', 1_000));
    const work = users.map(async (id, n) => {
      for (let round = 0; round < 12; round++) {
        await app.post(`${sessions('hot')}/${id}/events`, event('x'.repeat(100)));
        await app.post(`${sessions('hot')}/s0/events`, event('hot'));
        if (n % 4 === 1) await app.post(`${sessions('hot')}/s0/fork`, { sessionId: `f${n}-${round}` });
        if (n % 4 === 1) await app.send('DELETE', `${sessions('hot')}/f${n}-${round - 1}`);
        if (n % 4 === 2) await app.post(`${sessions('hot')}/${id}/artifacts`, file('a.txt', 500));
        if (n % 4 === 3) await app.send('PATCH', `${APP}/hot/memory`, { sessionId: id });
      }
    });
    await Promise.all(work);
    await counted('hot');
    expect(await rows('select deadlocks::int from pg_stat_database where datname = current_database()')).toEqual([
      { deadlocks: 0 },
    ]);
    expect(await rows(`select count(*)::int as n from events where user_id = 'hot' and session_id = 's0'`)).toEqual([
      { n: 17 * 12 },
    ]);
  });

  describe('copies and saves of a user lock in one order', () => {
    const key = { appName: 'harness_agent', userId: 'order', sessionId: 's' };
    const bytes = Buffer.alloc(100_000, 'x');
    const content = { part: { inlineData: { mimeType: 'text/plain', data: '' } }, bytes, mimeType: 'text/plain' };
    const save = ({ db }: DatabasePool, artifactName: string) =>
      saveArtifactVersion(db, { ...key, artifactName }, content, {});
    const waiters = async (count: number) => {
      const query = `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`;
      await expect.poll(() => rows(query)).toHaveLength(count);
    };
    const copy = (db: Database, to: { sessionId: string; leaseToken?: string }) =>
      insertVersionCopies(db, key, to, [{ name: 'a.txt', version: 0, object: undefined }]);
    /** Two connections that count in the same one of a user's 32 rows. */
    const pools: DatabasePool[] = [];
    beforeAll(async () => {
      await plant('order', 100_000);
      const shards = new Map<unknown, DatabasePool>();
      while (pools.length === 0) {
        const pool = openPool(app.databaseUrl, 1);
        const { rows: answer } = await pool.db.execute(sql`select pg_backend_pid() % 32 as shard`);
        const other = shards.get(answer[0]?.['shard']);
        if (other) pools.push(pool, other);
        else shards.set(answer[0]?.['shard'], pool);
      }
      for (const pool of shards.values()) if (!pools.includes(pool)) await pool.close();
    });
    afterAll(() => Promise.all(pools.map((pool) => pool.close())));

    test('a fork beside a save', async () => {
      const [one, two] = pools as [DatabasePool, DatabasePool];
      let saved: Promise<unknown> | undefined;
      const sent = await statementsOf(async () => {
        await one.transaction(async (tx) => {
          await insertFork(tx, key, { sessionId: 'fork', atSequence: 2, labels: {} });
          saved ??= save(two, 'b.txt');
          await waiters(1);
          await copy(tx, { sessionId: 'fork' });
        });
        await saved;
      });
      // Nothing is repeated after a deadlock.
      expect(sent.filter((text) => /fork|insert into "artifact_versions"/.test(text))).toHaveLength(3);
    });

    test('a rewind beside a save', async () => {
      const [one, two] = pools as [DatabasePool, DatabasePool];
      const leaseToken = '00000000-0000-4000-8000-000000000000';
      await client.query(`update sessions set lease_token = $1 where user_id = 'order'`, [leaseToken]);
      await client.query(`begin; select from artifacts where user_id = 'order' and name = 'a.txt' for update`);
      const sent = await statementsOf(async () => {
        const saved = save(one, 'a.txt');
        await waiters(1);
        const restored = copy(two.db, { sessionId: 's', leaseToken });
        await waiters(2);
        await client.query('commit');
        await Promise.all([saved, restored]);
      });
      expect(sent.filter((text) => text.includes('insert into "artifact_versions"'))).toHaveLength(2);
      await counted('order');
    });
  });

  test('A11: a rewind of 3,000 artifacts is a handful of statements; one of more than 10,000 is refused', async () => {
    const names = (count: number, value: number) =>
      Object.fromEntries(Array.from({ length: count }, (_, n) => [`n${n}`, value]));
    await ok(app.post(sessions('many'), { sessionId: 's' }));
    const said = (count: number, version: number, id: string) =>
      app.post(
        `${sessions('many')}/${id}/events`,
        event('hi', { invocationId: `i${version}`, actions: { artifactDelta: names(count, version) } }),
      );
    await ok(said(2_500, 0, 's'));
    await ok(said(3_000, 1, 's'));
    await client.query(`
      insert into artifacts select 'harness_agent', 'many', 's', 'n' || n, 2 from generate_series(0, 2999) n;
      insert into artifact_versions (app_name, user_id, session_id, artifact_name, version, canonical_uri, mime_type,
                                     part, content, size_bytes, sha256)
      select 'harness_agent', 'many', 's', 'n' || n, version, 'x', 'text/plain', '{"text": null}', bytes, 2,
             sha256(bytes)
      from generate_series(0, 2999) n, generate_series(0, 1) version, convert_to('v' || version, 'UTF8') bytes`);
    let answer: Answer | undefined;
    const statements = await statementsOf(async () => {
      answer = await app.post(`${sessions('many')}/s/rewind`, { rewindBeforeInvocationId: 'i1' });
    });
    expect(answer?.status).toBe(200);
    expect(statements.filter((text) => text.includes('artifact_versions'))).toHaveLength(2);
    expect(answer?.body).toMatchObject({ actions: { artifactDelta: names(3_000, 2) } });
    expect((await app.get(`${sessions('many')}/s/artifacts/n7`)).body).toMatchObject({ text: 'v0' });
    const empty = { inlineData: { data: '', mimeType: 'application/octet-stream' } };
    expect((await app.get(`${sessions('many')}/s/artifacts/n2999`)).body).toEqual(empty);
    await counted('many');
    await ok(app.post(sessions('many'), { sessionId: 'more' }));
    await ok(said(10_001, 3, 'more'));
    expect(await app.post(`${sessions('many')}/more/rewind`, { rewindBeforeInvocationId: 'i3' })).toMatchObject({
      status: 413,
      body: { detail: 'At most 10000 versions of artifacts, 134217728 bytes together, are copied.' },
    });
  });
});

test('A4: an invocation that comes to the quota fails with its name, and its end is stored', async () => {
  const script = [[callPart('calculator', { expression: '1'.repeat(600_000) }, 'c1')], [{ text: 'done' }]];
  await open({ MAX_USER_BYTES: '1048576', MAX_EVENT_BYTES: '2000000' }, { agents: hostScript(script) });
  await ok(app.post(sessions('u'), { sessionId: 's', events: [event('x'.repeat(700_000))] }));
  const run = { prompt: 'hi', harness_name: 'harness_agent', run_agent_request: { user_id: 'u', session_id: 's' } };
  expect((await app.post('/harness/invoke', run)).body).toMatchObject({ error: FULL.detail });
  expect(await rows('select status, error_code from invocations')).toEqual([
    { status: 'failed', error_code: 'storage_full' },
  ]);
  expect(await rows(`select payload ->> 'errorCode' as code from events order by sequence desc limit 1`)).toEqual([
    { code: 'storage_full' },
  ]);
  await close();
});

test('A4: a start in the background that the quota refuses at its turn ends, and frees its queue', async () => {
  await open({ MAX_USER_BYTES: '1048576' });
  await ok(app.post(sessions('u'), { sessionId: 's' }));
  await client.query(`
    update sessions set lease_token = gen_random_uuid();
    insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time)
    select app_name, user_id, id, 'held', 'running', lease_token, now() + interval '1 hour' from sessions`);
  const start = { newMessage: event('x'.repeat(500_000)).content };
  const started = await app.post(`${sessions('u')}/s/invocations`, start);
  expect([started.status, started.text]).toEqual([200, expect.stringContaining('"queued"')]);
  // It counts while it waits, so that there is room for it; only SQL takes that.
  const second = await app.post(`${sessions('u')}/s/invocations`, { newMessage: event('x'.repeat(600_000)).content });
  isRefused(second);
  expect((await app.get(`${APP}/u/storage`)).body).toMatchObject(await recount('u'));
  await client.query(
    `update user_storage set event_bytes = 1048576;
     update sessions set lease_token = null;
     update invocations set status = 'succeeded', end_time = now() where id = 'held'`,
  );
  const ended = `select status, error_code from invocations where id <> 'held'`;
  await expect.poll(() => rows(ended)).toEqual([{ status: 'failed', error_code: 'storage_full' }]);
  await close();
});

describe('with a bucket', () => {
  let s3: S3Server;
  beforeAll(async () => {
    s3 = await startS3();
    await open({ MAX_USER_BYTES: String(MAX), ...s3Environment(s3) });
  });
  afterAll(async () => {
    await close();
    await s3.close();
  });

  test('A4: refused forks, rewinds and saves leave no object behind; bytes of a bucket count', async () => {
    await plant('u', 900_000);
    await ok(app.post(`${sessions('u')}/s/rewind`, { rewindBeforeInvocationId: 'i1' }));
    isRefused(await app.post(`${sessions('u')}/s/rewind`, { rewindBeforeInvocationId: 'i1' }));
    isRefused(await app.post(`${sessions('u')}/s/fork`, {}));
    isRefused(await app.post(`${sessions('u')}/s/artifacts`, file('b.txt', 900_000)));
    expect(s3.objects.size).toBe(2);
    await plant('v', 100_000);
    // The id is taken, which only the write finds.
    expect((await app.post(`${sessions('v')}/s/fork`, { sessionId: 's' })).status).toBe(409);
    expect(s3.objects.size).toBe(3);
    expect((await counted('u')).artifactBytes).toBeGreaterThan(1_800_000);
  });
});
