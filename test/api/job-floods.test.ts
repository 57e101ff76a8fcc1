import { Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { MEMORY_JOB, MEMORY_TOPIC } from '../../src/invocations/memory.ts';
import { SCORE_JOB } from '../../src/features/evals/online/rule-store.ts';
import { RULES_TOPIC } from '../../src/features/evals/online/score-worker.ts';
import { EVALUATION_JOB } from '../../src/core/names.ts';
import { WEBHOOKS_TOPIC } from '../../src/invocations/webhooks/delivery-store.ts';
import { DELIVERY_JOB } from '../../src/invocations/webhooks/webhook-store.ts';
import { hostAgent } from '../support/agents.ts';
import { startApp, type TestApp } from '../support/app.ts';
import { scriptedModel } from '../support/scripted-model.ts';
import { type Receiver, startReceiver } from '../support/webhook-receiver.ts';
import { MINUTE } from '../support/patience.ts';

/** A user floods every kind of job; measured is after how many jobs those of others have ended, not how long they take. */

const APP = 'harness_agent';
const OTHERS = ['ann', 'bob', 'cid'];
const EACH = 5;
const FLOOD = 100;
/** Kinds whose jobs are about nothing here: they are claimed in turn, and end. Ids and lanes are those of the kind. */
const EMPTY_KINDS = {
  [MEMORY_JOB]: { id: `json_build_array('s', n::text)`, lane: '' },
  [SCORE_JOB]: { id: `json_build_array('rule', 's', n::text)`, lane: 'rule' },
  [EVALUATION_JOB]: { id: 'eval_case_job(gen_random_uuid(), 1, n)', lane: '' },
};

let receiver: Receiver;
let app: TestApp;
let sql: Client;
beforeAll(async () => {
  receiver = await startReceiver();
  const model = scriptedModel([() => [{ text: 'hello' }]]);
  const remember = { rule: 'always' as const, model, modelName: 'model' };
  const agents = new Map([...hostAgent(model, [])].map(([name, agent]) => [name, { ...agent, remember }] as const));
  app = await startApp({ EVALS: 'true', WEBHOOKS: 'true', WEBHOOKS_ALLOWED_HOSTS: receiver.origin }, { agents });
  sql = new Client({ connectionString: app.databaseUrl });
  await sql.connect();
});
afterAll(async () => {
  await sql.end();
  await app.close();
  await receiver.close();
});

/** Adds waiting jobs of a user, of each kind. */
async function add(userId: string, count: number) {
  await sql.query(
    `insert into webhook_deliveries (app_name, user_id, id, webhook_id, host, payload, status, retry_end_time)
     select app_name, user_id, user_id || n, id, host, '{}', 'pending', clock_timestamp() + interval '24 hours'
     from webhooks, generate_series(1, $2::int) n where user_id = $1`,
    [userId, count],
  );
  for (const [kind, { id, lane }] of Object.entries(EMPTY_KINDS))
    await sql.query(`select add_job($1, $2, $3, (${id})::text, $4) from generate_series(1, $5::int) n`, [
      kind,
      APP,
      userId,
      lane,
      count,
    ]);
}

test('jobs of others end in turn with those of a flood, which was there before', { timeout: 5 * MINUTE }, async () => {
  for (const ownerId of ['flood', ...OTHERS])
    expect(await app.post('/harness/webhooks', { ownerId, url: `${receiver.origin}/${ownerId}` })).toMatchObject({
      status: 201,
    });
  await sql.query(`
    create table ended_jobs (place serial, kind text, user_id text);
    create function note_end() returns trigger language plpgsql as $$
    begin
      insert into ended_jobs (kind, user_id) values (old.kind, old.user_id);
      return null;
    end $$;
    create trigger jobs_end after delete on jobs for each row execute function note_end()`);
  await sql.query('begin');
  await add('flood', FLOOD);
  for (const user of OTHERS) await add(user, EACH);
  for (const topic of [WEBHOOKS_TOPIC, MEMORY_TOPIC, RULES_TOPIC, EVALUATION_JOB])
    await sql.query(`select pg_notify('agent_runtime', $1)`, [JSON.stringify([topic])]);
  await sql.query('commit');
  const others = OTHERS.length * EACH;
  for (const kind of [DELIVERY_JOB, ...Object.keys(EMPTY_KINDS)]) {
    const ended = async () =>
      (await sql.query<{ user_id: string }>('select user_id from ended_jobs where kind = $1 order by place', [kind]))
        .rows;
    const endedOfOthers = async () => (await ended()).filter(({ user_id }) => user_id !== 'flood').length;
    await expect.poll(endedOfOthers, { timeout: 2 * MINUTE, interval: 200 }).toBe(others);
    const last = (await ended()).findLastIndex(({ user_id }) => user_id !== 'flood');
    // Without the flood, the last of these is the last of all.
    expect([kind, last + 1 <= 2 * others]).toEqual([kind, true]);
  }
});
