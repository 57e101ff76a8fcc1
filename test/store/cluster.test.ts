import { randomUUID } from 'node:crypto';
import { Client, type ClientBase } from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, inject, test } from 'vitest';
import { rowContent } from '../../src/conversation/artifacts/artifact.ts';
import { runAsUser } from '../../src/platform/context.ts';
import { listArtifactNames } from '../../src/conversation/artifacts/artifact-store.ts';
import { saveBudget } from '../../src/conversation/budgets/budget-store.ts';
import type { SessionKey } from '../../src/core/session.ts';
import type { DatabasePool } from '../../src/platform/db/database.ts';
import { COPIED_TABLES, DISTRIBUTED_TABLES } from '../../src/platform/db/cluster.ts';
import { migrateDatabase } from '../../src/platform/db/migrate.ts';
import type { ScoredCase } from '../../src/features/evals/scoring/score.ts';
import { saveSessionScore } from '../../src/features/evals/scoring/session-score-store.ts';
import { InvocationLedger } from '../../src/invocations/invocation-ledger.ts';
import { findDead } from '../../src/invocations/take-over.ts';
import { claimSession, type Lease } from '../../src/invocations/lock-store.ts';
import { appendOnce, finishOnce, newUsage } from '../../src/invocations/persist.ts';
import type { TapePayload } from '../../src/invocations/tape.ts';
import { searchMemories } from '../../src/features/memory/memory-store.ts';
import { appendEvents } from '../../src/conversation/sessions/append-store.ts';
import { appendDeltas } from '../../src/conversation/sessions/delta-store.ts';
import { listEvents, listEventsAfter } from '../../src/conversation/sessions/event-store.ts';
import { findHistory } from '../../src/conversation/sessions/history.ts';
import { findEtag } from '../../src/conversation/sessions/precondition.ts';
import { listSessions } from '../../src/conversation/sessions/session-list.ts';
import { deleteSession, findSession, insertSession } from '../../src/conversation/sessions/session-store.ts';
import { type Answer, client, startOn } from '../support/app.ts';
import { joinNodes, NO_CLUSTER } from '../support/citus.ts';
import { createDatabase, createTestDatabase, type TestDatabase } from '../support/database.ts';
import { newKey, openPool, textEvent } from '../support/store.ts';

type TestClient = ReturnType<typeof client>;
const OK = [200, 200, 200, 200];
const hasCluster = inject('workerUrls').length > 0;
let database: TestDatabase;
let admin: Client;
let pool: DatabasePool;

beforeAll(async () => {
  database = await createTestDatabase();
  admin = new Client({ connectionString: database.url });
  await admin.connect();
  if (!hasCluster) return;
  const url = new URL(database.url);
  url.searchParams.set('options', '-c citus.log_remote_commands=on');
  pool = openPool(url.href, 2);
});
afterAll(async () => {
  await pool?.close();
  await admin.end();
  await database.drop();
});

const newLease = (key: SessionKey): Lease => ({
  key,
  invocationId: randomUUID(),
  token: randomUUID(),
  durationMs: 60_000,
});
/** The tape of an invocation that called no model. */
const NO_CALLS: TapePayload = {
  version: 1,
  overrides: {},
  hasOwnServers: false,
  values: {},
  unkept: [],
  prompts: [],
  calls: [],
};

let commands: string[] = [];
const heard = new WeakSet<ClientBase>();

/** What the coordinator sends to its workers while `work` runs the second time: the first opens connections. */
async function commandsOf(work: () => Promise<unknown>): Promise<string[]> {
  await work();
  commands = [];
  // oxlint-disable-next-line typescript/unbound-method -- put back as it was, and called with its own `this`
  const original = Client.prototype.query;
  Client.prototype.query = function listening(this: Client, ...args: unknown[]) {
    if (!heard.has(this)) {
      heard.add(this);
      this.on('notice', ({ message = '' }) => {
        if (message.startsWith('issuing ')) commands.push(message.slice('issuing '.length));
      });
    }
    return Reflect.apply(original, this, args) as never;
  };
  try {
    await work();
    return commands;
  } finally {
    Client.prototype.query = original;
  }
}

describe('on a cluster', () => {
  beforeEach(({ skip }) => skip(!hasCluster, NO_CLUSTER));

  test('every read of one user is one command to one worker', async () => {
    const key = newKey();
    const { appName, userId } = key;
    await insertSession(pool.db, key, { a: 1, 'user:a': 1, 'app:a': 1 }, [textEvent('one'), textEvent('two')]);
    const reads: Record<string, () => Promise<unknown>> = {
      get: () => findSession(pool.db, key),
      'get with details': () => findSession(pool.db, key, { withDetails: true }),
      'get as of an event': () => findSession(pool.db, key, { atSequence: 1 }),
      'get as of a time': () => findSession(pool.db, key, { atTime: 1 }),
      etag: () => findEtag(pool.db, key),
      list: () => listSessions(pool.db, appName, userId),
      'page of a list': () => listSessions(pool.db, appName, userId, { limit: 1, text: 'one' }),
      history: () => findHistory(pool.db, key),
      events: () => listEvents(pool.db, key, 0, 10),
      'events after one': () => listEventsAfter(pool.db, key, 1, 10),
      'artifact names': () => listArtifactNames(pool.db, key),
      memory: () => searchMemories(pool.db, { appName, userId }, 'one', 10),
    };
    const counts: Record<string, number> = {};
    for (const [name, read] of Object.entries(reads)) counts[name] = (await commandsOf(read)).length;
    console.log(`commands to workers: ${JSON.stringify(counts)}`);
    expect(counts).toEqual(Object.fromEntries(Object.keys(reads).map((name) => [name, 1])));
  });

  test('what an invocation writes is one command to the node of its user, also as that user', async () => {
    const { appName, userId } = newKey();
    const use = newUsage();
    use.add({ model: 'm', promptTokens: 2, outputTokens: 1 });
    const tape = { start: 0, payload: NO_CALLS, prompts: new Map() };
    const begin = async () => {
      const lease = newLease({ appName, userId, sessionId: randomUUID() });
      expect(await claimSession(pool.db, lease, [textEvent('hello')], true)).toBe(true);
      return lease;
    };
    const [lease, kept] = [await begin(), await begin()];
    const leases = [await begin(), await begin(), await begin()];
    const acting = {
      id: 'c',
      tool: 't',
      effect: 'once',
      operationId: randomUUID(),
      state: 'started',
      attempt: 1,
    } as const;
    const shared = (name: string) => textEvent('shared', { actions: { stateDelta: { [name]: 1 } } });
    const writes: Record<string, () => Promise<unknown>> = {
      create: () => insertSession(pool.db, newKey(), { a: 1, 'user:a': 1 }, [textEvent('one')]),
      claim: begin,
      append: () => appendEvents(pool.db, kept.key, [textEvent('more')]),
      'append of an invocation': () => appendOnce(pool.db, lease, textEvent('more'), use),
      'append with a call': () => appendOnce(pool.db, lease, textEvent('with a call'), use, { calls: [acting] }),
      'a call before it runs': () =>
        new InvocationLedger(pool.db, lease, { contentStore: rowContent(1_000) }).write([acting]),
      'a piece of text': () =>
        appendDeltas(pool.db, { ...lease, after: undefined, pieces: [{ eventId: 'e', text: 'it ' }] }),
      'append with user:': () => appendOnce(pool.db, lease, shared('user:a'), use),
      finish: () =>
        finishOnce(pool.db, leases.pop() ?? lease, [textEvent('end')], { status: 'succeeded', answer: 'end', tape }),
      'claim as the user': () => runAsUser(userId, begin),
      'append as the user': () => runAsUser(userId, () => appendEvents(pool.db, kept.key, [textEvent('more')])),
      'append with app:': () => appendEvents(pool.db, kept.key, [shared('app:a')]),
    };
    const counts: Record<string, number> = {};
    for (const [name, write] of Object.entries(writes)) counts[name] = (await commandsOf(write)).length;
    console.log(`commands to workers: ${JSON.stringify(counts)}`);
    // That of an `app:` state too: the node of the user then writes on all nodes.
    expect(counts).toEqual(Object.fromEntries(Object.keys(writes).map((name) => [name, 1])));
    expect((await findSession(pool.db, kept.key))?.first.join('').match(/"more"|"shared"/g)).toHaveLength(6);
  });

  test('a budget of an application counts what users on all nodes have used', async () => {
    const { appName, sessionId } = newKey();
    const users = Array.from({ length: 6 }, () => `user-${randomUUID()}`);
    const claim = (userId: string, db = pool.db) =>
      claimSession(db, newLease({ appName, userId, sessionId }), [textEvent('hello')], true);
    await saveBudget(pool.db, appName, { appliesTo: 'app', period: 'day', maxInvocations: 6 });
    for (const userId of users) expect(await claim(userId)).toBe(true);
    await expect(claim(newKey().userId)).rejects.toThrow('budget');
    await expect(claim(users[0] ?? '')).rejects.toThrow('budget');
    // In a transaction the extension carries it out, where it is a part of what a node is asked.
    await expect(pool.transaction((tx) => claim(newKey().userId, tx))).rejects.toThrow('budget');
  });

  test('rows of a user that have moved to another node are written there', async () => {
    const key = newKey();
    await insertSession(pool.db, key, {}, [textEvent('one')]);
    const place = `select nodename, nodeport from pg_dist_shard_placement
                   where shardid = get_shard_id_for_distribution_column('sessions', $1::text)`;
    const { rows } = await admin.query<{ nodename: string; nodeport: number }>(place, [key.userId]);
    const { rows: others } = await admin.query<{ nodename: string; nodeport: number }>(
      'select nodename, nodeport from pg_dist_node where groupid <> 0 and nodeport <> $1',
      [rows[0]?.nodeport],
    );
    const [from, to] = [rows[0], others[0]];
    const move = `select citus_move_shard_placement(
      get_shard_id_for_distribution_column('sessions', $1::text), $2, $3, $4, $5, 'block_writes')`;
    const moved = admin.query(move, [key.userId, from?.nodename, from?.nodeport, to?.nodename, to?.nodeport]);
    const written = Array.from({ length: 20 }, (_, n) => `w${n}`);
    for (const text of written) await appendEvents(pool.db, key, [textEvent(text)]);
    await moved;
    await appendEvents(pool.db, key, [textEvent('last')]);
    expect((await admin.query<{ nodeport: number }>(place, [key.userId])).rows[0]?.nodeport).toBe(to?.nodeport);
    const { rows: found } = await admin.query<{ text: string }>(
      `select payload #>> '{content,parts,0,text}' as text from events where user_id = $1 order by sequence`,
      [key.userId],
    );
    expect(found.map(({ text }) => text)).toEqual(['one', ...written, 'last']);
  });

  test('a session goes with all of its rows, whatever node they are on', async () => {
    const keys = Array.from({ length: 8 }, newKey);
    for (const key of keys) await insertSession(pool.db, key, {}, [textEvent('hello')]);
    const scored = { lastSequence: 1, scored: { overall: [], turns: [] } as unknown as ScoredCase };
    for (const key of keys) expect(await saveSessionScore(pool.db, key, scored, 'hash')).toEqual({ cost: null });
    for (const key of keys) expect(await deleteSession(pool.db, key)).toBe(true);
    const apps = keys.map(({ appName }) => appName);
    for (const table of ['events', 'eval_session_scores']) {
      const left = await admin.query(`select from ${table} where app_name = any($1)`, [apps]);
      expect([table, left.rowCount]).toEqual([table, 0]);
    }
  });

  test('a database that was filled before moves with its rows, and is read and written there', async () => {
    const [nodes, own] = [[inject('adminUrl'), ...inject('workerUrls')], await createDatabase('template0')];
    const user = (id: string) => `/apps/harness_agent/users/${id}`;
    const run = (at: TestClient, userId: string) =>
      at.post('/run', {
        appName: 'harness_agent',
        userId,
        sessionId: 's',
        newMessage: { role: 'user', parts: [{ text: 'What is 17 * 23? Use the calculator.' }] },
      });
    const fill = async (at: TestClient, id: string) => [
      await at.post(`${user(id)}/sessions`, { sessionId: 's', state: { a: 1, 'user:b': 2, 'app:c': 3 } }),
      await run(at, id),
      await at.post(`${user(id)}/sessions/s/artifacts`, { filename: 'a.txt', artifact: { text: 'kept' } }),
      await at.send('PATCH', `${user(id)}/memory`, { sessionId: 's' }),
    ];
    const read = async (at: TestClient, id: string) => [
      await at.get(`${user(id)}/sessions/s`),
      await at.get(`${user(id)}/sessions/s/invocations`),
      await at.get(`${user(id)}/sessions/s/artifacts/a.txt`),
      await at.get(`${user(id)}/memory?query=calculator`),
      await at.get(`${user(id)}/storage`),
    ];
    const summary = (answers: Answer[]) => answers.map(({ status, text }) => [status, text]);
    try {
      const alone = await startOn(own.url);
      const before = client(alone.url);
      for (const id of ['ann', 'ben']) expect((await fill(before, id)).map(({ status }) => status)).toEqual(OK);
      const kept = [...summary(await read(before, 'ann')), ...summary(await read(before, 'ben'))];
      expect(kept.map(([status]) => status)).toEqual([...OK, 200, ...OK, 200]);
      await alone.close();

      await joinNodes(nodes, new URL(own.url).pathname.slice(1));
      await migrateDatabase({ url: own.url });
      const owner = new Client({ connectionString: own.url });
      await owner.connect();
      const { rows: secured } = await owner.query(
        'select relname from pg_class where relrowsecurity or relforcerowsecurity union all select polname from pg_policy',
      );
      await owner.end();
      expect(secured).toEqual([]);
      const spread = await startOn(own.url);
      const after = client(spread.url);
      expect([...summary(await read(after, 'ann')), ...summary(await read(after, 'ben'))]).toEqual(kept);
      expect((await run(after, 'ann')).status).toBe(200);
      expect((await fill(after, 'cay')).map(({ status }) => status)).toEqual(OK);
      expect((await read(after, 'cay')).map(({ status }) => status)).toEqual([...OK, 200]);
      expect((await after.send('DELETE', `${user('ben')}/sessions/s`)).status).toBe(200);
      expect((await after.get(`${user('ben')}/sessions/s`)).status).toBe(404);
      await spread.close();
    } finally {
      await own.drop();
    }
  });

  test('cronjobs are refused', async () => {
    await expect(startOn(database.url, { CRONJOBS: 'true' })).rejects.toThrow('CRONJOBS: the database is a cluster');
  });

  test('dead invocations are looked for on all nodes', async () => {
    expect(await findDead(pool.db)).toEqual({ isDue: expect.any(Boolean), nextMs: expect.any(Number) });
  });

  test('the migrator spreads a table that is not, with its rows; a start that may not refuses it', async () => {
    const own = await createTestDatabase();
    try {
      const writer = new Client({ connectionString: own.url });
      await writer.connect();
      await writer.query(`insert into user_erasures (app_name, user_id) values ('a', 'u')`);
      await writer.query(`select undistribute_table('user_erasures')`);
      await expect(migrateDatabase({ url: own.url }, { applies: false })).rejects.toThrow(
        'its cluster does not spread user_erasures: the deletion of a session would leave rows there. ' +
          'Apply the migrations, which spread them: npm run db:migrate, or agent-runtime migrate',
      );
      await migrateDatabase({ url: own.url });
      await migrateDatabase({ url: own.url }, { applies: false });
      expect((await writer.query('select user_id from user_erasures')).rows).toEqual([{ user_id: 'u' }]);
      await writer.end();
    } finally {
      await own.drop();
    }
  });

  test('what a conversation is made of is beside its session; states and holds are on every node', async () => {
    const { rows } = await admin.query<{ name: string; kind: string; isBeside: boolean }>(
      `select p.logicalrelid::text as name, p.partmethod as kind,
              p.colocationid = (select colocationid from pg_dist_partition where logicalrelid = 'sessions'::regclass)
                as "isBeside"
       from pg_dist_partition p
       where p.partmethod <> 'n' or p.repmodel <> 's' -- which are the coordinator's alone, for other nodes to write too
       order by p.logicalrelid::text collate "C"`,
    );
    const spread = DISTRIBUTED_TABLES.map((name) => ({ name, kind: 'h', isBeside: true }));
    const copied = COPIED_TABLES.map((name) => ({ name, kind: 'n', isBeside: false }));
    // Their rows would stay: what deletes a session does so on its node.
    const { rows: referring } = await admin.query(
      `select conname from pg_constraint
       where contype = 'f' and confrelid = any(select logicalrelid from pg_dist_partition)
         and conrelid <> all(select logicalrelid from pg_dist_partition)`,
    );
    expect(referring).toEqual([]);
    const byName = (one: { name: string }, other: { name: string }) => (one.name < other.name ? -1 : 1);
    expect(rows).toEqual([...copied, ...spread].toSorted(byName));
  });
});
