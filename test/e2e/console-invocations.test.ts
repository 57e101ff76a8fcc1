import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createKey } from '../../src/platform/http/access/key-ring.ts';
import { AgentError } from '../../src/core/errors.ts';
import { hostAgent, hostScript } from '../support/agents.ts';
import { startApp, type TestApp } from '../support/app.ts';
import { findBrowser } from '../support/browser.ts';
import { type ConsolePage, openConsole } from '../support/console.ts';
import { scriptedModel } from '../support/scripted-model.ts';

/** What failed today, among all users. */

const browserPath = findBrowser();
const QUESTION = 'What is 17 * 23? Use the calculator.';

const ask = (app: TestApp, user: string, session: string, prompt: string, maxCalls = 5, headers = {}) =>
  app.post(
    '/harness/invoke',
    {
      prompt,
      harness_name: 'd',
      run_agent_request: { user_id: user, session_id: session, max_llm_calls: maxCalls },
    },
    headers,
  );

describe.skipIf(!browserPath)('the invocations of all users', () => {
  let app: TestApp;
  let browser: ConsolePage;
  let page: Page;
  const link = (name: string) => page.getByRole('link', { name, exact: true });
  const button = (name: string) => page.getByRole('button', { name, exact: true });
  const rows = () => page.getByRole('region', { name: 'Invocations' }).locator('tbody tr');

  beforeAll(async () => {
    app = await startApp();
    browser = await openConsole(browserPath ?? '', app.url);
    page = browser.page;
    for (let n = 1; n <= 12; n++) await ask(app, `u${n}`, `s${n}`, `Hello number ${n}.`);
    await ask(app, 'u7', 's7', QUESTION, 1);
    for (let n = 1; n <= 7; n++) await ask(app, 'u3', 'long', `Turn ${n}.`);
  });
  afterAll(async () => {
    await browser?.close();
    await app?.close();
  });

  test('what failed today is one click: the reason, the question, whose it is, and each a link', async () => {
    await page.goto(`${app.url}/console/invocations`);
    await link('Turn 7.').waitFor();
    await expect.poll(() => rows().count()).toBe(20);
    expect(await browser.look('all-invocations')).toEqual([]);
    await link('What failed today').click();
    await expect.poll(() => rows().count()).toBe(1);
    expect(new URL(page.url()).searchParams.get('status')).toContain('failed');
    await link('llm_calls_limit').waitFor();
    await page.getByText('limit of `1` exceeded').waitFor();
    expect(await browser.look('failed-invocations')).toEqual([]);
    await link('u7').click();
    await expect.poll(() => rows().count()).toBe(2);
    await link('s7').first().click();
    await page.getByRole('heading', { name: 'Hello number 7.' }).waitFor();
    await page.goBack();
    await link(QUESTION).click();
    await page.waitForURL(/\/invocations\/harness_agent\/u7\/s7\/e-/);
  });

  test('is found by words, by the id of its session, and by its own', async () => {
    const { items } = (await app.get('/apps/harness_agent/invocations?userId=u5')).body as { items: { id: string }[] };
    for (const text of ['NUMBER 5.', 's5', items[0]?.id ?? '']) {
      await page.goto(`${app.url}/console/invocations`);
      await page.getByLabel('Question, or id of session or invocation').fill(text);
      await button('Search').click();
      await expect.poll(() => rows().count()).toBe(1);
      await link('Hello number 5.').waitFor();
    }
    await page.getByLabel('Status').selectOption('failed');
    await button('Search').click();
    await page.getByText('No invocation fits.').waitFor();
  });

  test('a new one comes by itself, and a session shows all of its own', async () => {
    await page.goto(`${app.url}/console/sessions/harness_agent/u3/long?tab=invocations`);
    await expect.poll(() => rows().count()).toBe(7);
    await ask(app, 'u3', 'long', 'Turn 8.');
    await link('Turn 8.').waitFor();
  });

  test('a succeeded one with a failed tool call has a mark, and is found by it', async () => {
    await ask(app, 'u9', 's9', 'Use the calculator {"expression":"two cups"}');
    await page.goto(`${app.url}/console/invocations`);
    const marked = rows().filter({ hasText: '1 tool call failed' });
    await marked.waitFor();
    expect(await marked.innerText()).toContain('succeeded');
    await link('With failed tool calls today').click();
    await expect.poll(() => rows().count()).toBe(1);
    expect(await browser.look('failed-tools')).toEqual([]);
    await page.locator('select[name="tools"]').selectOption('');
    await button('Search').click();
    await expect.poll(() => rows().count()).toBeGreaterThan(20);
  });

  test('uncertain tool calls are those of a user who is named', async () => {
    await page.goto(`${app.url}/console/invocations`);
    await page.getByText('They are listed for one user').waitFor();
    expect(await page.getByText('None: of every call').count()).toBe(0);
    await page.getByLabel('Calls of user').fill('u3');
    await button('Show').click();
    await page.getByText('None: of every call it is known what became of it.').waitFor();
    expect(await page.getByRole('main').innerText()).toContain('Of u3:');
  });

  test('a row has its cost where prices are known, and its unit is said', async () => {
    await page.goto(`${app.url}/console/invocations?text=Turn 1.`);
    await link('Turn 1.').waitFor();
    expect(await page.getByRole('columnheader', { name: 'Cost' }).count()).toBe(0);
    await app.send('PUT', '/model-prices', { model: '*', promptPrice: 1_000_000, outputPrice: 1_000_000 });
    await page.getByText('in the currency of your model prices').waitFor();
    const row = await rows().first().locator('td').allInnerTexts();
    const [tokensIn, tokensOut, cost] = row.slice(-3).map((text) => Number(text.replaceAll(',', '')));
    expect(cost).toBe((tokensIn ?? NaN) + (tokensOut ?? NaN));
    expect(await browser.look('costs')).toEqual([]);
  });

  test('the number of failed ones in the report leads to them', async () => {
    await page.goto(`${app.url}/console/usage`);
    await page.locator('.card', { hasText: 'Failed' }).getByRole('link').click();
    await page.waitForURL(/\/console\/invocations\?.*status=failed/);
    await expect.poll(() => rows().count()).toBe(1);
  });
});

describe.skipIf(!browserPath)('with a key that only reads', () => {
  test('it says what it may not, and what it may', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'agent-runtime-console-'));
    const keys = [createKey({ id: 'reader', scopes: ['read'] }), createKey({ id: 'invoker', scopes: ['invoke'] })];
    writeFileSync(join(folder, 'keys'), keys.map(({ entry }) => entry).join('\n'));
    const app = await startApp({ CONSOLE: 'true', RUNTIME_API_KEYS_FILE: join(folder, 'keys'), DEV_UI: 'false' });
    const browser = await openConsole(browserPath ?? '', app.url);
    const { page } = browser;
    try {
      await ask(app, 'ann', 's1', 'Hello.', 5, { authorization: `Bearer ${keys[1]?.key}` });
      await page.goto(`${app.url}/console/invocations`);
      await page.getByLabel('Key').fill(keys[0]?.key ?? '');
      await page.getByRole('button', { name: 'Log in' }).click();
      await expect
        .poll(() => page.locator('main').innerText())
        .toContain('This key may not list the invocations of all users');
      await page.getByLabel('Of user', { exact: true }).fill('ann');
      await page.getByRole('button', { name: 'Search' }).click();
      await page.getByRole('link', { name: 'Hello.' }).waitFor();
    } finally {
      await browser.close();
      await app.close();
      rmSync(folder, { recursive: true, force: true });
    }
  });
});

test.skipIf(!browserPath)('all applications in one look, and back to one', async () => {
  const agents = new Map([
    ...hostScript([[{ text: 'One.' }]]),
    ...hostAgent(scriptedModel([new AgentError('model_unavailable', 'The model is away.')]), [], { name: 'second' }),
  ]);
  const app = await startApp({}, { agents });
  const browser = await openConsole(browserPath ?? '', app.url);
  const { page } = browser;
  const rows = () => page.getByRole('region', { name: 'Invocations' }).locator('tbody tr');
  try {
    for (const appName of ['harness_agent', 'second']) {
      const sessions = `/apps/${appName}/users/u1/sessions`;
      await app.post(sessions, { sessionId: 's1' });
      const newMessage = { role: 'user', parts: [{ text: `Hello ${appName}` }] };
      await app.post('/run', { appName, userId: 'u1', sessionId: 's1', newMessage });
    }
    await page.goto(`${app.url}/console/invocations?app=harness_agent`);
    await page.getByRole('link', { name: 'Hello harness_agent' }).waitFor();
    expect(await rows().count()).toBe(1);
    await page.getByRole('link', { name: 'All applications' }).click();
    await expect.poll(() => rows().count()).toBe(2);
    expect(await browser.look('all-applications')).toEqual([]);
    await page.getByRole('link', { name: 'What failed today' }).click();
    await expect.poll(() => rows().count()).toBe(1);
    await page.getByRole('link', { name: 'Hello second' }).waitFor();
    await page.getByRole('link', { name: 'Only harness_agent' }).click();
    await page.getByText('No invocation fits.').waitFor();
  } finally {
    await browser.close();
    await app.close();
  }
});
