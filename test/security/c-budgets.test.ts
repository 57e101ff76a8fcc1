import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { UsedBudget } from '../../src/conversation/budgets/budget.ts';
import { type AnsweringProvider, startAnsweringProvider } from '../support/answering-provider.ts';
import { type Answer, client, startApp, startOn, type TestApp } from '../support/app.ts';

/** Users who spend what the operator pays for. */

const DAY_SECONDS = 86_400;
/** More than is reserved for a call of a short prompt, which is what fits into {@link ONE_CALL}. */
const USAGE = { prompt_tokens: 10_000, completion_tokens: 5_000, total_tokens: 15_000 };
/** Tokens of a budget that one call uses up. */
const ONE_CALL = 15_000;
let app: TestApp;
let other: Awaited<ReturnType<typeof startOn>>;
let provider: AnsweringProvider;
let answer: Parameters<typeof startAnsweringProvider>[0] = () => 'done';

beforeAll(async () => {
  provider = await startAnsweringProvider((asked) => answer(asked), USAGE);
  const model = { MODEL_PROVIDER: 'openai-compatible', MODEL_NAME: 'small', MODEL_BASE_URL: provider.baseUrl };
  app = await startApp({ ...model, CRONJOBS: 'true', WEBHOOKS: 'true', EVALS_JUDGE_MODEL: 'umpire' });
  other = await startOn(app.databaseUrl, { ...model, DEV_UI: 'false' });
});
afterAll(async () => {
  await other.close();
  await app.close();
  await provider.close();
});

const invoke = (userId: string, sessionId: string = crypto.randomUUID(), on: Pick<TestApp, 'post'> = app) =>
  on.post('/harness/invoke', {
    prompt: 'What is the time?',
    harness_name: 'harness_agent',
    run_agent_request: { user_id: userId, session_id: sessionId },
  });
/** Without a maximum it removes the budget. */
const setBudget = async (budget: object) => {
  const given = Object.keys(budget).some((name) => name.startsWith('max')) ? budget : { ...budget, maxTokens: null };
  expect((await app.send('PUT', '/apps/harness_agent/budgets', given)).text).toBe('null');
};

async function rows<Row extends object>(text: string): Promise<Row[]> {
  const database = new Client({ connectionString: app.databaseUrl });
  await database.connect();
  const found = await database.query<Row>(text);
  await database.end();
  return found.rows;
}
const usedBy = async (user: string) =>
  (
    await rows<{ invocations: string; tokens: string; cost: string }>(
      `select invocations, prompt_tokens + output_tokens as tokens, cost from inspect.budget_uses
       where user_id = '${user}'`,
    )
  )[0];

function expectRefusal({ status, body, headers }: Answer, limit: string): void {
  const { detail, limit: named } = body as { detail: string; limit: string };
  expect([status, named, headers.get('x-limit')]).toEqual([429, limit, limit]);
  expect(detail).toMatch(new RegExp(`used up: ${limit}\\. It opens again at \\d{4}-\\d\\d-\\d\\dT00:00:00Z\\.$`));
  const wait = Number(headers.get('retry-after'));
  expect(wait).toBeGreaterThan(0);
  expect(wait).toBeLessThanOrEqual(limit.includes('.day.') ? DAY_SECONDS : 31 * DAY_SECONDS);
}

/** A budget that is used up, whatever was used. */
const NOTHING = { period: 'day', maxTokens: 0 };
const EVALS = '/dev/apps/harness_agent';
const JUDGE = { metricName: 'safety_v1', criterion: { threshold: 1, judgeModelOptions: { numSamples: 1 } } };
const callsOf = (model: string) => provider.asked.filter((asked) => asked.model === model).length;

describe('C: budgets hold for whatever calls a model', () => {
  test('judges: their use is the session’s user’s, and nobody judges for one who has nothing left', async () => {
    await invoke('judy', 'judged');
    await setBudget({ appliesTo: 'user', forUser: 'judy', period: 'day', maxTokens: 1_000_000 });
    const before = Number((await usedBy('judy'))?.tokens);
    const score = () => app.post(`${EVALS}/session-scores`, { evalMetrics: [JUDGE], users: ['judy'] });
    expect((await score()).body).toMatchObject([{ userId: 'judy' }]);
    expect(callsOf('umpire')).toBe(1);
    expect(Number((await usedBy('judy'))?.tokens)).toBeGreaterThan(before);
    await invoke('judy', 'judged');
    await setBudget({ appliesTo: 'user', forUser: 'judy', ...NOTHING });
    expectRefusal(await score(), 'budget.user.day.tokens');
    expect(callsOf('umpire')).toBe(1);
  });

  test('the model that speaks in a user’s place, in a run of evaluation', async () => {
    const scenario = { startingPrompt: 'Hello', conversationPlan: 'Say hello.' };
    const sessionInput = { appName: 'harness_agent', userId: 'simon', state: {} };
    const one = { evalId: 'one', conversationScenario: scenario, sessionInput };
    await app.post(`${EVALS}/eval-sets`, { evalSet: { eval_set_id: 'simulated', eval_cases: [one] } });
    // The agent's first turn is within the budget, and uses it up.
    await setBudget({ appliesTo: 'user', forUser: 'simon', period: 'day', maxTokens: ONE_CALL });
    const before = callsOf('umpire');
    const run = await app.post(`${EVALS}/eval-runs`, { evalSetId: 'simulated', evalMetrics: [] });
    const { runId } = run.body as { runId: string };
    await app.get(`${EVALS}/eval-runs/${runId}/stream`);
    const { body } = await app.get(`${EVALS}/eval-runs/${runId}`);
    const { evalSetResultId } = body as { evalSetResultId: string };
    expect((await app.get(`${EVALS}/eval_results/${evalSetResultId}`)).text).toContain('budget.user.day.tokens');
    expect(callsOf('umpire')).toBe(before);
  });

  test('a cronjob: its run fails with the sentence of the budget', async () => {
    await setBudget({ appliesTo: 'user', forUser: 'carl', ...NOTHING });
    const schedule = { type: 'daily', time: '08:00', timezone: 'UTC' };
    const job = await app.post('/harness/cronjobs', { ownerId: 'carl', name: 'n', prompt: 'Hello', schedule });
    const { jobId } = job.body as { jobId: string };
    const calls = provider.asked.length;
    const { body } = await app.post(`/harness/cronjobs/${jobId}/run`, {});
    const path = `/harness/cronjobs/${jobId}/runs/${(body as { runId: string }).runId}`;
    const run = async () => (await app.get(path)).body as { status: string; error: unknown };
    await expect.poll(async () => (await run()).status).toBe('failed');
    expect(JSON.stringify(await run())).toContain('budget.user.day.tokens');
    expect(provider.asked.length).toBe(calls);
  });
});

describe('C: budgets of users and applications, over all replicas', () => {
  test('tokens of one user: what is over is refused before the model is called, and nothing is stored', async () => {
    await setBudget({ appliesTo: 'user', forUser: 'mallory', period: 'day', maxTokens: ONE_CALL });
    expect((await invoke('mallory')).body).toMatchObject({ error: null });
    const calls = provider.asked.length;
    const sessionId = crypto.randomUUID();
    for (const replica of [app, client(other.url)])
      expectRefusal(await invoke('mallory', sessionId, replica), 'budget.user.day.tokens');
    expect(provider.asked.length).toBe(calls);
    expect((await app.get(`/apps/harness_agent/users/mallory/sessions/${sessionId}`)).status).toBe(404);
    expect((await invoke('alice')).status).toBe(200);
    await setBudget({ appliesTo: 'user', forUser: 'mallory', period: 'day', maxTokens: 1_000_000 });
    expect((await invoke('mallory')).status).toBe(200);
  });

  test('invocations of each user in a month; a user with a budget of their own has that', async () => {
    await setBudget({ appliesTo: 'users', period: 'month', maxInvocations: 2 });
    await setBudget({ appliesTo: 'user', forUser: 'carol', period: 'month', maxInvocations: 3 });
    for (const replica of [app, client(other.url)])
      expect((await invoke('bob', 'one', replica)).body).toMatchObject({ error: null });
    expectRefusal(await invoke('bob', 'one'), 'budget.users.month.invocations');
    for (let count = 0; count < 3; count += 1) expect((await invoke('carol')).status).toBe(200);
    expectRefusal(await invoke('carol'), 'budget.user.month.invocations');
    await setBudget({ appliesTo: 'users', period: 'month' });
    expect((await invoke('bob', 'one')).status).toBe(200);
    const list = await app.get('/apps/harness_agent/budgets');
    expect(list.body).toContainEqual({
      appliesTo: 'user',
      forUser: 'carol',
      period: 'month',
      maxInvocations: 3,
      maxTokens: null,
      maxCost: null,
      webhookId: null,
      used: { invocations: 3, tokens: expect.any(Number) as unknown, cost: 0 },
      isUsedUp: true,
    });
    await setBudget({ appliesTo: 'user', forUser: 'bob', period: 'day', maxInvocations: 4, maxTokens: 1_000_000 });
    await setBudget({ appliesTo: 'app', period: 'day', maxInvocations: 1 });
    await setBudget({ appliesTo: 'users', period: 'day', maxInvocations: 1_000 });
    const told = ((await app.get('/apps/harness_agent/budgets?ofUser=nobody')).body as UsedBudget[]).map(
      ({ forUser, appliesTo, period, isUsedUp }) => [forUser ?? appliesTo, period, isUsedUp],
    );
    expect(told).toEqual(
      expect.arrayContaining([
        ['app', 'day', true],
        ['users', 'day', false],
        ['bob', 'day', false],
      ]),
    );
    const seen = await rows<{ of: string; period: string; is_used_up: boolean | null; used: string | null }>(
      `select coalesce(user_id, applies_to) as of, period, is_used_up, used_invocations as used
       from inspect.budgets`,
    );
    expect(seen).toEqual(
      expect.arrayContaining([
        { of: 'carol', period: 'month', is_used_up: true, used: '3' },
        { of: 'bob', period: 'day', is_used_up: false, used: '3' },
        { of: 'app', period: 'day', is_used_up: true, used: expect.stringMatching(/^\d+$/) },
        { of: 'users', period: 'day', is_used_up: null, used: null },
      ]),
    );
    await setBudget({ appliesTo: 'user', forUser: 'bob', period: 'day' });
    await setBudget({ appliesTo: 'app', period: 'day' });
    await setBudget({ appliesTo: 'users', period: 'day' });
  });

  test('cost of all users, by the price of the model', async () => {
    const price = { model: 'small', promptPrice: 1_000, outputPrice: 2_000 };
    expect((await app.send('PUT', '/model-prices', price)).status).toBe(200);
    expect((await app.get('/model-prices')).body).toEqual([price]);
    const before = Number((await rows<{ cost: string }>('select sum(cost) as cost from budget_uses'))[0]?.cost);
    await setBudget({ appliesTo: 'app', period: 'day', maxCost: before + 20 });
    expect((await invoke('dave')).status).toBe(200);
    expect(Number((await usedBy('dave'))?.cost)).toBe(20);
    expectRefusal(await invoke('erin'), 'budget.app.day.cost');
    await setBudget({ appliesTo: 'app', period: 'day' });
  });

  test('invocations of all users: a budget counts what was used before it, and between two budgets', async () => {
    const inMonth = 'select coalesce(sum(invocations), 0)::int as used from inspect.budget_uses';
    const use = async () => (await rows<{ used: number }>(inMonth))[0]?.used ?? 0;
    await invoke('ada');
    for (const user of ['ada', 'bert']) {
      await setBudget({ appliesTo: 'app', period: 'month', maxInvocations: (await use()) + 1 });
      expect((await invoke(user)).status).toBe(200);
      expectRefusal(await invoke(user), 'budget.app.month.invocations');
      await setBudget({ appliesTo: 'app', period: 'month' });
      expect((await invoke('ada')).status).toBe(200);
    }
  });

  test('budgets and inspect.invocation_costs find one price, whatever the provider calls the model', async () => {
    const costsOf = async (user: string) => {
      const { body } = await invoke(user);
      expect(body).toMatchObject({ error: null });
      const [seen] = await rows<{ model: string; cost: string | null }>(
        `select model, cost from inspect.invocation_costs where user_id = '${user}'`,
      );
      expect(seen?.model).toBe('answering');
      return [Number((await usedBy(user))?.cost), seen?.cost === null ? null : Number(seen?.cost)];
    };
    const setPrice = (model: string, promptPrice: number) =>
      app.send('PUT', '/model-prices', { model, promptPrice, outputPrice: 0 });
    await rows('delete from model_prices');
    // Of the 15,000 tokens of a call 10,000 are of the prompt.
    expect(await costsOf('p0')).toEqual([0, null]);
    await setPrice('*', 100);
    expect(await costsOf('p1')).toEqual([1, 1]);
    await setPrice('answer', 200);
    expect(await costsOf('p2')).toEqual([2, 2]);
    await setPrice('small', 900);
    expect(await costsOf('p3')).toEqual([2, 2]);
    await setPrice('answering', 300);
    await setPrice('answering-2', 800);
    expect(await costsOf('p4')).toEqual([3, 3]);
    // A budget does not let a model be free whose price is known by the name that the agent calls it by.
    await rows(`delete from model_prices where model like 'answer%'`);
    expect(await costsOf('p5')).toEqual([9, 1]);
  });

  test('a running invocation ends after the model call that used the rest', async () => {
    answer = ({ results }) => ({ calls: [['calculator', { expression: `${results.length} + 1` }]] });
    await setBudget({ appliesTo: 'user', forUser: 'loop', period: 'day', maxTokens: ONE_CALL });
    const calls = provider.asked.length;
    const { status, body } = await invoke('loop', 'looping');
    expect(status).toBe(200);
    expect((body as { error: string }).error).toMatch(
      /^The tokens of this user for this day are used up: budget\.user/,
    );
    expect(provider.asked.length).toBe(calls + 1);
    const { body: events } = await app.get('/apps/harness_agent/users/loop/sessions/looping/events');
    expect((events as { errorCode?: string }[]).at(-1)?.errorCode).toBe('budget_exceeded');
    answer = () => 'done';
  });

  test('less than a call may use is not spent, and the sentence says so; what the budget has left stays', async () => {
    await setBudget({ appliesTo: 'user', forUser: 'short', period: 'day', maxTokens: 5_000 });
    const calls = provider.asked.length;
    const { body } = await invoke('short');
    expect((body as { error: string }).error).toMatch(
      /^The tokens of this user for this day are less than the next model call may use: budget\.user\.day\.tokens/,
    );
    expect(provider.asked.length).toBe(calls);
    expect(Number((await usedBy('short'))?.tokens)).toBe(0);
    expect(await rows('select * from budget_reservations')).toEqual([]);
  });

  test('the last invocation of a budget goes on after its tools', async () => {
    answer = ({ results }) => (results.length > 0 ? 'done' : { calls: [['calculator', { expression: '1 + 1' }]] });
    await setBudget({ appliesTo: 'user', forUser: 'last', period: 'day', maxInvocations: 1 });
    expect((await invoke('last')).body).toMatchObject({ error: null, output: 'done' });
    answer = () => 'done';
    expectRefusal(await invoke('last'), 'budget.user.day.invocations');
  });

  test('invocations of one moment are as many as a budget allows', async () => {
    answer = () => 'done';
    await setBudget({ appliesTo: 'user', forUser: 'many', period: 'day', maxInvocations: 3 });
    const together = (users: string[]) => Promise.all(users.map((user, place) => invoke(user, `together ${place}`)));
    const passed = (answers: { status: number }[]) => answers.filter(({ status }) => status === 200).length;
    expect(passed(await together(Array.from({ length: 16 }, () => 'many')))).toBe(3);
  });

  test('a call asks for no more output than is reserved, where a budget of tokens or cost applies', async () => {
    await setBudget({ appliesTo: 'user', forUser: 'bound', period: 'day', maxTokens: 100_000 });
    const bounds = async (user: string) => {
      await invoke(user);
      return provider.asked.at(-1)?.body['max_tokens'];
    };
    expect(await bounds('bound')).toBe(8_192);
    expect(await bounds('boundless')).toBeUndefined();
    await setBudget({ appliesTo: 'user', forUser: 'boundless', period: 'day', maxInvocations: 100 });
    expect(await bounds('boundless')).toBeUndefined();
  });

  test('its webhook is told of 50, 80 and 100 percent, each once, of a budget of another user too', async () => {
    const hook = await app.post('/harness/webhooks', { ownerId: 'operator', url: 'https://example.com/spending' });
    const { webhookId } = hook.body as { webhookId: string };
    await setBudget({ appliesTo: 'user', forUser: 'told', period: 'day', maxTokens: 5 * ONE_CALL, webhookId });
    const told = async () =>
      (await rows<{ payload: string }>('select payload from webhook_deliveries order by create_time')).map(
        ({ payload }) => JSON.parse(payload) as { type: string; data: { percent: number } },
      );
    const percents: number[][] = [];
    for (let count = 0; count < 5; count += 1) {
      expect((await invoke('told')).body).toMatchObject({ error: null });
      percents.push((await told()).map(({ data }) => data.percent));
    }
    expect(percents).toEqual([[], [], [50], [50, 80], [50, 80, 100]]);
    expectRefusal(await invoke('told'), 'budget.user.day.tokens');
    expect(await told()).toMatchObject([
      {
        type: 'budget.reached',
        data: { appName: 'harness_agent', userId: 'told', appliesTo: 'user', period: 'day', tokens: 3 * ONE_CALL },
      },
      {},
      {},
    ]);
  });

  test('what a failed invocation used is counted, and a refused or repeated one counts nothing', async () => {
    answer = ({ results }) => (results.length > 2 ? '' : { calls: [['calculator', { expression: '1 + 1' }]] });
    const { body } = await invoke('fay', 'failing');
    expect((body as { error: string }).error).toContain('empty answer');
    answer = () => 'done';
    const used = await usedBy('fay');
    expect(Number(used?.invocations)).toBe(1);
    expect(Number(used?.tokens)).toBeGreaterThan(0);
    await setBudget({ appliesTo: 'user', forUser: 'fay', period: 'day', maxInvocations: 1 });
    expect((await invoke('fay', 'failing')).status).toBe(429);
    expect(await usedBy('fay')).toEqual(used);
  });

  test('an answer that is stored is given again, whatever is left', async () => {
    const body = {
      prompt: 'Hello',
      harness_name: 'harness_agent',
      run_agent_request: { user_id: 'gus', session_id: 's' },
    };
    const first = await app.post('/harness/invoke', body, { 'idempotency-key': 'k' });
    await setBudget({ appliesTo: 'user', forUser: 'gus', period: 'day', maxInvocations: 1 });
    const again = await app.post('/harness/invoke', body, { 'idempotency-key': 'k' });
    expect([again.status, again.text]).toEqual([200, first.text]);
    expect((await invoke('gus', 's')).status).toBe(429);
  });

  test('one that names no user, or one too many, is refused', async () => {
    const wrong = { appliesTo: 'user', period: 'day', maxTokens: 1 };
    expect((await app.send('PUT', '/apps/harness_agent/budgets', wrong)).status).toBe(400);
    const both = { appliesTo: 'app', forUser: 'u', period: 'day', maxTokens: ONE_CALL };
    expect((await app.send('PUT', '/apps/harness_agent/budgets', both)).status).toBe(400);
  });

  test('is removed by DELETE or by null, never by what is left out', async () => {
    const path = '/apps/harness_agent/budgets';
    const key = { appliesTo: 'user', forUser: 'kept', period: 'month' };
    const isThere = async () =>
      ((await app.get(path)).body as { forUser: string }[]).some((each) => each.forUser === 'kept');
    await setBudget({ ...key, maxTokens: 1_000 });
    for (const nothing of [{}, { max_token: 500 }, { maxTokens: 500, webhokId: 'w' }]) {
      expect((await app.send('PUT', path, { ...key, ...nothing })).status).toBe(422);
      expect(await isThere()).toBe(true);
    }
    expect((await app.send('DELETE', `${path}?applies_to=user&period=month`)).status).toBe(400);
    for (const query of ['appliesTo=user&forUser=kept', 'appliesTo=user&forUser=kept&period=month&webhookId=w'])
      expect((await app.send('DELETE', `${path}?${query}`)).status).toBe(422);
    expect(await isThere()).toBe(true);
    expect((await app.send('DELETE', `${path}?applies_to=user&for_user=kept&period=month`)).text).toBe('null');
    expect(await isThere()).toBe(false);
    await setBudget({ ...key, maxTokens: 1_000 });
    expect((await app.send('PUT', path, { ...key, maxTokens: null })).text).toBe('null');
    expect(await isThere()).toBe(false);
  });
});
