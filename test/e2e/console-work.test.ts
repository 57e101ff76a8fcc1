import { Client } from 'pg';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { UnknownOutcomeError } from '../../src/core/errors.ts';
import type { Tool } from '../../src/agent/definition/tool.ts';
import { hostScript } from '../support/agents.ts';
import { startApp, type TestApp } from '../support/app.ts';
import { findBrowser } from '../support/browser.ts';
import { type ConsolePage, openConsole } from '../support/console.ts';
import { type Receiver, startReceiver } from '../support/webhook-receiver.ts';

/** What people do in the console beside reading: answer, settle, look at use and quality, run and send again. */

const browserPath = findBrowser();
const sessions = '/apps/harness_agent/users/u1/sessions';
const SCHEMA = {
  type: 'object',
  properties: { size: { type: 'string', enum: ['small', 'large'] }, count: { type: 'integer', minimum: 1 } },
  required: ['size', 'count'],
};

describe.skipIf(!browserPath)('the console', () => {
  let app: TestApp;
  let receiver: Receiver;
  let browser: ConsolePage;
  let page: Page;
  const ask = (session: string, prompt: string) =>
    app.post('/harness/invoke', {
      prompt,
      harness_name: 'd',
      run_agent_request: { user_id: 'u1', session_id: session },
    });
  const button = (name: string) => page.getByRole('button', { name, exact: true });
  const link = (name: string) => page.getByRole('link', { name, exact: true });

  beforeAll(async () => {
    receiver = await startReceiver();
    app = await startApp({
      AUDIT: 'writes',
      CRONJOBS: 'true',
      WEBHOOKS: 'true',
      WEBHOOKS_ALLOWED_HOSTS: receiver.origin,
      TOOLS: 'calculator,ask_person',
    });
    browser = await openConsole(browserPath ?? '', app.url);
    page = browser.page;
    await ask('s1', 'What is 17 * 23? Use the calculator.');
    await ask('s2', `Use ask_person ${JSON.stringify({ question: 'Which size?', schema: SCHEMA })}`);
  });
  afterAll(async () => {
    await browser?.close();
    await app?.close();
    await receiver?.close();
  });

  test('a task is answered with a form made of its schema', async () => {
    await page.goto(`${app.url}/console/tasks`);
    expect(await browser.look('tasks')).toEqual([]);
    await link('Which size?').click();
    await page.getByLabel('size (required)').selectOption('large');
    await page.getByLabel('count (required)').fill('3');
    expect(await browser.look('task')).toEqual([]);
    await page.getByLabel('Comment').fill('Asked the shop.');
    await button('Comment').click();
    await page.getByText('Asked the shop.').waitFor();
    await page.getByLabel('Users').fill('u1, u2');
    await button('Assign').click();
    await page.getByText('u1, u2', { exact: true }).waitFor();
    await page.getByLabel('Hours from now').fill('48');
    await button('Postpone').click();
    await page
      .getByText(/in \d+ (days|hr)|\d{4}, \d/)
      .nth(1)
      .waitFor();
    await page.getByLabel('size (required)').selectOption('large');
    await page.getByLabel('count (required)').fill('3');
    await button('Answer').click();
    await page.getByText('"size": "large"').waitFor();
    const id = new URL(page.url()).pathname.split('/').at(-1);
    const task = (await app.get(`/tasks/${id}`)).body as { answer: unknown; createTime: number; expireTime: number };
    expect(task.answer).toMatchObject({ size: 'large', count: 3 });
    expect(Math.round((task.expireTime - task.createTime) / 3_600)).toBe(48);
    await ask('s3', `Use ask_person ${JSON.stringify({ question: 'Which size now?', schema: SCHEMA })}`);
    await page.goto(`${app.url}/console/tasks`);
    await link('Which size now?').click();
    await page.getByLabel('Reason').fill('Not ours.');
    await button('Reject').click();
    await page.getByText('Not ours.').first().waitFor();
  });

  test('usage: sums, charts and a table', async () => {
    await page.goto(`${app.url}/console/usage`);
    await page.getByText('Invocations', { exact: true }).first().waitFor();
    await page.getByRole('row', { name: /^offline/ }).waitFor();
    await expect.poll(() => page.locator('canvas').count()).toBe(3);
    await page.getByLabel('Table by').selectOption('user');
    await page.getByRole('row', { name: /^u1/ }).waitFor();
    expect(page.url()).toContain('by=user');
    expect(await browser.look('usage')).toEqual([]);
  });

  test('quality: a run, and a case beside it', async () => {
    const set = '/dev/apps/harness_agent/eval-sets/smoke';
    await app.post(`${set}/add-session`, { evalId: 'first', sessionId: 's1', userId: 'u1' });
    const evalMetrics = [{ metricName: 'response_match_score', threshold: 0.8 }];
    const stored = (await app.get(`${set}/eval-cases/first`)).text;
    expect(
      (await app.send('PUT', `${set}/eval-cases/first`, stored.replace('answered: 391', 'answered: 400'))).status,
    ).toBe(200);
    expect((await app.post(`${set}/run`, { evalMetrics })).status).toBe(200);
    await page.goto(`${app.url}/console/quality?set=smoke`);
    await page.locator('canvas').waitFor();
    expect(await browser.look('quality')).toEqual([]);
    await page.getByRole('table').first().getByRole('link').click();
    await link('first').click();
    const marked = (side: string) => page.getByRole('region', { name: side }).first().locator('mark').allInnerTexts();
    await page.getByRole('region', { name: 'Actual' }).first().locator('mark').first().waitFor();
    expect((await marked('Expected')).map((line) => line.trim())).toEqual([
      '"text": "The tool `calculator` answered: 400"',
    ]);
    expect((await marked('Actual')).map((line) => line.trim())).toEqual([
      '"text": "The tool `calculator` answered: 391"',
    ]);
    expect(await browser.look('run')).toEqual([]);
  });

  test('operations: a cronjob runs now, and a delivery is sent again', async () => {
    const schedule = { type: 'once', onceAt: '2900-01-01T00:00:00Z' };
    const hook = await app.post('/harness/webhooks', {
      ownerId: 'u1',
      appName: 'harness_agent',
      url: `${receiver.origin}/hook`,
    });
    expect(hook.status).toBe(201);
    const job = { ownerId: 'u1', name: 'Sums', prompt: 'What is 2 * 3? Use the calculator.', schedule };
    expect((await app.post('/harness/cronjobs', { ...job, webhookUrl: `${receiver.origin}/hook` })).status).toBe(201);
    const order: string[] = [];
    await page.route('**/service', async (route) => {
      const response = await route.fetch();
      order.push('service');
      await route.fulfill({ response });
    });
    await page.route('**/cronjobs?*', async (route) => {
      order.push('cronjobs');
      await route.continue();
    });
    await page.goto(`${app.url}/console/operations`);
    await button('Run now').click();
    await browser.confirm('Run');
    // A button that moves, because something appears above it, loses a press.
    expect(order.slice(0, 2)).toEqual(['service', 'cronjobs']);
    await page.unrouteAll({ behavior: 'wait' });
    await link('Sums').click();
    await page.getByRole('region', { name: 'Runs' }).getByText('success').waitFor();
    await link(`${receiver.origin}/hook`).click();
    await page.getByText('delivered', { exact: true }).waitFor();
    await button('Send again').click();
    await expect.poll(() => receiver.received.length).toBe(2);
    await page.getByLabel('Only failed ones').check();
    await page.getByText('None failed.').waitFor();
    expect(page.url()).toContain('failed=only');
    expect(await browser.look('operations')).toEqual([]);
  });

  test('operations: the state of the service, and the audit with filters', async () => {
    await page.goto(`${app.url}/console/operations`);
    await page.getByRole('region', { name: 'Replicas' }).first().getByText('0.1.0').waitFor();
    await page.getByRole('row', { name: /^tasks 0 0 –/ }).waitFor();
    const audit = page.getByRole('region', { name: 'Audit' });
    await audit.getByText('createWebhook').waitFor();
    await page.getByLabel('Operation', { exact: true }).fill('createCronjob');
    await page.getByRole('form', { name: 'Search the audit' }).getByRole('button', { name: 'Search' }).click();
    await expect.poll(() => audit.getByRole('row').count()).toBe(2);
    await audit.getByText('createCronjob').first().waitFor();
    expect(page.url()).toContain('operation=createCronjob');
  });

  test('the audit of one kind of caller', async () => {
    await page.goto(`${app.url}/console/operations`);
    const audit = page.getByRole('region', { name: 'Audit' });
    await audit.getByText('anonymous').first().waitFor();
    const search = async (kind: string) => {
      await page.getByLabel('Caller is').selectOption(kind);
      await page.getByRole('form', { name: 'Search the audit' }).getByRole('button', { name: 'Search' }).click();
    };
    await search('key');
    await page.getByText('No entry fits. AUDIT says what is kept.').waitFor();
    expect(page.url()).toContain('callerKind=key');
    await search('anonymous');
    await audit.getByText('anonymous').first().waitFor();
    expect(await page.getByLabel('Caller is').inputValue()).toBe('anonymous');
  });

  test('operations: paused invocations that nothing will resume, and the way to them', async () => {
    await ask('s4', `Use ask_person ${JSON.stringify({ question: 'Which size then?', schema: SCHEMA })}`);
    const database = new Client({ connectionString: app.databaseUrl });
    await database.connect();
    await database.query(`set agent_runtime.all_users = 'on'`);
    await database.query(`delete from tasks where session_id = 's4'`);
    await database.end();
    await page.goto(`${app.url}/console/operations`);
    await page.getByText('1 paused invocation that nothing will resume').waitFor();
    expect(await browser.look('operations-stranded')).toEqual([]);
    await link('Which they are').click();
    await page.getByRole('row', { name: /Which size then/ }).waitFor();
    expect(page.url()).toContain('waits=stranded');
    expect(await page.getByLabel('Waiting').inputValue()).toBe('stranded');
    expect(await page.getByRole('row').count()).toBe(2);
  });
});

describe.skipIf(!browserPath)('a call that may have acted', () => {
  test('is settled by a person, and its invocation goes on', async () => {
    const cut = () => Promise.reject(new UnknownOutcomeError('mcp_failed', 'The server took too long.'));
    const parameters = { type: 'object', properties: {} };
    const tool: Tool = {
      name: 'charge',
      description: 'Charges.',
      effect: 'once',
      onUnknown: 'ask',
      needsConfirmation: false,
      parameters,
      run: cut,
    };
    const script = [[{ functionCall: { id: 'c1', name: 'charge', args: {} } }], [{ text: 'Well.' }]];
    const app = await startApp({}, { agents: hostScript(script, [tool]) });
    const browser = await openConsole(browserPath ?? '', app.url);
    const { page } = browser;
    try {
      await app.post(sessions, { sessionId: 's1' });
      const newMessage = { role: 'user', parts: [{ text: 'Charge.' }] };
      await app.post('/run', { appName: 'harness_agent', userId: 'u1', sessionId: 's1', newMessage });
      await page.goto(`${app.url}/console/invocations`);
      await page.locator('td').getByText('paused').waitFor();
      await page.getByLabel('Calls of user').fill('u1');
      await page.getByRole('button', { name: 'Show', exact: true }).click();
      await page.getByRole('button', { name: 'It was done' }).click();
      expect(await browser.look('settle')).toEqual([]);
      await browser.confirm('It was done');
      await page.locator('td').getByText('succeeded').waitFor();
    } finally {
      await browser.close();
      await app.close();
    }
  });
});
