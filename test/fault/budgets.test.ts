import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { sendChat } from '../support/chat-wire.ts';
import { createTestDatabase } from '../support/database.ts';
import { readBody } from '../support/edge.ts';
import { report } from './support/faults.ts';
import { paced } from './support/pace.ts';
import { either, random } from './support/seed.ts';
import { type ServerProcess, spareServers, startServer, tryTo } from './support/server-process.ts';
import { MINUTE } from '../support/patience.ts';

/** A budget is a wall: whatever runs at once, over two processes of which one is killed in the middle of its calls. */

const CHUNK = { id: 'c', object: 'chat.completion.chunk', created: 1, model: 'greedy' };
const MAX_TOKENS = 40;
/** Of a call that uses all that it may: 40 tokens at 0.001, and 100 of the prompt at a millionth. */
const COST = 0.0401;
const LEASE_MS = paced(3_000);
const KILLS = either(5, 200);
const CLIENTS = 8;
const PATIENT = { timeout: 2 * MINUTE };

/** A model that uses every token it may, and answers when it is let. */
async function startGreedyModel() {
  let held = Promise.withResolvers<void>();
  const bounds: unknown[] = [];
  const answer = async (request: IncomingMessage, response: ServerResponse) => {
    const body = JSON.parse((await readBody(request)).toString()) as { max_tokens?: number; stream?: boolean };
    bounds.push(body.max_tokens);
    await held.promise;
    const usage = { prompt_tokens: 100, completion_tokens: body.max_tokens, total_tokens: 0 };
    const choices = [{ index: 0, delta: { role: 'assistant', content: 'done' }, finish_reason: 'stop' }];
    const chunks = [
      { ...CHUNK, choices },
      { ...CHUNK, choices: [], usage },
    ];
    sendChat(response, body, chunks, { connection: 'close' });
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
  SESSION_LEASE_MS: String(LEASE_MS),
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

/** Sums of tokens and cost, whatever the rows of the report are by. */
async function sumUsage(by: string) {
  const sums = { tokens: 0, cost: 0 };
  let cursor: string | undefined;
  do {
    const page = cursor === undefined ? '' : `&cursor=${cursor}`;
    const { body } = await survivor.send('GET', `/apps/harness_agent/usage?by=${by}${page}`);
    const { items, nextCursor } = body as {
      items: { promptTokens: number; outputTokens: number; cost?: number }[];
      nextCursor?: string;
    };
    for (const { promptTokens, outputTokens, cost = 0 } of items) {
      sums.tokens += promptTokens + outputTokens;
      sums.cost += cost;
    }
    cursor = nextCursor;
  } while (cursor !== undefined);
  return { tokens: sums.tokens, cost: sums.cost.toFixed(4) };
}

/** Compares the API, the views and the events. @returns the tokens of all */
async function expectOneTotal(): Promise<number> {
  const ofEvents = (name: string) => `coalesce(sum((payload #>> '{usageMetadata,${name}}')::int), 0)`;
  const [prompt, output] = [
    await number(`${ofEvents('promptTokenCount')} from events`),
    await number(`${ofEvents('candidatesTokenCount')} from events`),
  ];
  const tokens = prompt + output;
  const total = { tokens, cost: (prompt * 0.000001 + output * 0.001).toFixed(4) };
  for (const by of ['user', 'model', 'hour', 'user,model,version,day'])
    expect([by, await sumUsage(by)]).toEqual([by, total]);
  for (const view of ['usage', 'budget_uses', 'invocation_costs'])
    expect([view, await number(`sum(prompt_tokens + output_tokens) from inspect.${view}`)]).toEqual([view, tokens]);
  for (const view of ['budget_uses', 'invocation_costs'])
    expect([view, (await number(`sum(cost) from inspect.${view}`)).toFixed(4)]).toEqual([view, total.cost]);
  return tokens;
}

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
  expect(await expectOneTotal()).toBe(answered * (100 + MAX_TOKENS));
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
  const left = 'extract(epoch from max(expire_time) - clock_timestamp()) from budget_reservations';
  expect(await number(left)).toBeLessThanOrEqual(LEASE_MS / 1_000);
  model.release();
  expect((await answer)?.body).toMatchObject({ error: null, output: 'done' });
  expect(await lost).toBeUndefined();
  await setBudget(null);
});

test('however many processes are killed, the API, the views and the events have the same totals', async () => {
  const draw = random('usage');
  const victims = spareServers(() => startServer(database.url, settings()));
  let asked = 0;
  for (let kill = 0; kill < KILLS; kill += 1) {
    const victim = await victims.take();
    let isAlive = true;
    const work = Array.from({ length: CLIENTS }, async (_, n) => {
      while (isAlive) {
        asked += 1;
        await ask(n % 4 === 0 ? survivor : victim, `k${kill}-${n}`);
      }
    });
    await sleep(draw.whole(20, 800));
    await victim.kill();
    isAlive = false;
    await Promise.all(work);
  }
  await victims.close();
  await expect.poll(open, PATIENT).toBe(0);
  const tokens = await expectOneTotal();
  report('usage', `${KILLS} kills, ${asked} requests, ${tokens} tokens in the API, the views and the events`);
}, 3_600_000);
