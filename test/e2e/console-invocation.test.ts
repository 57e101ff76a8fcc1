import type { Page } from 'playwright-core';
import { Client } from 'pg';
import { describe, expect, test } from 'vitest';
import type { Model, ModelRequest } from '../../src/agent/definition/model.ts';
import type { Tool } from '../../src/agent/definition/tool.ts';
import { AgentError } from '../../src/core/errors.ts';
import type { Part } from '../../src/core/content.ts';
import { hostAgent } from '../support/agents.ts';
import { startApp, type TestApp } from '../support/app.ts';
import { findBrowser } from '../support/browser.ts';
import { type ConsolePage, openConsole } from '../support/console.ts';
import { callPart } from '../support/scripted-model.ts';

/** An invocation in the console: question, answer, and its steps as a tree, with what failed and why. */

const browserPath = findBrowser();
const sessions = '/apps/harness_agent/users/u1/sessions';
const REASON = 'The card of Ada was declined (code 51).';
const HOSTILE = {
  html: '<img src="x" onerror="document.title=1"><script>document.title=2</script>',
  rtl: '\u202Eمرحبا abc',
  long: 'W'.repeat(6_000),
  rows: Array.from({ length: 3_000 }, (_, n) => ({ n, text: `row ${n}` })),
};

const tool = (name: string, run: Tool['run'], more: Partial<Tool> = {}): Tool => ({
  name,
  description: name,
  needsConfirmation: false,
  parameters: { type: 'object', properties: {} },
  run,
  ...more,
});

const TOOLS = [
  tool('stock', async () => ({ left: 3, shelves: { first: { lamps: { brass: 'two of brass' } } } })),
  tool('charge', () => Promise.reject(new Error(REASON))),
  tool('refund', async () => 'refunded', { needsConfirmation: true }),
  tool('evil', async () => HOSTILE),
  tool('move', async (_args, { actions }) => void (actions.stateDelta = { city: 'Rome' })),
];

/** What the agents say, by the first word of what they were asked and the number of their own answers so far. */
const SCRIPTS: Record<string, Part[][]> = {
  Refund: [
    [{ text: 'Let me look.' }, callPart('stock'), callPart('charge')],
    [callPart('refund')],
    [callPart('sleep_for', { seconds: 1 })],
    [callPart('transfer_to_agent', { agent_name: 'writer' })],
  ],
  writer: [[{ text: '# Done\n\nThe refund is **made**.' }]],
  Hostile: [[callPart('evil')], [{ text: `${HOSTILE.html}\n\n${HOSTILE.rtl}\n\n${HOSTILE.long}` }]],
  Move: [[callPart('move')], [{ text: 'Moved.' }]],
  Count: [[callPart('stock')], [{ text: 'Counted.' }]],
  Delegate: [[callPart('researcher', { request: 'Research it.' })], [{ text: 'Delegated.' }]],
  Research: [[callPart('clerk', { request: 'Book it.' })], [{ text: 'Researched.' }]],
  Book: [[callPart('refund')], [{ text: 'Booked.' }]],
};

const model: Model = {
  provider: 'scripted',
  // oxlint-disable-next-line require-yield -- a model that fails says nothing
  async *generate(request: ModelRequest) {
    const { contents, instruction } = request;
    const asked = contents.find(({ role }) => role === 'user')?.parts?.[0]?.text?.split(' ')[0] ?? '';
    if (asked === 'Explode') throw new AgentError('model_unavailable', 'The provider answered 503.');
    const isWriter = instruction.startsWith('Write');
    const place = isWriter ? 0 : contents.filter(({ role }) => role === 'model').length;
    if (asked === 'Refund' && place === 0 && !isWriter)
      request.onFailedTry?.({ provider: 'first', model: 'first-1', error: 'model_rate_limited' });
    const parts = SCRIPTS[isWriter ? 'writer' : asked]?.[place] ?? [{ text: 'Well.' }];
    const usageMetadata = {
      promptTokenCount: 1_000,
      cachedContentTokenCount: 250,
      candidatesTokenCount: 40,
      totalTokenCount: 1_040,
    };
    return { content: { role: 'model', parts }, modelVersion: 'scripted-1', finishReason: 'STOP', usageMetadata };
  },
};

const part = { description: '', skills: [], mcpServers: [] };
const clerk = { ...part, name: 'clerk', instruction: 'Book.', tools: ['refund'], asTool: true };
const researcher = {
  ...part,
  name: 'researcher',
  instruction: 'Research.',
  tools: [],
  asTool: true,
  subAgents: [clerk],
};

const start = () =>
  startApp(
    { TOOLS: 'sleep_for' },
    {
      agents: hostAgent(model, TOOLS, {
        instruction: 'Answer.{city?}',
        tools: ['stock', 'charge', 'refund', 'evil', 'move', 'sleep_for'],
        subAgents: [{ ...part, name: 'writer', description: 'Writes.', instruction: 'Write.', tools: [] }, researcher],
      }),
    },
  );

describe.skipIf(!browserPath)('an invocation in the console', () => {
  const withConsole = async (work: (app: TestApp, browser: ConsolePage, page: Page) => Promise<void>) => {
    const app = await start();
    const browser = await openConsole(browserPath ?? '', app.url);
    try {
      await work(app, browser, browser.page);
    } finally {
      await browser.close();
      await app.close();
    }
  };
  const ask = (app: TestApp, session: string, prompt: string) =>
    app.post('/harness/invoke', {
      prompt,
      harness_name: 'd',
      run_agent_request: { user_id: 'u1', session_id: session },
    });
  const open = async (app: TestApp, page: Page, session: string) => {
    const [invocation] = (await app.get(`${sessions}/${session}/invocations`)).body as { id: string }[];
    await page.goto(`${app.url}/console/invocations/harness_agent/u1/${session}/${invocation?.id}`);
    await page.getByRole('region', { name: 'Steps' }).waitFor();
    return invocation?.id ?? '';
  };
  const step = (page: Page, name: string) =>
    page.locator('summary').filter({ has: page.getByText(name, { exact: true }) });

  test('steps, tools that failed with their reason, waits, agents, tokens; what it waits for is answered', async () =>
    withConsole(async (app, browser, page) => {
      await app.send('PUT', '/model-prices', { model: 'scripted', promptPrice: 10, outputPrice: 100 });
      await ask(app, 's1', 'Refund the *lamp*.');
      await open(app, page, 's1');
      const question = page.getByRole('region', { name: 'Question' });
      const answer = page.getByRole('region', { name: 'Answer', exact: true });
      expect(await question.locator('em').innerText()).toBe('lamp');
      await answer.getByText('It waits').waitFor();
      await step(page, 'Confirmation').getByText('goes on').waitFor();
      await step(page, 'Confirmation').click();
      await page.getByRole('link', { name: 'Answer it' }).click();
      await page.waitForURL(/\/tasks\//);
      const id = new URL(page.url()).pathname.split('/').at(-1);
      expect((await app.send('PATCH', `/tasks/${id}`, { action: 'answer' })).status).toBe(200);
      await page.goBack();
      await page.getByText('succeeded', { exact: true }).waitFor();
      await answer.getByRole('heading', { name: 'Done' }).waitFor();
      const runs = page.getByRole('region', { name: 'Runs' });
      await runs.getByText('after a call was allowed or rejected; goes on from run 1').waitFor();
      await runs.getByText('after it slept; goes on from run 2').waitFor();
      // The tool that failed, and the model call whose first try did.
      const failures = page.getByRole('region', { name: 'What failed' });
      await failures.getByText(REASON).waitFor();
      await step(page, 'charge').getByText(REASON).waitFor();
      expect(await page.locator('details.tool.failed').count()).toBe(1);
      await step(page, 'scripted-1').first().getByText('first-1 of first with model_rate_limited').waitFor();
      // Its tokens, and a cost of 1,000 * 10 + 40 * 100 millionths.
      const first = step(page, 'scripted-1').first();
      await first.getByText('1,000 in (25 % cached), 40 out').waitFor();
      await first.getByText('0.01', { exact: true }).waitFor();
      await page.getByText('Cost: in the currency of your model prices').waitFor();
      // The sub-agent, and its answer, stand below the agent that handed over.
      const writer = page.locator('details.agent details.agent').filter({ has: step(page, 'writer') });
      await writer.locator('details.model').waitFor();
      expect(await page.locator('details.wait').count()).toBe(2);
      // Opened: folded by depth, and copied whole.
      await failures.getByRole('button', { name: 'charge' }).click();
      await page.getByRole('button', { name: 'Copy Answer' }).first().waitFor();
      await step(page, 'stock').click();
      const shown = page.locator('details.tool').filter({ has: step(page, 'stock') });
      await shown.getByText('shelves').waitFor();
      expect(await shown.getByText('two of brass').count()).toBe(0);
      await shown.locator('summary').filter({ hasText: 'first' }).click();
      await shown.locator('summary').filter({ hasText: 'lamps' }).click();
      await shown.getByText('two of brass').waitFor();
      await shown.getByText('As it is stored').click();
      expect(await browser.look('invocation-tree')).toEqual([]);
    }));

  test('the agents that it called are a tree: whether they go on, what they used, and what they ask', async () =>
    withConsole(async (app, browser, page) => {
      await ask(app, 's1', 'Delegate it.');
      await open(app, page, 's1');
      const called = page.getByRole('region', { name: 'Agents that it called' });
      const below = called.locator('li li');
      await below.getByRole('link', { name: 'clerk' }).waitFor();
      await below.getByText('paused', { exact: true }).waitFor();
      await below.getByText('1 model call, 1,000 in, 40 out').waitFor();
      await called.getByText('Open task: confirmation').waitFor();
      expect(await browser.look('invocation-children')).toEqual([]);
      await called.getByText('Open task: confirmation').click();
      await page.waitForURL(/\/tasks\//);
      const id = new URL(page.url()).pathname.split('/').at(-1);
      expect((await app.send('PATCH', `/tasks/${id}`, { action: 'answer' })).status).toBe(200);
      await page.goBack();
      await below.getByText('succeeded', { exact: true }).waitFor();
      await called.getByText('4 model calls, 4,000 in, 160 out').waitFor();
      await below.getByRole('link', { name: 'clerk' }).click();
      await page.getByRole('region', { name: 'Answer', exact: true }).getByText('Booked.').waitFor();
    }));

  test('a call whose prompt breaks with the one before it has a label, and says where and why', async () =>
    withConsole(async (app, browser, page) => {
      await ask(app, 's1', 'Move to Rome.');
      await open(app, page, 's1');
      const label = page.getByText('cache break: instruction', { exact: true });
      await label.waitFor();
      const text =
        'The prompt does not begin with the one before it, so the cache misses from there: instruction, city.';
      expect([await label.count(), await label.getAttribute('title')]).toEqual([1, text]);
      await step(page, 'scripted-1').last().click();
      await page.getByRole('paragraph').filter({ hasText: text }).waitFor();
      expect(await browser.look('invocation-break')).toEqual([]);
    }));

  test('a failed model call: the code, what to do, and the step', async () =>
    withConsole(async (app, _browser, page) => {
      await ask(app, 's1', 'Explode now.');
      await open(app, page, 's1');
      const error = page.getByRole('region', { name: 'Error' });
      await error.getByText('model_unavailable').waitFor();
      await error.getByText(/What to do: .*fallback/).waitFor();
      await page.locator('details.model.failed').getByText('The provider answered 503.').waitFor();
      expect(await page.getByText('There is none: it failed.').count()).toBe(1);
    }));

  test('hostile content stays in its box', async () =>
    withConsole(async (app, browser, page) => {
      await ask(app, 's1', 'Hostile content.');
      await open(app, page, 's1');
      await step(page, 'evil').click();
      await page.getByText('Show all 6,000 characters').first().waitFor();
      await page.locator('summary').filter({ hasText: '[3,000]' }).first().click();
      await page.getByRole('button', { name: 'Show 100 more of 3,000' }).waitFor();
      await step(page, 'scripted-1').last().click();
      expect(await page.locator('main img, main script').count()).toBe(0);
      expect(await browser.look('invocation-hostile')).toEqual([]);
      expect(await page.title()).not.toMatch(/^\d$/);
    }));

  test('1,000 steps: the first are in the page, and a failure far down is one press away', async () =>
    withConsole(async (app, _browser, page) => {
      await ask(app, 's1', 'Count lamps.');
      const sql = new Client({ connectionString: app.databaseUrl });
      await sql.connect();
      try {
        // Copies of the call and its answer, with ids of their own; the answer of the 900th says that it failed.
        const { rows } = await sql.query<{ name: string }>(
          `select column_name as name from information_schema.columns
            where table_schema = current_schema() and table_name = 'events' and is_generated = 'NEVER'
              and is_identity = 'NO'`,
        );
        const values: Record<string, string> = {
          sequence: '4 + 2 * (n - 1) + t.sequence - 1',
          id: `t.id || '-' || n`,
          payload: `replace(replace(t.payload::text, p.call, p.call || '-' || n),
            case when n = 900 then '"left": 3' else '-' end, case when n = 900 then '"error": "It was the 900th."' else '-' end)::jsonb`,
        };
        const chosen = rows.map(({ name }) => values[name] ?? `t."${name}"`);
        await sql.query(
          `insert into events (${rows.map(({ name }) => `"${name}"`).join()})
           select ${chosen.join()} from events t, generate_series(1, 1000) n,
             (select jsonb_path_query_first(payload, '$.content.parts[*].functionCall.id') #>> '{}' as call
                from events where session_id = 's1' and sequence = 2) p
            where t.session_id = 's1' and t.sequence in (2, 3)`,
        );
        await sql.query(`update sessions set last_sequence = 2004 where id = 's1'`);
      } finally {
        await sql.end();
      }
      await open(app, page, 's1');
      await page.getByRole('button', { name: 'Show 100 more of 2,003 steps' }).waitFor();
      expect(await page.locator('details.step').count()).toBeLessThan(110);
      const failures = page.getByRole('region', { name: 'What failed' });
      await failures.getByText('It was the 900th.').waitFor();
      await failures.getByRole('button', { name: 'stock' }).click();
      await expect.poll(() => page.locator('summary:focus').innerText()).toContain('It was the 900th.');
    }));
});
