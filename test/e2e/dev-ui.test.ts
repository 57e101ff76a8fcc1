import { mkdtempSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Locator, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.ts';
import { type BrowserPage, findBrowser, openBrowser } from '../support/browser.ts';

/** The prebuilt ADK Web UI in a real browser. The steps build on each other; each leaves a screenshot to look at. */

const browserPath = findBrowser();
if (!browserPath) {
  console.warn(
    'Browser tests are skipped: no Chromium found. Install one (apt-get install chromium) or set CHROMIUM_PATH.',
  );
}

/** A second application, so that the UI has to ask which, with agents of every kind for its graph. */
const TEAM = `export const agent = {
  description: 'A team.',
  subAgents: [
    { name: 'research', kind: 'parallel', subAgents: [
      { name: 'reader', tools: ['web_fetch'] }, { name: 'counter', tools: ['calculator'] } ] },
    { name: 'review', kind: 'loop', maxIterations: 3, subAgents: [{ name: 'writer' }, { name: 'critic' }] },
  ],
};`;

/** One that fails after its first tool call. */
const LIMITED = `export const agent = { description: 'Limited.', tools: ['calculator'], maxLlmCalls: 1 };`;

describe.skipIf(!browserPath)('the ADK Web UI', () => {
  let app: TestApp;
  let browser: BrowserPage;
  let page: Page;
  let sessionId = '';
  let agentsDir = '';

  beforeAll(async () => {
    agentsDir = mkdtempSync(join(tmpdir(), 'agents-'));
    mkdirSync(join(agentsDir, 'team'));
    writeFileSync(join(agentsDir, 'team', 'agent.ts'), TEAM);
    mkdirSync(join(agentsDir, 'limited'));
    writeFileSync(join(agentsDir, 'limited', 'agent.ts'), LIMITED);
    app = await startApp({ DEV_UI: 'true', AGENTS_DIR: agentsDir, TOOLS: 'calculator,save_artifact,write_state' });
    browser = await openBrowser(browserPath ?? '', app.url);
    page = browser.page;
  });
  afterAll(async () => {
    await browser?.close();
    await app?.close();
    rmSync(agentsDir, { recursive: true });
  });

  const button = (icon: string): Locator =>
    page.locator('button').filter({ has: page.getByText(icon, { exact: true }) });
  const tab = (name: string): Locator => page.getByRole('tab', { name, exact: true });
  const say = async (text: string) => {
    await page.getByPlaceholder('Type a message').fill(text);
    await page.keyboard.press('Enter');
  };
  /** Takes the step's screenshot and says what went wrong so far. */
  const look = async (name: string) => {
    await browser.screenshot(name);
    return browser.problems;
  };

  test('pick the application', async () => {
    await page.goto(`${app.url}/`);
    await page.getByText('Development UI').click();
    await page.waitForURL(`${app.url}/dev-ui/`);
    expect(await look('start')).toEqual([]);
    await page.getByText('Select an app').first().click();
    expect(await look('applications')).toEqual([]);
    await page.getByText('harness_agent').click();
    await page.waitForURL(/app=harness_agent/);
    expect(await look('application')).toEqual([]);
  });

  test('a prompt makes a session, streams the answer, and shows the tool call and its response', async () => {
    await page.getByLabel('More options').click();
    await page.getByRole('menuitem', { name: 'Streaming' }).click();
    await page.keyboard.press('Escape');
    const sent = page.waitForRequest((request) => request.url().endsWith('/run_sse'));
    await say('What is 17 * 23? Use the calculator.');
    expect((await sent).postDataJSON()).toMatchObject({ appName: 'harness_agent', streaming: true });
    await page.getByText('calculator("17 * 23")').waitFor();
    await page.getByText('answered: 391').waitFor();
    await page.waitForURL(/session=/);
    sessionId = new URL(page.url()).searchParams.get('session') ?? '';
    expect(await look('answer')).toEqual([]);
    await button('check').hover();
    await page.getByText('FUNCTION RESPONSE').waitFor();
    expect(await look('tool-response')).toEqual([]);
    await page.mouse.move(0, 0);
  });

  test('tools that change the state and save an artifact', async () => {
    await say('Use write_state {"key": "city", "value": "Berlin"}');
    await page.getByText('"kept":"city"').waitFor();
    await say('Use save_artifact {"name": "note.txt", "text": "What the artifact says."}');
    await page.getByText('"version":0').waitFor();
    expect(await look('state-and-artifact')).toEqual([]);
  });

  test('an event: its details, its graph, the request and the answer of its model call', async () => {
    await page.getByText('calculator("17 * 23")').click();
    await page.locator('g.node').filter({ hasText: 'calculator' }).first().waitFor();
    expect(await look('event-graph')).toEqual([]);
    for (const [icon, expected] of [
      ['info', 'Event ID'],
      ['input', 'system_instruction'],
      ['output', 'finishReason'],
      ['analytics', 'promptTokenCount'],
      ['data_object', 'modelVersion'],
    ] as const) {
      await button(icon).first().click();
      await page.getByText(expected).first().waitFor();
      expect(await look(`event-${icon}`)).toEqual([]);
    }
  });

  test('the traces of the session', async () => {
    await page.getByRole('radio', { name: 'Traces' }).click();
    const labels = page.locator('.trace-label');
    await labels.filter({ hasText: 'calculator' }).waitFor();
    expect(await labels.allInnerTexts()).toEqual(expect.arrayContaining(['harness_agent', 'call_llm', 'calculator']));
    await labels.filter({ hasText: 'call_llm' }).first().click();
    await page.getByText('Parent ID').waitFor();
    expect(await look('trace')).toEqual([]);
    await button('list_alt').click();
    await page.getByText('gcp.vertex.agent.llm_request').first().waitFor();
    expect(await look('trace-attributes')).toEqual([]);
    await page.getByRole('radio', { name: 'Events' }).click();
  });

  test('state and artifacts', async () => {
    await tab('State').click();
    await page.getByText('Berlin').first().waitFor();
    expect(await look('state')).toEqual([]);
    await tab('Artifacts').click();
    await page.getByText('note.txt').first().waitFor();
    expect(await look('artifacts')).toEqual([]);
  });

  test('the graph of the application', async () => {
    await page.locator('.toolbar-icon-button').filter({ hasText: 'account_tree' }).click();
    await page.locator('.svg-container svg.ready g.node').filter({ hasText: 'save_artifact' }).waitFor();
    expect(await look('graph')).toEqual([]);
    await page.getByLabel('Close', { exact: true }).click();
  });

  test('an evaluation set with this session as a case', async () => {
    await tab('Evals').click();
    await page.getByText('Create Evaluation Set').click();
    expect(await look('eval-new-set')).toEqual([]);
    await page.locator('mat-dialog-container input').first().fill('smoke');
    await page.getByRole('button', { name: 'Create' }).click();
    await page.getByText('smoke').first().click();
    expect(await look('eval-set')).toEqual([]);
    await page.getByRole('button', { name: 'From Current Session' }).click();
    await page.locator('mat-dialog-container input').first().fill('case_1');
    await page.getByRole('button', { name: /Create|Add/ }).click();
    await page.getByText('case_1').first().waitFor();
    expect(await look('eval-case')).toEqual([]);
  });

  test('the same case once more: overwritten, as the UI says', async () => {
    const questions: string[] = [];
    page.once('dialog', (dialog) => {
      questions.push(dialog.message());
      void dialog.accept();
    });
    await page.getByRole('button', { name: 'From Current Session' }).click();
    await page.locator('mat-dialog-container input').first().fill('case_1');
    const sent = page.waitForResponse((response) => response.url().endsWith('/add_session'));
    await page.getByRole('button', { name: /Create|Add/ }).click();
    expect((await sent).status()).toBe(200);
    expect(questions).toEqual([expect.stringMatching(/overwrite/i)]);
    await page.locator('mat-dialog-container').waitFor({ state: 'detached' });
    expect(await look('eval-overwritten')).toEqual([]);
  });

  test('the set is run with the two metrics of the dialog, and the case passes', async () => {
    await page.getByRole('button', { name: /^Run/ }).first().click();
    expect(await look('eval-metrics')).toEqual([]);
    const ran = page.waitForResponse((response) => /\/run(_eval)?$/.test(response.url()));
    await page.locator('mat-dialog-container').getByRole('button', { name: 'Start' }).click();
    expect((await ran).status()).toBe(200);
    await page.locator('mat-dialog-container').waitFor({ state: 'detached' });
    const ids = '/dev/apps/harness_agent/eval_results';
    await page.getByText('1 PASS').waitFor();
    expect(await look('eval-run')).toEqual([]);
    const [id] = (await app.get(ids)).body as string[];
    const { evalCaseResults } = (await app.get(`${ids}/${id}`)).body as { evalCaseResults: object[] };
    expect(evalCaseResults).toMatchObject([{ evalId: 'case_1', finalEvalStatus: 1, evalMetricResults: [] }]);
  });

  test('rename the session', async () => {
    await page.getByText('What is 17 * 23? Use t').first().click();
    await page.getByLabel('Edit', { exact: true }).click();
    const name = page.locator('app-inline-edit input, .inline-edit input, input.inline-edit-input').first();
    await name.fill('Sums');
    const patched = page.waitForResponse((response) => response.request().method() === 'PATCH');
    // To the field, because a list that is drawn anew meanwhile takes the focus.
    await name.press('Enter');
    await patched;
    // The selector reads its list half a second after it was opened, which may be before the change, and not again.
    await page.getByLabel('Close session selector').click();
    await page.getByText('Sums').first().click();
    await page.locator('.session-item').filter({ hasText: 'Sums' }).waitFor();
    expect(await look('renamed')).toEqual([]);
    await page.getByLabel('Close session selector').click();
  });

  test('reload: the link leads to the same session', async () => {
    const url = page.url();
    await page.reload();
    await page.getByText('answered: 391').waitFor();
    expect(page.url()).toBe(url);
    await page.getByText('Sums').first().waitFor();
    expect(await look('reloaded')).toEqual([]);
  });

  test('the light theme', async () => {
    await button('light_mode').click();
    expect(await look('light')).toEqual([]);
    await button('dark_mode').click();
  });

  test('the graph of a team', async () => {
    await page.goto(`${app.url}/dev-ui/?app=team`);
    await page.locator('.toolbar-icon-button').filter({ hasText: 'account_tree' }).click();
    await page.locator('.svg-container svg.ready g.node').filter({ hasText: 'critic' }).waitFor();
    expect(await look('team')).toEqual([]);
  });

  test('delete a second session: the first is shown again', async () => {
    await page.goto(`${app.url}/dev-ui/?app=harness_agent&userId=user`);
    await say('Hello');
    await page.getByText('You wrote: "Hello"').waitFor();
    await page.locator('.selector-button').filter({ hasText: 'Hello' }).click();
    await page.locator('.session-item').filter({ hasText: 'Sums' }).waitFor();
    await button('delete').first().click();
    expect(await look('delete-question')).toEqual([]);
    await page.locator('mat-dialog-container').getByRole('button', { name: 'Delete' }).click();
    await page.getByText('answered: 391').waitFor();
    expect(await look('deleted')).toEqual([]);
    const { body } = await app.get('/apps/harness_agent/users/user/sessions');
    expect(body).toEqual([expect.objectContaining({ id: sessionId })]);
  });

  test('a run that fails says why', async () => {
    await page.goto(`${app.url}/dev-ui/?app=limited&userId=user`);
    await say('What is 1 + 1? Use the calculator.');
    await page.getByText('Max number of llm calls limit of `1` exceeded').first().waitFor();
    expect(await look('failed-run')).toEqual([]);
  });

  test('the call button: a model without a live API says so', async () => {
    await page.goto(`${app.url}/dev-ui/?app=harness_agent&userId=user`);
    await say('Hello before the call');
    await page.getByText('You wrote: "Hello before the call"').waitFor();
    const opened = page.waitForEvent('websocket');
    await button('call').first().click();
    const socket = await opened;
    expect(socket.url()).toContain('/run_live?app_name=harness_agent');
    await socket.waitForEvent('close');
    await page.getByText('audio and video cannot be used').first().waitFor();
    expect(await look('call')).toEqual([]);
    // The UI sends sound only: what is typed goes over `/run_sse`, as without a call.
    await say('Hello in the call');
    await page.getByText('You wrote: "Hello in the call"').waitFor();
    expect(await page.locator('mat-progress-bar, mat-spinner, mat-progress-spinner').count()).toBe(0);
    expect(await look('call-in-text')).toEqual([]);
    await page.locator('.audio-rec-btn').first().click();
    expect(await look('call-ended')).toEqual([]);
  });
});
