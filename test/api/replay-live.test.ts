import { Pool } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { testApp } from '../support/app.ts';

/** A replay with the live model spends what an invocation spends; it writes nothing else. */

const app = testApp();
let sql: Pool;
beforeAll(() => {
  sql = new Pool({ connectionString: app.databaseUrl });
});
afterAll(() => sql.end());

const SESSION = '/apps/harness_agent/users/u1/sessions/s1';
const spent = async () => {
  const { rows } = await sql.query<{ tokens: string }>(
    'select coalesce(sum(prompt_tokens + output_tokens), 0) as tokens from budget_uses',
  );
  return Number(rows[0]?.tokens);
};

test('live answers count for the budgets, and nothing is asked where nothing is left', async () => {
  const prompt = 'What is 17 * 23? Use the calculator.';
  const message = { prompt, harness_name: 'demo', run_agent_request: { user_id: 'u1', session_id: 's1' } };
  expect((await app.post('/harness/invoke', message)).body).toMatchObject({ error: null });
  const before = await app.get(SESSION);
  const { invocationId } = (before.body as { events: { invocationId: string }[] }).events[0] ?? {};
  const replay = (body: object) => app.post(`${SESSION}/invocations/${invocationId}/replay`, body);
  const tokens = await spent();
  expect(tokens).toBeGreaterThan(0);

  expect((await replay({})).body).toMatchObject({ status: 'same', liveModelCalls: 0 });
  expect(await spent()).toBe(tokens);
  expect((await replay({ modelExecutionMode: 'live' })).body).toMatchObject({ status: 'same', liveModelCalls: 2 });
  expect(await spent()).toBe(2 * tokens);

  const budget = { appliesTo: 'app', period: 'day', maxTokens: tokens };
  expect((await app.send('PUT', '/apps/harness_agent/budgets', budget)).status).toBe(200);
  expect((await replay({ modelExecutionMode: 'live' })).body).toMatchObject({
    status: 'stopped',
    stopped: expect.stringMatching(/tokens/),
  });
  expect(await spent()).toBe(2 * tokens);
  expect((await app.get(SESSION)).text).toBe(before.text);
});
