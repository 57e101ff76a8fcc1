import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type AnsweringProvider, startAnsweringProvider } from '../support/answering-provider.ts';
import { startApp, type TestApp } from '../support/app.ts';

/** What was used, over HTTP: the figures of the views, which are those of the events. */

type Row = Record<
  'invocations' | 'failed' | 'llmCalls' | 'promptTokens' | 'outputTokens' | 'cost' | 'seconds',
  number
> &
  Partial<Record<'period' | 'userId' | 'model', string>>;
let app: TestApp;
let sql: Client;
let provider: AnsweringProvider;
beforeAll(async () => {
  provider = await startAnsweringProvider(({ prompt, results }) =>
    prompt === 'fail'
      ? { status: 400 }
      : results.length > 0 || prompt !== 'add'
        ? 'done'
        : { calls: [['calculator', { expression: '1+1' }]] },
  );
  app = await startApp({ MODEL_PROVIDER: 'openai-compatible', MODEL_NAME: 'small', MODEL_BASE_URL: provider.baseUrl });
  sql = new Client({ connectionString: app.databaseUrl });
  await sql.connect();
  await app.send('PUT', '/model-prices', { model: 'answering', promptPrice: 1000, outputPrice: 2000 });
  for (const [user, prompt] of [
    ['ann', 'hello'],
    ['ann', 'add'],
    ['=bob', 'add'],
    ['=bob', 'fail'],
  ])
    await app.post('/harness/invoke', {
      prompt,
      harness_name: 'harness_agent',
      run_agent_request: { user_id: user, session_id: 's' },
    });
});
afterAll(async () => {
  await sql.end();
  await app.close();
  await provider.close();
});

const APP = '/apps/harness_agent';
const read = async (path: string) => ((await app.get(path)).body as { items: Row[]; nextCursor?: string }).items;
const sum = (rows: Row[], name: keyof Row) => rows.reduce((all, row) => all + Number(row[name] ?? 0), 0);
const FIGURES = ['invocations', 'failed', 'llmCalls', 'promptTokens', 'outputTokens', 'cost', 'seconds'] as const;
const sumAll = (rows: Row[]) => Object.fromEntries(FIGURES.map((name) => [name, Number(sum(rows, name).toFixed(6))]));

describe('usage over HTTP', () => {
  test('its sums are those of the views and of the events, whatever the rows are by', async () => {
    const total = sumAll(await read(`${APP}/usage`));
    for (const by of ['user', 'model', 'hour', 'user,model,day', 'hour,user,model'])
      expect([by, sumAll(await read(`${APP}/usage?by=${by}`))]).toEqual([by, total]);
    const { rows: views } = await sql.query<Row>(
      `select sum(invocations)::int as invocations, sum(failed)::int as failed, sum(llm_calls)::int as "llmCalls",
              sum(prompt_tokens)::int as "promptTokens", sum(output_tokens)::int as "outputTokens" from inspect.usage`,
    );
    const { rows: costs } = await sql.query<Row>('select sum(cost)::float as cost from inspect.invocation_costs');
    const { seconds, ...counted } = total;
    expect(counted).toEqual({ ...views[0], ...costs[0] });
    expect(seconds).toBeGreaterThan(0);
    // Three answers of ann's, two of bob's, of 10 and 5 tokens each; his failed call has none.
    expect(counted).toEqual({ invocations: 4, failed: 1, llmCalls: 6, promptTokens: 50, outputTokens: 25, cost: 0.1 });
    const { rows: events } = await sql.query<{ tokens: number }>(
      `select sum((payload #>> '{usageMetadata,totalTokenCount}')::int)::int as tokens from events`,
    );
    expect(events[0]?.tokens).toBe(75);
  });

  test('of one user: the own, and no other', async () => {
    const own = await read(`${APP}/users/ann/usage?by=user,model`);
    expect(own).toMatchObject([
      { userId: 'ann', invocations: 2, llmCalls: 0 },
      { userId: 'ann', model: 'answering', invocations: 0, llmCalls: 3, promptTokens: 30, cost: 0.06 },
    ]);
    expect(await read(`${APP}/users/nobody/usage`)).toEqual([]);
  });

  test('pages, and as a table that no spreadsheet takes for a formula', async () => {
    const all = await read(`${APP}/usage?by=user,model`);
    const pages: Row[] = [];
    let cursor: string | undefined;
    do {
      const { body } = await app.get(`${APP}/usage?by=user,model&limit=1${cursor ? `&cursor=${cursor}` : ''}`);
      const page = body as { items: Row[]; nextCursor?: string };
      pages.push(...page.items);
      cursor = page.nextCursor;
    } while (cursor);
    expect(pages).toEqual(all);
    const { text, headers } = await app.get(`${APP}/usage?by=user,model&format=csv&limit=1`);
    expect(headers.get('content-type')).toContain('text/csv');
    expect(text.split('\r\n')).toEqual([
      'period,userId,model,version,invocations,failed,llmCalls,promptTokens,outputTokens,cost,seconds,scored,passed,' +
        'p95Seconds',
      // The duration that 95 % are within has at most six decimals.
      expect.stringMatching(/^,"'=bob",,,2,1,1,0,0,,[\d.]+,0,0,\d+(\.\d{1,6})?$/),
      '',
    ]);
    const next = await app.get(`${APP}/usage?by=user,model&limit=1&cursor=${headers.get('x-next-cursor')}`);
    expect((next.body as { items: Row[] }).items).toEqual([all[1]]);
  });

  test.each([
    'from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z',
    'from=2020-01-01T00:00:00Z',
    'by=day,hour',
    'from=0000-01-01T00:00:00Z&to=0000-01-02T00:00:00Z',
    'to=0000-01-01T00:00:00Z',
    'from=9999-12-31T00:00:00Z&to=9999-12-31T23:59:59-14:00',
  ])('a report %s is refused', async (search) => {
    expect((await app.get(`${APP}/usage?${search}`)).status).toBe(400);
  });

  test('one of what is not known is refused by its name', async () => {
    const nothing = Buffer.from('["\\u0000","","",""]').toString('base64url');
    for (const search of ['by=colour', 'cursor=x', `cursor=${nothing}`])
      expect((await app.get(`${APP}/usage?${search}`)).status).toBe(422);
  });
});
