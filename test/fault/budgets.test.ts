import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createTestDatabase } from '../support/database.ts';
import { type ServerProcess, startServer, tryTo } from './support/server-process.ts';

/** A budget is a wall: whatever runs at once, over two processes of which one is killed in the middle of its calls. */

const CHUNK = { id: 'c', object: 'chat.completion.chunk', created: 1, model: 'greedy' };
const MAX_TOKENS = 40;
/** Of a call that uses all that it may: 40 tokens at 0.001, and 100 of the prompt at a millionth. */
const COST = 0.0401;
const PATIENT = { timeout: 120_000 };

/** A model that uses every token it may, and answers when it is let. */
async function startGreedyModel() {
  let held = Promise.withResolvers<void>();
  const bounds: unknown[] = [];
  const answer = async (request: IncomingMessage, response: ServerResponse) => {
    const chunks = (await request.toArray()) as Buffer[];
    const body = JSON.parse(Buffer.concat(chunks).toString()) as { max_tokens?: number };
    bounds.push(body.max_tokens);
    await held.promise;
    const chunk = (choices: object[], more = {}) => `data: ${JSON.stringify({ ...CHUNK, choices, ...more })}\n\n`;
    const usage = { prompt_tokens: 100, completion_tokens: body.max_tokens, total_tokens: 0 };
    response.writeHead(200, { 'content-type': 'text/event-stream', connection: 'close' });
    response.write(chunk([{ index: 0, delta: { role: 'assistant', content: 'done' }, finish_reason: 'stop' }]));
    response.end(`${chunk([], { usage })}data: [DONE]\n\n`);
  };
  const server = createServer((request, response) => void answer(request, response));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    bounds,
    hold: () => void (held = Promise.withResolvers<void>()),
    release: () => held.resolve(),
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}

let model: Awaited<ReturnType<typeof startGreedyModel>>;
let database: Awaited<ReturnType<typeof createTestDatabase>>;
let sql: Client;
let survivor: ServerProcess;
const settings = () => ({
  MODEL_PROVIDER: 'openai-compatible',
  MODEL_NAME: 'greedy',
  MODEL_BASE_URL: model.baseUrl,
  SESSION_LEASE_MS: '3000',
  SWEEP_INTERVAL_MS: '500',
});
beforeAll(async () => {
  model = await startGreedyModel();
  database = await createTestDatabase();
  sql = new Client({ connectionString: database.url });
  await sql.connect();
  survivor = await startServer(database.url, settings());
  const price = { model: 'greedy', promptPrice: 1, outputPrice: 1000 };
  await survivor.send('PUT', '/model-prices', price);
});
afterAll(async () => {
  await survivor.kill();
  await sql.end();
  await database.drop();
  model.close();
});

const setBudget = async (maxCost: number | null) => {
  const budget = { appliesTo: 'app', period: 'month', maxCost };
  expect((await survivor.send('PUT', '/apps/harness_agent/budgets', budget)).text).toBe('null');
};
const ask = (on: ServerProcess, userId: string) =>
  tryTo(
    on.post('/harness/invoke', {
      prompt: 'Go on.',
      harness_name: 'harness_agent',
      run_agent_request: { user_id: userId, session_id: 's' },
      harness: { max_tokens: MAX_TOKENS },
    }),
  );
const number = async (text: string) =>
  Number((await sql.query<{ n: string }>(`select (select ${text}) as n`)).rows[0]?.n);
const spent = () => number('coalesce(sum(cost), 0) from budget_uses');
const reserved = () => number('coalesce(sum(cost), 0) from budget_reservations where expire_time > clock_timestamp()');
const open = () => number(`count(*) from invocations where status in ('queued', 'running')`);

test('64 invocations at once spend one dollar at most; all that fit are answered, beside a kill', async () => {
  await setBudget(1);
  const victim = await startServer(database.url, settings());
  model.hold();
  const answers = Array.from({ length: 64 }, (_, n) => ask(n % 2 === 0 ? survivor : victim, `u${n}`));
  // As many as fit by what they may use ask the model; the others wait.
  await expect.poll(reserved, PATIENT).toBeGreaterThan(0.9);
  expect(await reserved()).toBeLessThanOrEqual(1);
  const bound = await number('max(cost) from budget_reservations');
  expect(bound).toBeGreaterThanOrEqual(COST);
  await victim.kill();
  model.release();
  await Promise.all(answers);
  await expect.poll(open, PATIENT).toBe(0);
  const cost = await spent();
  expect(cost).toBeLessThanOrEqual(1);
  expect(cost + bound).toBeGreaterThan(1);
  const { rows } = await sql.query<{ status: string; code: string | null; n: number }>(
    'select status, error_code as code, count(*)::int as n from invocations group by 1, 2 order by 1, 2',
  );
  const answered = rows.find(({ status }) => status === 'succeeded')?.n ?? 0;
  expect(answered).toBe(Math.round(cost / COST));
  // The rest was refused by the budget, and by nothing else.
  expect(rows.filter(({ status }) => status !== 'succeeded').map(({ code }) => code)).toEqual(['budget_exceeded']);
  expect(new Set(model.bounds)).toEqual(new Set([MAX_TOKENS]));
  await expect.poll(reserved, PATIENT).toBe(0);
  // The API, the views and the events have the same sums, after the kill.
  const usage = await survivor.send('GET', '/apps/harness_agent/usage?by=user');
  const { items } = usage.body as { items: { promptTokens: number; outputTokens: number }[] };
  const sumOfApi = items.reduce((all, { promptTokens, outputTokens }) => all + promptTokens + outputTokens, 0);
  const ofEvents = ['promptTokenCount', 'candidatesTokenCount']
    .map((name) => `coalesce(sum((payload #>> '{usageMetadata,${name}}')::int), 0)`)
    .join(' + ');
  expect(sumOfApi).toBe(answered * (100 + MAX_TOKENS));
  expect(await number(`${ofEvents} from events`)).toBe(sumOfApi);
  for (const view of ['usage', 'budget_uses', 'invocation_costs'])
    expect([view, await number(`sum(prompt_tokens + output_tokens) from inspect.${view}`)]).toEqual([view, sumOfApi]);
}, 240_000);

test('the call of a killed process holds nothing longer than its lease', async () => {
  // Room for one call, and no second one beside it.
  // What was killed is not run again, which would want the same room.
  await survivor.kill();
  const once = { ...settings(), INVOCATION_ATTEMPTS: '1' };
  survivor = await startServer(database.url, once);
  const victim = await startServer(database.url, once);
  await setBudget((await spent()) + 0.06);
  model.hold();
  const asked = model.bounds.length;
  const lost = ask(victim, 'lost');
  await expect.poll(() => model.bounds.length, PATIENT).toBe(asked + 1);
  const answer = ask(survivor, 'next');
  await expect.poll(() => number(`count(*) from sessions where user_id = 'next'`), PATIENT).toBe(1);
  expect(await reserved()).toBeGreaterThan(0);
  await victim.kill();
  model.release();
  expect((await answer)?.body).toMatchObject({ error: null, output: 'done' });
  expect(await lost).toBeUndefined();
  await setBudget(null);
}, 120_000);
