import { Client } from 'pg';
import { expect, test } from 'vitest';
import { AgentError } from '../../src/core/errors.ts';
import { gatedAgents } from '../support/agents.ts';
import { client, startApp, startOn } from '../support/app.ts';
import { MINUTE } from '../support/patience.ts';

/** A start that finds thousands of invocations to take up: some at once, users in turn, and requests are answered. */

const COUNT = 10_000;
/** Half of them at most are those that were taken up. */
const MAX_INVOCATIONS = 8;
const FILL = `
  with waiting as (
    select case when n = 9000 then 'b' when n < 9000 then 'a' else 'c' end as user_id, 's-' || n as id, n,
           n > 9000 as is_dead, gen_random_uuid() as token
    from generate_series(1, ${COUNT}) n),
  made as (
    insert into sessions (app_name, user_id, id, lease_token)
    select 'harness_agent', user_id, id, case when is_dead then token end from waiting)
  insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, create_time,
                           start_time, request)
  select 'harness_agent', user_id, id, 'e-' || n, case when is_dead then 'running' else 'queued' end, token, now(),
         now() + n * interval '1 microsecond', case when is_dead then now() end,
         '{"version": 1, "overrides": {}, "streaming": false, "content": {"role": "user", "parts": [{"text": "Go."}]}}'
  from waiting`;

test(`${COUNT} to take up: half of the places at most, users in turn, and requests are answered`, {
  timeout: 5 * MINUTE,
}, async () => {
  const app = await startApp({}, { agents: new Map(), sweepIntervalMs: 3_600_000 });
  const sql = new Client({ connectionString: app.databaseUrl });
  await sql.connect();
  await sql.query(FILL);
  const gate = gatedAgents();
  const grace = new AbortController();
  const settings = { MAX_INVOCATIONS: String(MAX_INVOCATIONS), SHUTDOWN_GRACE_MS: '600000' };
  const replica = await startOn(app.databaseUrl, settings, {
    agents: gate.agents,
    stopping: grace.signal,
    sweepIntervalMs: 50,
  });
  const at = client(replica.url);
  const running = async () => {
    const { rows } = await sql.query<{ running: number }>(
      `select count(*)::int as running from invocations
       where status = 'running' and lease_expire_time > now() and user_id in ('a', 'b', 'c')`,
    );
    return rows[0]?.running;
  };
  const places = MAX_INVOCATIONS / 2;
  await gate.entered(places);
  const body = { prompt: 'Hello.', harness_name: 'h', run_agent_request: { user_id: 'd', session_id: 's' } };
  const asked = at.post('/harness/invoke', body);
  await gate.entered(places + 1);
  expect(await running()).toBe(places);
  expect((await at.get('/apps/harness_agent/users/d/sessions')).status).toBe(200);
  for (let n = 0; n <= places; n += 1) gate.open();
  expect((await asked).status).toBe(200);
  await gate.entered(2 * places + 1);
  expect(await running()).toBe(places);
  const { rows } = await sql.query(`select status from invocations where user_id = 'b'`);
  expect(rows).toEqual([{ status: 'succeeded' }]);
  const closed = replica.close();
  grace.abort(new AgentError('interrupted', 'The grace is over.'));
  await closed;
  const left = await sql.query(
    `select status, count(*)::int from invocations where status not in ('succeeded') group by 1 order by 1`,
  );
  expect(left.rows.map(({ status }: { status: string }) => status)).not.toContain('interrupted');
  await sql.end();
  await app.close();
});
