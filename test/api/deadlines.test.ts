import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Model } from '../../src/agent/definition/model.ts';
import type { Tool } from '../../src/agent/definition/tool.ts';
import type { Part } from '../../src/core/content.ts';
import { hostAgent } from '../support/agents.ts';
import { startApp, startOn, type TestApp } from '../support/app.ts';
import { MINUTE } from '../support/patience.ts';

/** Several calls of one invocation that end in the same moment, on several replicas: it goes on, once. */

/** A thousand are tried by hand: `DEADLINES=1000 npx vitest run test/api/deadlines.test.ts`. */
const COUNT = Number(process.env['DEADLINES'] ?? 60);
const REPLICAS = 3;
const WITHIN = { timeout: 2 * MINUTE + COUNT * 200 };

/** Calls `nap` or `ask` as often as the prompt says, all in one step; then it says `done`. */
const model: Model = {
  provider: 'scripted',
  // eslint-disable-next-line require-yield
  async *generate({ contents }) {
    const last = contents.at(-1)?.parts ?? [];
    const [name = '', calls = '0'] = (last[0]?.text ?? '').split(' ');
    if (calls === '0') return { content: { role: 'model', parts: [{ text: 'done' }] } };
    const parts = Array.from({ length: Number(calls) }, (): Part => ({ functionCall: { name, args: {} } }));
    return { content: { role: 'model', parts } };
  },
};
const waits = (name: string, wait: NonNullable<Tool['wait']>): Tool => ({
  name,
  description: 'Waits.',
  parameters: { type: 'object', properties: {} },
  needsConfirmation: false,
  longRunning: true,
  effect: 'none',
  wait,
  run: async () => undefined,
});
const agents = hostAgent(model, [
  waits('nap', { kind: 'sleep', expiresAfter: 1 }),
  waits('ask', { expiresAfter: 86_400, defaultAnswer: { late: true } }),
]);

let app: TestApp;
let close: () => Promise<unknown>;
let sql: Client;
let other: Client;
beforeAll(async () => {
  app = await startApp({ MAX_OPEN_TASKS: '1000000' }, { agents });
  const replicas = await Promise.all(
    Array.from({ length: REPLICAS - 1 }, () => startOn(app.databaseUrl, { MAX_OPEN_TASKS: '1000000' }, { agents })),
  );
  [sql, other] = [new Client({ connectionString: app.databaseUrl }), new Client({ connectionString: app.databaseUrl })];
  await Promise.all([sql.connect(), other.connect()]);
  close = () => Promise.all([sql.end(), other.end(), ...replicas.map((replica) => replica.close())]);
});
afterAll(async () => {
  await close();
  await app.close();
});

/** Starts an invocation in a session of its own, and waits until it is paused. @returns its status from then on */
async function pause(userId: string, prompt: string) {
  const path = `/apps/harness_agent/users/${userId}/sessions`;
  await app.post(path, { sessionId: 's' });
  const newMessage = { role: 'user', parts: [{ text: prompt }] };
  const { id } = (await app.post(`${path}/s/invocations`, { newMessage })).body as { id: string };
  const status = async () => ((await app.get(`${path}/s/invocations/${id}`)).body as { status: string }).status;
  return { status, session: async () => (await app.get(`${path}/s`)).text };
}

const statuses = async (of: string) =>
  (await sql.query(`select status, count(*)::int from invocations where user_id like $1 group by 1`, [`${of}%`])).rows;

test.each([2, 4])(
  `${COUNT} invocations with %i deadlines of one moment on ${REPLICAS} replicas all end`,
  async (n) => {
    const user = `together-${n}-`;
    for (let from = 0; from < COUNT; from += 20)
      await Promise.all(
        Array.from({ length: Math.min(20, COUNT - from) }, (_, place) => pause(user + (from + place), `nap ${n}`)),
      );
    await expect.poll(() => statuses(user), WITHIN).toEqual([{ status: 'succeeded', count: COUNT }]);
    const { rows } = await sql.query(
      `select count(*)::int as runs, count(distinct session_id || user_id)::int as sessions from events
     where user_id like $1 and payload #>> '{content,parts,0,text}' = 'done'`,
      [`${user}%`],
    );
    expect(rows).toEqual([{ runs: COUNT, sessions: COUNT }]);
  },
  WITHIN.timeout,
);

describe('two of one invocation that end at once', () => {
  const tasksOf = async (userId: string) => {
    const text = `select id from tasks where user_id = $1 and state = 'open' order by id`;
    return (await sql.query<{ id: string }>(text, [userId])).rows.map(({ id }) => id);
  };
  const wake = (at: Client, userId: string, id: string) =>
    at.query('select * from wake_task($1, $2, $3, $4)', ['harness_agent', userId, 's', id]);
  const answer = (at: Client, userId: string, id: string) =>
    at.query(`select change_task($1, $2, $3, $4, 'boss', '{}', true, null, 'answer', '{"response": {"ok": true}}')`, [
      'harness_agent',
      userId,
      's',
      id,
    ]);
  const isDue = `update tasks set expire_time = now(), due_time = now()
    where app_name = 'harness_agent' and user_id = $2 and id = $1`;

  test.each([
    ['two deadlines', false],
    ['a deadline and an answer', true],
  ])('%s: neither commits before the other has looked, and it goes on all the same', async (_, isAnswered) => {
    const userId = `skew-${isAnswered}`;
    const { status, session } = await pause(userId, 'ask 2');
    await expect.poll(status).toBe('paused');
    const [first = '', second = ''] = await tasksOf(userId);
    await sql.query('begin');
    await other.query('begin');
    await sql.query(isDue, [first, userId]);
    if (!isAnswered) await other.query(isDue, [second, userId]);
    await wake(sql, userId, first);
    if (isAnswered) await answer(other, userId, second);
    await wake(other, userId, second);
    await sql.query('commit');
    await other.query('commit');
    await expect.poll(status, WITHIN).toBe('succeeded');
    expect((await session()).split('"functionResponse"')).toHaveLength(3);
  });

  test('what an earlier version left without anything that would wake it is found and goes on', async () => {
    const { status } = await pause('left', 'ask 2');
    await expect.poll(status).toBe('paused');
    await sql.query(
      `update tasks set state = 'answered', answer = '{"late": true}', decided_via = 'deadline', decide_time = now(),
         due_time = null where user_id = 'left'`,
    );
    // It looks when it starts, then each minute.
    const replica = await startOn(app.databaseUrl, {}, { agents });
    await expect.poll(status, WITHIN).toBe('succeeded');
    await replica.close();
  });
});
