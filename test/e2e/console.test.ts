import type { Locator, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { hostAgent } from '../support/agents.ts';
import { startApp, type TestApp } from '../support/app.ts';
import { findBrowser, openBrowser } from '../support/browser.ts';
import { type ConsolePage, openConsole } from '../support/console.ts';
import { SpokenModel } from '../support/spoken-model.ts';

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
    await page.getByLabel('First words').fill('nothing of this');
    await button('Search').click();
    await page.getByText('No session of u1 fits.').waitFor();
    expect(page.url()).toContain('text=nothing');
    await page.getByLabel('First words').fill('17 * 23');
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
    await page.getByRole('link', { name: /^e-/ }).first().click();
    await button('Replay with the stored answers').click();
    await page.getByText('events compared.').waitFor();
    await page.getByText('same', { exact: true }).waitFor();
    await page
      .getByText(/execute_tool/)
      .first()
      .waitFor();
    expect(await browser.look('invocation')).toEqual([]);
    await link('Invocations').click();
    await page.getByText('None: of every call it is known').waitFor();
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
    await page.getByText('4 events are the same, 4 differ').waitFor();
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
      await page.getByRole('link', { name: /^e-/ }).click();
      await page.getByRole('button', { name: 'Cancel' }).click();
      await page.getByRole('alertdialog').getByRole('button', { name: 'Cancel it' }).click();
      await page.getByText('cancelled', { exact: true }).waitFor();
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

describe.skipIf(!browserPath)('a hostile session', () => {
  test('runs no script and calls nobody, wherever it is shown', async () => {
    const app = await startApp();
    const browser = await openBrowser(browserPath ?? '', app.url);
    const { page, problems } = browser;
    try {
      const id = HOSTILE[1] as string;
      const session = `${sessions}/${encodeURIComponent(id)}`;
      await app.post(sessions, { sessionId: id, state: Object.fromEntries(HOSTILE.map((text) => [text, text])) });
      for (const text of HOSTILE) {
        await app.post(`${session}/events`, { author: 'user', content: { role: 'user', parts: [{ text }] } });
        const parts = [{ text }, { functionCall: { id: text, name: 'tool', args: { [text]: text } } }];
        const event = { author: 'harness_agent', content: { role: 'model', parts } };
        expect((await app.post(`${session}/events`, event)).status).toBe(200);
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
        expect((await app.post(`${session}/artifacts`, { filename, artifact })).status).toBe(200);
      }
      const shown = async (path: string, until: Locator) => {
        await page.goto(`${app.url}/console/${path}`);
        await until.waitFor();
        await page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })");
        await page.evaluate('new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)))');
        await page.mouse.wheel(0, 5_000);
        expect(await page.evaluate('window.hacked ?? null')).toBe(null);
        expect(await page.locator('iframe, script:not([src]), style, [onerror], [onload], base').count()).toBe(0);
      };
      const path = `sessions/harness_agent/u1/${encodeURIComponent(id)}`;
      await shown('sessions', page.getByRole('row').nth(1));
      await shown(`${path}?event=1`, page.getByText('tool(').first());
      for (const number of [8, 16]) await shown(`${path}?event=${number}`, page.getByText(`#${number}`).first());
      await shown(`${path}?tab=state`, page.getByText('window.hacked').first());
      for (const [name] of files)
        await shown(`${path}?tab=artifacts&artifact=${name}`, page.getByRole('link', { name: 'Download' }));
      await shown(
        `sessions?text=${encodeURIComponent(id)}&user=${encodeURIComponent(id)}`,
        page.getByText('No session'),
      );
      expect(problems).toEqual([]);
    } finally {
      await browser.close();
      await app.close();
    }
  });
});
