import type { Locator, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { hostAgent } from '../support/agents.ts';
import { startApp, type TestApp } from '../support/app.ts';
import { findBrowser, openBrowser } from '../support/browser.ts';
import { type ConsolePage, openConsole } from '../support/console.ts';
import { SpokenModel } from '../support/spoken-model.ts';
import { type Receiver, startReceiver } from '../support/webhook-receiver.ts';

/** The console in a real browser over a real service: what people do on each page, and what a session may not do. */

const browserPath = findBrowser();
const sessions = '/apps/harness_agent/users/u1/sessions';

const ask = (app: TestApp, session: string, prompt: string) =>
  app.post('/harness/invoke', {
    prompt,
    harness_name: 'demo',
    run_agent_request: { user_id: 'u1', session_id: session },
  });

describe.skipIf(!browserPath)('the console', () => {
  let app: TestApp;
  let browser: ConsolePage;
  let page: Page;

  beforeAll(async () => {
    app = await startApp();
    browser = await openConsole(browserPath ?? '', app.url);
    page = browser.page;
    await ask(app, 's1', 'What is 17 * 23? Use the calculator.');
    await ask(app, 's1', 'And what is 5 * 12? Use the calculator.');
    await app.post(sessions, { sessionId: 's2', state: { city: 'Berlin' } });
    const file = (filename: string, artifact: object) => app.post(`${sessions}/s1/artifacts`, { filename, artifact });
    await file('note.txt', { text: 'What the artifact says.' });
    await file('dot.gif', { inlineData: { mimeType: 'image/gif', data: 'R0lGODlhAQABAAAAACwAAAAAAQABAAA=' } });
  });
  afterAll(async () => {
    await browser?.close();
    await app?.close();
  });

  const link = (name: string): Locator => page.getByRole('link', { name, exact: true });
  const button = (name: string): Locator => page.getByRole('button', { name, exact: true });
  const tab = (name: string) => page.getByRole('tab', { name, exact: true }).click();

  test('/ leads to it, and it shows the sessions at once', async () => {
    await page.goto(`${app.url}/`);
    await page.getByRole('link', { name: 'Console' }).click();
    await page
      .getByRole('row', { name: /What is 17 \* 23/ })
      .getByText('succeeded')
      .waitFor();
    expect(await browser.look('sessions')).toEqual([]);
  });

  test('a search has an address', async () => {
    await page.getByLabel('Search', { exact: true }).fill('nothing of this');
    await button('Search').click();
    await page.getByText('No session of u1 fits.').waitFor();
    expect(page.url()).toContain('text=nothing');
    await page.getByLabel('Search', { exact: true }).fill('17 * 23');
    await button('Search').click();
    await link('What is 17 * 23? Use the calculator.').click();
  });

  test('a session is a conversation, with the answer of a tool folded into its call', async () => {
    const call = page.getByText('calculator({"expression":"17 * 23"})');
    await call.waitFor();
    expect(await page.getByText('Answer of calculator').count()).toBe(0);
    await call.click();
    await page.getByText('"result": 391').waitFor();
    await page.getByText('Raw event').first().click();
    await page.getByText('"invocationId":').first().waitFor();
    expect(await browser.look('session')).toEqual([]);
  });

  test('as of an event: what came later is not there, and the address says so', async () => {
    await page.getByLabel(/As of event/).fill('2');
    await page.getByText('no answer yet').waitFor();
    await expect.poll(() => page.getByText('answered: 391').count()).toBe(0);
    expect(new URL(page.url()).searchParams.get('at')).toBe('2');
    await button('Now').click();
    await page.getByText('answered: 60').waitFor();
  });

  test('its artifacts: text and a picture', async () => {
    await tab('Artifacts');
    await button('note.txt').click();
    await page.getByText('What the artifact says.').waitFor();
    await button('dot.gif').click();
    const picture = page.getByRole('img', { name: 'dot.gif' });
    await expect.poll(() => picture.evaluate((image) => (image as { naturalWidth?: number }).naturalWidth)).toBe(1);
    expect(await browser.look('artifacts')).toEqual([]);
  });

  test('an invocation: its timeline, and a replay that is the same', async () => {
    await tab('Invocations');
    await link('What is 17 * 23? Use the calculator.').click();
    await button('Replay with the stored answers').click();
    await page.getByText('events compared.').waitFor();
    await page.getByText('same', { exact: true }).waitFor();
    await page.getByRole('region', { name: 'Steps' }).getByText('calculator', { exact: true }).waitFor();
    expect(await browser.look('invocation')).toEqual([]);
    await link('Invocations').click();
    await page.getByText('They are listed for one user').waitFor();
    expect(await browser.look('invocations')).toEqual([]);
  });

  test('fork, compare and erase', async () => {
    await page.goto(`${app.url}/console/sessions/harness_agent/u1/s1?at=4`);
    await button('Fork').click();
    await browser.confirm('Fork');
    await link('s1 at 4').waitFor();
    await page.getByText('answered: 391').waitFor();
    await tab('Compare');
    await page.getByLabel('Other session of u1').fill('s1');
    await button('Compare').click();
    await page.getByText('The first 4 events are the same; 4 of the others differ.').waitFor();
    expect(await browser.look('compare')).toEqual([]);
    await button('Erase').click();
    await page.getByText('cannot be brought back').waitFor();
    expect(await browser.look('erase')).toEqual([]);
    await browser.confirm('Erase');
    await link('s2').waitFor();
    expect(((await app.get(sessions)).body as { id: string }[]).map(({ id }) => id).toSorted()).toEqual(['s1', 's2']);
    await link('s2').click();
    await tab('State');
    await page.getByText('Berlin').waitFor();
    expect(await browser.look('state')).toEqual([]);
  });
});

describe.skipIf(!browserPath)('live', () => {
  test('text is there as it is spoken, and the invocation is cancelled', async () => {
    const model = new SpokenModel();
    const app = await startApp({}, { agents: hostAgent(model) });
    const browser = await openBrowser(browserPath ?? '', app.url);
    const { page, problems } = browser;
    try {
      await app.post(sessions, { sessionId: 'live' });
      await page.goto(`${app.url}/console/sessions/harness_agent/u1/live`);
      await page.getByText('No event yet.').waitFor();
      const newMessage = { role: 'user', parts: [{ text: 'Speak.' }] };
      await app.post(`${sessions}/live/invocations`, { newMessage, streaming: true });
      await page.getByText('Speak.').first().waitFor();
      await expect.poll(() => model.calls.length).toBe(1);
      await model.calls[0]?.say('Once upon ');
      await page.getByText('Once upon').waitFor();
      await model.calls[0]?.say('a time');
      await page.getByText('Once upon a time').waitFor();
      await page.getByRole('tab', { name: 'Invocations' }).click();
      await page.getByRole('link', { name: 'Speak.' }).click();
      await page.getByRole('button', { name: 'Cancel' }).click();
      await page.getByRole('alertdialog').getByRole('button', { name: 'Cancel it' }).click();
      await page.locator('dl').getByText('cancelled').waitFor();
      expect(problems).toEqual([]);
    } finally {
      model.calls[0]?.end();
      await browser.close();
      await app.close();
    }
  });
});

/** What a session may hold, in every place that is shown; each tries to run something, or to call out. */
const HOSTILE = [
  '<script>window.hacked = 1</script>',
  '<img src=x onerror="window.hacked = 1">',
  '<svg onload="window.hacked = 1"><iframe srcdoc="<script>parent.hacked = 1</script>"></iframe>',
  '[click](javascript:window.hacked=1) ![](https://evil.invalid/pixel.png) <https://evil.invalid/auto>',
  '![x](data:image/svg+xml,<svg/onload=window.hacked=1>) <link rel=preconnect href=https://evil.invalid>',
  '<style>@import "https://evil.invalid/x.css"</style><base href="https://evil.invalid/">',
  '[a]: https://evil.invalid/ref "x"\n\n![pixel][a] <meta http-equiv=refresh content="0;url=https://evil.invalid">',
  '</script></style></textarea><a href="https://evil.invalid" onmouseover="window.hacked=1" autofocus>x</a>',
];

/** Opens each address of the console. @returns what ran, called out, failed, or is more than text */
async function showAll(app: TestApp, views: [path: string, shown: (page: Page) => Locator][]): Promise<string[]> {
  const browser = await openBrowser(browserPath ?? '', app.url);
  const { page, problems } = browser;
  try {
    for (const [path, shown] of views) {
      await page.goto(`${app.url}/console/${path}`);
      await shown(page).waitFor();
      await page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })");
      await page.evaluate('new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)))');
      await page.mouse.wheel(0, 5_000);
      if ((await page.evaluate('window.hacked ?? null')) !== null) problems.push(`${path}: a script ran`);
      const active = page.locator('iframe, script:not([src]), style, [onerror], [onload], base');
      if ((await active.count()) > 0)
        problems.push(`${path}: ${await active.first().evaluate((element) => String(element))}`);
    }
    return problems;
  } finally {
    await browser.close();
  }
}

describe.skipIf(!browserPath)('what others have written runs no script and calls nobody', () => {
  let app: TestApp;
  let receiver: Receiver;
  const id = HOSTILE[1] as string;
  const named = encodeURIComponent(id);
  beforeAll(async () => {
    receiver = await startReceiver();
    app = await startApp({
      AUDIT: 'writes',
      CRONJOBS: 'true',
      WEBHOOKS: 'true',
      WEBHOOKS_ALLOWED_HOSTS: receiver.origin,
      TOOLS: 'calculator,ask_person',
    });
  });
  afterAll(async () => {
    await app?.close();
    await receiver?.close();
  });

  /** Sends a request that has to be answered. */
  const send = async (method: string, path: string, body?: unknown) => {
    const answer = await app.send(method, path, body);
    expect([path, answer.status < 300, answer.text]).toEqual([path, true, answer.text]);
    return answer.body as Record<string, string>;
  };

  test('in a session and its files', async () => {
    const session = `${sessions}/${named}`;
    await send('POST', sessions, { sessionId: id, state: Object.fromEntries(HOSTILE.map((text) => [text, text])) });
    for (const text of HOSTILE) {
      await send('POST', `${session}/events`, { author: 'user', content: { role: 'user', parts: [{ text }] } });
      const parts = [{ text }, { functionCall: { id: text, name: 'tool', args: { [text]: text } } }];
      await send('POST', `${session}/events`, { author: 'harness_agent', content: { role: 'model', parts } });
    }
    const files = [
      ['page.html', 'text/html'],
      ['image.svg', 'image/svg+xml'],
      ['text.xml', 'application/xml'],
      ['none', 'application/octet-stream'],
    ] as const;
    for (const [filename, mimeType] of files) {
      const bytes = Buffer.from(`<svg xmlns="http://www.w3.org/2000/svg">${HOSTILE.join('\n')}</svg>`);
      const artifact = { inlineData: { mimeType, data: bytes.toString('base64') } };
      await send('POST', `${session}/artifacts`, { filename, artifact });
    }
    const path = `sessions/harness_agent/u1/${named}`;
    const problems = await showAll(app, [
      ['sessions', (page) => page.getByRole('row').nth(1)],
      [`${path}?event=1`, (page) => page.getByText('tool(').first()],
      ...[8, 16].map((number): [string, (page: Page) => Locator] => [
        `${path}?event=${number}`,
        (page) => page.getByText(`#${number}`).first(),
      ]),
      [`${path}?tab=state`, (page) => page.getByText('window.hacked').first()],
      ...files.map(([name]): [string, (page: Page) => Locator] => [
        `${path}?tab=artifacts&artifact=${name}`,
        (page) => page.getByRole('link', { name: 'Download' }),
      ]),
      [`sessions?text=${named}&user=${named}`, (page) => page.getByText('No session')],
    ]);
    expect(problems).toEqual([]);
  });

  test('in tasks', async () => {
    for (const [number, question] of HOSTILE.entries()) {
      const properties = { [question]: { type: 'string', title: question, description: question, enum: [question] } };
      const prompt = `Use ask_person ${JSON.stringify({ question, schema: { type: 'object', properties } })}`;
      const run_agent_request = { user_id: id, session_id: `task ${number} ${id}` };
      await send('POST', '/harness/invoke', { prompt, harness_name: 'd', run_agent_request });
    }
    const { items } = (await app.get('/tasks?appName=harness_agent')).body as { items: { id: string }[] };
    expect(items).toHaveLength(HOSTILE.length);
    for (const task of items) await send('PATCH', `/tasks/${task.id}`, { action: 'comment', text: HOSTILE.join('\n') });
    const problems = await showAll(app, [
      ['tasks', (page) => page.getByRole('row').nth(HOSTILE.length)],
      ...items.map((task): [string, (page: Page) => Locator] => [
        `tasks/${task.id}`,
        (page) => page.getByRole('heading', { name: 'Decide' }),
      ]),
      [`invocations?user=${named}`, (page) => page.locator('td').getByText('paused').first()],
      [`usage?by=user`, (page) => page.getByRole('row', { name: /onerror/ })],
    ]);
    expect(problems).toEqual([]);
  });

  test('in evaluation', async () => {
    const set = '/dev/apps/harness_agent/eval-sets/hostile';
    for (const [number, text] of HOSTILE.entries())
      await send('POST', '/harness/invoke', {
        prompt: text,
        harness_name: 'd',
        run_agent_request: { user_id: id, session_id: `case ${number}` },
      });
    for (const number of HOSTILE.keys())
      await send('POST', `${set}/add-session`, { evalId: `${id} ${number}`, sessionId: `case ${number}`, userId: id });
    await send('POST', `${set}/run`, { evalMetrics: [{ metricName: 'response_match_score', threshold: 0.8 }] });
    const [run] = (await app.get('/dev/apps/harness_agent/eval-runs')).body as { runId: string }[];
    const problems = await showAll(app, [
      ['quality?set=hostile', (page) => page.getByRole('row').nth(1)],
      ...[...HOSTILE.keys()].map((number): [string, (page: Page) => Locator] => [
        `quality/harness_agent/${run?.runId}?case=${encodeURIComponent(`${id} ${number}`)}`,
        (page) => page.getByRole('region', { name: 'Actual' }).first(),
      ]),
    ]);
    expect(problems).toEqual([]);
  });

  test('in cronjobs, webhooks and the audit', async () => {
    const url = `${receiver.origin}/hook?javascript:window.hacked='1'//${named}`;
    const hook = await send('POST', '/harness/webhooks', { ownerId: id, appName: 'harness_agent', url });
    const job = await send('POST', '/harness/cronjobs', {
      ownerId: id,
      name: HOSTILE[0],
      prompt: HOSTILE.join('\n'),
      schedule: { type: 'once', onceAt: '2900-01-01T00:00:00Z' },
      webhookUrl: hook['url'],
    });
    await send('POST', `/harness/cronjobs/${job['jobId']}/run`);
    await expect.poll(() => receiver.received.length).toBeGreaterThan(0);
    const open = `user=${named}&job=${job['jobId']}&hook=${hook['webhookId']}`;
    const problems = await showAll(app, [
      [`operations?${open}`, (page) => page.getByText('delivered', { exact: true }).first()],
      [`operations?about=${named}`, (page) => page.getByRole('row').filter({ hasText: 'onerror' }).first()],
      [`operations?caller=${named}&operation=${named}`, (page) => page.getByText('No entry fits.')],
    ]);
    expect(problems).toEqual([]);
  });
});
