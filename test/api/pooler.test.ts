import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { runAsUser } from '../../src/platform/context.ts';
import type { DatabasePool } from '../../src/platform/db/database.ts';
import { openDatabase } from '../../src/platform/db/database.ts';
import { prepareRowSecurity } from '../../src/platform/db/row-security.ts';
import { insertSession } from '../../src/conversation/sessions/session-store.ts';
import { client as httpClient, startOn, type TestApp } from '../support/app.ts';
import { createEmptyDatabase } from '../support/database.ts';
import { findPgBouncer, NO_POOLER, type Pooler, startPooler } from '../support/pooler.ts';
import { newKey, poolOptions, textEvent } from '../support/store.ts';

/** PgBouncer in transaction mode, as its package sets it up, between the service and its database. */

const program = findPgBouncer();
if (program === undefined) console.log(`test/api/pooler.test.ts: ${NO_POOLER}`);

describe.skipIf(program === undefined)('behind PgBouncer in transaction mode', () => {
  let database: Awaited<ReturnType<typeof createEmptyDatabase>>;
  let pooler: Pooler;
  let sql: Client;
  let pooledUrl: string;
  const replicas: (Pick<TestApp, 'get' | 'post'> & { close: () => Promise<void> })[] = [];
  const start = async (environment: Record<string, string>) => {
    const runtime = await startOn(pooledUrl, environment);
    const replica = { ...httpClient(runtime.url), close: () => runtime.close() };
    replicas.push(replica);
    return replica;
  };

  beforeAll(async () => {
    database = await createEmptyDatabase();
    pooler = await startPooler(database.url);
    pooledUrl = pooler.urlOf(database.url);
    sql = new Client({ connectionString: database.url });
    await sql.connect();
  });
  afterAll(async () => {
    for (const replica of replicas) await replica.close();
    await sql.end();
    await pooler.close();
    await database.drop();
  });

  test('a start that does not know of the pooler is refused with the setting', async () => {
    await expect(start({ DATABASE_POOLER: 'none' })).rejects.toThrow(
      /cannot be used: unsupported startup parameter.*\. Set DATABASE_POOLER=transaction\.$/,
    );
  });

  test('it is enough: migrations, invocations, and streams that see by looking what another replica did', async () => {
    const [one, other] = [
      await start({ DATABASE_POOLER: 'transaction' }),
      await start({ DATABASE_POOLER: 'transaction' }),
    ];
    const session = '/apps/harness_agent/users/u/sessions/s';
    await one.post('/apps/harness_agent/users/u/sessions', { sessionId: 's' });
    const stream = await fetch(`${(other as TestApp).url}${session}/events/stream`);
    const invoked = await one.post('/harness/invoke', {
      prompt: 'What is 17 * 23? Use the calculator.',
      harness_name: 'h',
      run_agent_request: { user_id: 'u', session_id: 's' },
    });
    expect(invoked.body).toMatchObject({ output: 'The tool `calculator` answered: 391', error: null });
    let said = '';
    for await (const chunk of stream.body ?? []) {
      said += Buffer.from(chunk as Uint8Array).toString();
      if (said.includes('answered: 391')) break;
    }
    expect(said.match(/^id: /gm)).toHaveLength(4);
    const { rows } = await sql.query(`select from pg_stat_activity
      where datname = current_database() and application_name like 'agent-runtime/%'`);
    expect(rows).toHaveLength(0);
  });

  test('a way past it is used to listen, and for nothing else that lasts', async () => {
    const { get } = await start({ DATABASE_DIRECT_URL: database.url });
    await expect
      .poll(async () => {
        const { rows } = await sql.query<{ name: string }>(`select application_name as name from pg_stat_activity
          where datname = current_database() and query ilike 'listen%'`);
        return rows;
      })
      .toEqual([{ name: expect.stringMatching(/^agent-runtime\/\d.* ./) }]);
    expect((await get('/apps/harness_agent/users/u/sessions/s')).body).toMatchObject({ id: 's' });
  });

  describe('limits go with each statement', () => {
    let pool: DatabasePool;
    beforeAll(async () => {
      const address = { url: pooledUrl, isPooled: true };
      const { role } = await prepareRowSecurity(address, {});
      pool = openDatabase({
        ...poolOptions(pooledUrl, 4),
        ...address,
        security: { role },
        preparesStatements: false,
        maxStateBytes: 2_048,
        lockTimeoutMs: 300,
        statementTimeoutMs: 600,
      });
      for (const userId of ['alice', 'bob']) {
        await insertSession(pool.db, { appName: 'limits', userId, sessionId: 's' }, {}, [textEvent(`of ${userId}`)]);
      }
    });
    afterAll(() => pool.close());

    test('the size of a state', async () => {
      const tooLarge = insertSession(pool.db, newKey(), { text: 'x'.repeat(3_000) }, []);
      await expect(tooLarge).rejects.toMatchObject({ cause: { code: 'AR413' } });
      const inTransaction = pool.transaction((tx) => insertSession(tx, newKey(), { text: 'x'.repeat(3_000) }, []));
      await expect(inTransaction).rejects.toMatchObject({ cause: { code: 'AR413' } });
    });

    test('the time of a statement, and of the wait for a lock', async () => {
      await expect(pool.db.execute('select pg_sleep(5)')).rejects.toMatchObject({ cause: { code: '57014' } });
      await sql.query('begin; lock table sessions');
      const waiting = pool.reads.execute('select count(*) from sessions');
      await expect(waiting).rejects.toMatchObject({ cause: { code: '55P03' } });
      await sql.query('rollback');
    });

    test('the rows of a user, with one connection for all', async () => {
      const said = () => pool.db.execute(`select user_id as user from events where app_name = 'limits' order by 1`);
      for (let round = 0; round < 5; round++) {
        expect((await runAsUser('bob', said)).rows).toEqual([{ user: 'bob' }]);
        expect((await said()).rows).toEqual([{ user: 'alice' }, { user: 'bob' }]);
      }
    });
  });
});
