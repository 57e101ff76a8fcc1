import type { Locator, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type AnsweringProvider, startAnsweringProvider } from '../support/answering-provider.ts';
import { startApp, type TestApp } from '../support/app.ts';
import { type BrowserPage, findBrowser, openBrowser } from '../support/browser.ts';

/** The Evals tab of the prebuilt ADK Web UI in a real browser. The steps build on each other. */

const browserPath = findBrowser();
const D = '/dev/apps/harness_agent';
const content = (text: string, role = 'user') => ({ role, parts: [{ text }] });
const evalCase = (evalId: string, said: string, answer: string) => ({
  evalId,
  conversation: [
    { userContent: content(said), finalResponse: content(answer, 'model'), intermediateData: { invocationEvents: [] } },
  ],
  sessionInput: { appName: 'harness_agent', userId: 'user', state: {} },
});

describe.skipIf(!browserPath)('the Evals tab of the ADK Web UI', () => {
  let provider: AnsweringProvider;
  let app: TestApp;
  let browser: BrowserPage;
  let page: Page;

  beforeAll(async () => {
    provider = await startAnsweringProvider(({ prompt, results }) => {
      if (prompt.includes('"verdict"')) return JSON.stringify({ reason: 'They agree.', verdict: 'valid' });
      if (prompt.includes('Break')) return { status: 500 };
      if (prompt.includes('Be silent')) return { calls: [['exit_loop', {}]] };
      if (prompt.includes('Add') && results.length === 0) return { calls: [['calculator', { expression: '1 + 1' }]] };
      return `The answer to: ${prompt}`;
    });
    app = await startApp({
      MODEL_PROVIDER: 'openai-compatible',
      MODEL_NAME: 'answering',
      MODEL_BASE_URL: provider.baseUrl,
      MODEL_MAX_RETRIES: '0',
      TOOLS: 'calculator,exit_loop',
    });
    await app.post('/apps/harness_agent/users/user/sessions/s1');
    await app.post('/run', {
      appName: 'harness_agent',
      userId: 'user',
      sessionId: 's1',
      newMessage: content('Add one and one'),
    });
    browser = await openBrowser(browserPath ?? '', app.url);
    page = browser.page;
  });
  afterAll(async () => {
    await browser?.close();
    await app?.close();
    await provider?.close();
  });

  const dialog = (): Locator => page.locator('mat-dialog-container');
  const row = (text: string): Locator => page.locator('.eval-case-row, .eval-set-row').filter({ hasText: text });
  const sidebar = (tooltip: 'Eval Cases' | 'Runs') =>
    page
      .locator('.vertical-tabs-sidebar')
      .getByRole('button')
      .nth(tooltip === 'Runs' ? 2 : 1);
  const look = async (name: string) => {
    await browser.screenshot(`evals-${name}`);
    return browser.problems;
  };
  /** Opens a set from anywhere in the tab. */
  const openSet = async (id: string) => {
    // A set that is opened with its runs in sight never shows a later run: the page computes the list once.
    await sidebar('Eval Cases').click();
    await page.locator('.eval-detail-header button').filter({ hasText: 'home' }).click();
    const listed = page.waitForResponse((response) => response.url().endsWith('/eval_sets'));
    await page.locator('.eval-detail-header button').filter({ hasText: 'refresh' }).click();
    await listed;
    const cases = page.waitForResponse((response) => response.url().endsWith(`/${id}/evals`));
    await row(id).click();
    await cases;
    await page.locator('.eval-cases-list .eval-case-row').first().waitFor();
  };
  /** Runs the open set with these metrics of the dialog, and waits until the run is shown. */
  const run = async (...metrics: string[]) => {
    await page.getByRole('button', { name: /Run / }).first().click();
    await dialog().getByText('Threshold').last().waitFor({ state: 'attached' });
    for (const container of await dialog().locator('.metric-container').all()) {
      const title = (await container.locator('.metric-title').innerText()).trim();
      await container.getByRole('checkbox').setChecked(metrics.includes(title));
    }
    await look(`metrics-${metrics.length}`);
    const ran = page.waitForResponse((response) => /\/run(_eval)?$/.test(response.url()));
    await dialog().getByRole('button', { name: 'Start' }).click();
    expect((await ran).status()).toBe(200);
    await page.locator('.status-card').waitFor();
  };
  const TRAJECTORY = 'Tool Trajectory';
  const MATCH = 'Response Match';
  /** What the open run says of a case: how many metric results passed, and whether that is shown as good. */
  const verdictOf = async (evalId: string): Promise<[score: string, isGreen: boolean]> => {
    const shown = page.locator('.status-card__history-case').filter({ hasText: evalId }).locator('span').last();
    await shown.waitFor();
    return [(await shown.innerText()).trim(), await shown.evaluate((one) => one.className.includes('__passed'))];
  };
  const openResult = async (evalId: string) => {
    await page.locator('.status-card__history-case').filter({ hasText: evalId }).click();
    await page.getByText(new RegExp(`Eval Result: .* > ${evalId}`, 'i')).waitFor();
  };

  test('a set is made and gets the session', async () => {
    await page.goto(`${app.url}/dev-ui/?app=harness_agent&session=s1&userId=user`);
    await page.getByText('The answer to: Add one and one').waitFor();
    await page.getByRole('tab', { name: 'Evals', exact: true }).click();
    await page.getByText('Create Evaluation Set').click();
    await dialog().locator('input').first().fill('sums');
    await page.getByRole('button', { name: 'Create' }).click();
    await row('sums').click();
    await page.getByRole('button', { name: 'From Current Session' }).click();
    await dialog().locator('input').first().fill('adds');
    await page.getByRole('button', { name: /Create|Add/ }).click();
    await row('adds').waitFor();
    expect(await look('case')).toEqual([]);
  });

  test('run with two metrics it passes', async () => {
    await run(TRAJECTORY, MATCH);
    expect(await verdictOf('adds')).toEqual(['2/2', true]);
    expect(await look('passed')).toEqual([]);
  });

  test('the case opens', async () => {
    await openSet('sums');
    await row('adds').click();
    await page.getByText('calculator("1 + 1")').waitFor();
    await page.getByText('The answer to: Add one and one').waitFor();
    await page.getByRole('heading', { name: 'Case: adds' }).waitFor();
    expect(await look('opened')).toEqual([]);
  });

  test('the case is edited: its expected answer is taken out and saved', async () => {
    await page.locator('.breadcrumb-item.clickable').click();
    await row('adds').hover();
    await row('adds').getByRole('button').first().click();
    const answer = page.locator('app-event-content').filter({ hasText: 'The answer to' });
    await answer.locator('.eval-case-edit-button').last().click();
    const saved = page.waitForResponse((response) => response.request().method() === 'PUT');
    await page.getByRole('button', { name: 'Save' }).click();
    expect((await saved).status()).toBe(200);
    await page.getByText('Eval case updated').waitFor();
    await look('edited');
    // The same click also reaches the row of the message, which this bundle has taken away by then.
    expect(browser.problems.splice(0)).toEqual([expect.stringContaining('at t.clickEvent')]);
    const { body } = await app.get(`${D}/eval-sets/sums/eval-cases/adds`);
    expect(body).toMatchObject({ conversation: [{ finalResponse: { role: 'model', parts: [] } }] });
  });

  // The dialog of this bundle for the arguments of a call never opens (it reads a member that its own events do not
  // have), so what it would send is sent for it: the case as it was read, other arguments in `toolUses`.
  test('other arguments of a call are what the next run expects; the failed trajectory opens', async () => {
    const path = `${D}/eval_sets/sums/evals/adds`;
    const read = (await app.get(path)).body as {
      conversation: { intermediateData: { toolUses: { args: object }[] } }[];
    };
    const [use] = read.conversation[0]?.intermediateData.toolUses ?? [];
    expect(use?.args).toEqual({ expression: '1 + 1' });
    if (use) use.args = { expression: '2 + 2' };
    expect((await app.send('PUT', path, read)).status).toBe(200);
    await openSet('sums');
    await run(TRAJECTORY);
    expect(await verdictOf('adds')).toEqual(['0/1', false]);
    await openResult('adds');
    await page.getByText('calculator("1 + 1")').first().waitFor();
    await page.getByText('Tool Trajectory').first().waitFor();
    expect(await look('failed-trajectory')).toEqual([]);
  });

  test('a silent agent fails and opens, and so does one whose model fails, with the reason', async () => {
    const eval_cases = [evalCase('silent', 'Be silent', 'Something'), evalCase('broken', 'Break', 'Something')];
    await app.post(`${D}/eval-sets`, { evalSet: { eval_set_id: 'trouble', eval_cases } });
    await openSet('trouble');
    await run(TRAJECTORY, MATCH);
    expect(await verdictOf('silent')).toEqual(['0/2', false]);
    expect(await verdictOf('broken')).toEqual(['0/1', false]);
    await openResult('silent');
    await page.getByText('Be silent').first().waitFor();
    expect(await look('silent')).toEqual([]);
    await openResult('broken');
    await page
      .getByText(/The model `?answering`? of openai-compatible is not available/)
      .first()
      .waitFor();
    expect(await look('broken')).toEqual([]);
  });

  test('a judge metric picked in the dialog is judged by the model', async () => {
    await app.post(`${D}/eval-sets`, {
      evalSet: { eval_set_id: 'judged', eval_cases: [evalCase('hello', 'Hi', 'Hi!')] },
    });
    await openSet('judged');
    const before = provider.asked.filter(({ prompt }) => prompt.includes('"verdict"')).length;
    await run('Final Response Match V2');
    expect(await verdictOf('hello')).toEqual(['1/1', true]);
    expect(provider.asked.filter(({ prompt }) => prompt.includes('"verdict"')).length - before).toBe(5);
    expect(await look('judged')).toEqual([]);
  });

  test('the history shows every run of the set; one with efficiency metrics on is green too', async () => {
    const names = ['tool_call_count_v1', 'inference_call_count_v1', 'token_usage_v1', 'invocation_duration_v1'];
    const evalMetrics = [
      { metricName: 'response_match_score', threshold: 0 },
      ...names.map((metricName) => ({ metricName })),
    ];
    expect((await app.post(`${D}/eval-sets/judged/run`, { evalMetrics })).status).toBe(200);
    const read = page.waitForResponse((response) => response.url().includes('/eval_results/harness_agent_judged'));
    await page.goto(`${app.url}/dev-ui/?app=harness_agent&session=s1&userId=user`);
    await page.getByRole('tab', { name: 'Evals', exact: true }).click();
    await read;
    await page.waitForLoadState('networkidle');
    await row('judged').click();
    await sidebar('Runs').click();
    const runs = page.locator('.vertical-tabs-content .eval-case-row');
    await expect.poll(() => runs.count()).toBe(2);
    expect(await runs.allInnerTexts()).toEqual([
      expect.stringMatching(/#2[^]*1 PASS/),
      expect.stringMatching(/#1[^]*1 PASS/),
    ]);
    expect(await look('history')).toEqual([]);
    await runs.first().click();
    expect(await verdictOf('hello')).toEqual(['1/1', true]);
    await openResult('hello');
    await page.getByText('The answer to: Hi').first().waitFor();
    expect(await look('efficiency')).toEqual([]);
  });

  test('a case is deleted, and a set', async () => {
    await openSet('sums');
    await row('adds').hover();
    await row('adds').getByRole('button').last().click();
    await dialog().getByRole('button', { name: 'Delete' }).click();
    await page.getByText('No Eval Cases').waitFor();
    expect((await app.get(`${D}/eval_sets/sums/evals`)).body).toEqual([]);
    await page.locator('.eval-detail-header button').first().click();
    await row('sums').hover();
    await row('sums').getByRole('button').click();
    await dialog().getByRole('button', { name: 'Delete' }).click();
    await row('sums').waitFor({ state: 'detached' });
    expect((await app.get(`${D}/eval_sets`)).body).toEqual(['judged', 'trouble']);
    expect(await look('deleted')).toEqual([]);
  });
});
