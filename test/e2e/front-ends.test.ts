import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { tool } from '../support/agent-fixtures.ts';
import { hostAgent } from '../support/agents.ts';
import { startApp, startOn, type TestApp } from '../support/app.ts';
import { type BrowserPage, findBrowser, openBrowser } from '../support/browser.ts';
import { callPart } from '../support/scripted-model.ts';
import { SpokenModel } from '../support/spoken-model.ts';

/** The pages of `examples/front-ends` in a real browser: left in the middle of an answer, and come back to. */

const browserPath = findBrowser();
const model = new SpokenModel();
let acted = 0;
const tools = [tool('pay', async () => ({ paid: ++acted }), { needsConfirmation: true })];
/** Ends the call of the tool `look`. */
let found: (result: object) => void;
tools.push(tool('look', () => new Promise<object>((resolve) => (found = resolve))));
const agents = hostAgent(model, tools);

describe.skipIf(!browserPath)('a front end in a browser', () => {
  let app: TestApp;
  let other: Awaited<ReturnType<typeof startOn>>;
  const backends: ChildProcess[] = [];
  let browser: BrowserPage;
  let page: Page;
  let origin: string;

  /** Starts the backend of the pages before a runtime. @returns its address */
  const startBackend = async (runtime: string): Promise<string> => {
    const file = fileURLToPath(new URL('../../examples/front-ends/serve.js', import.meta.url));
    const env = { ...process.env, PORT: '0', RUNTIME_URL: runtime };
    const backend = spawn(process.execPath, [file], { env, stdio: ['ignore', 'pipe', 'inherit'] });
    backends.push(backend);
    const [line] = (await once(createInterface(backend.stdout), 'line')) as [string];
    return line.split(' ')[0] ?? '';
  };

  beforeAll(async () => {
    app = await startApp({}, { agents });
    other = await startOn(app.databaseUrl, {}, { agents });
    origin = await startBackend(app.url);
    browser = await openBrowser(browserPath ?? '', origin);
    ({ page } = browser);
  });
  afterAll(async () => {
    await browser?.close();
    for (const backend of backends) backend.kill();
    await other?.close();
    await app?.close();
  });
  beforeEach(() => void (model.calls.length = 0));

  const send = async (text: string, on = page) => {
    await on.getByPlaceholder('Say something').fill(text);
    await on.getByRole('button', { name: 'Send' }).click();
  };
  const answer = (on = page) => on.locator('.assistant').last();
  const textIs = async (text: string, on = page) => {
    await expect.poll(() => answer(on).innerText()).toBe(text);
  };
  const ready = (on = page) => on.getByRole('button', { name: 'Send' }).waitFor();
  const stored = async (id: string) => {
    const { body } = await app.get(`/apps/harness_agent/users/user/sessions/${id}`);
    return (body as { events: { content?: { parts?: { text?: string }[] } }[] }).events
      .map(({ content }) => content?.parts?.map(({ text }) => text ?? '').join(''))
      .filter(Boolean);
  };

  test.each([
    ['the AI SDK', '/?chat=', 'ai'],
    ['AG-UI', '/agent?thread=', 'agui'],
  ])(
    '%s: a reload in the middle of an answer, and a second tab before another replica, lose nothing',
    async (_name, path, id) => {
      await page.goto(`${origin}${path}${id}`);
      await send('Tell me a story.');
      const call = await model.called(1);
      await call.say('Once upon a time there was a king ');
      await expect.poll(() => answer().innerText()).toContain('Once upon a time');
      await browser.screenshot(`${id}-answering`);
      await page.reload();
      await expect.poll(() => answer().innerText()).toContain('Once upon a time');
      const elsewhere = await startBackend(other.url);
      const second = await openBrowser(browserPath ?? '', elsewhere);
      const tab = second.page;
      await tab.goto(`${elsewhere}${path}${id}`);
      await expect.poll(() => answer(tab).innerText()).toContain('Once upon a time');
      await call.say('who had no daughter.');
      call.end();
      const whole = 'Once upon a time there was a king who had no daughter.';
      for (const each of [page, tab]) {
        await textIs(whole, each);
        await ready(each);
        expect(await each.locator('.assistant').count()).toBe(1);
      }
      await page.reload();
      await textIs(whole);
      await browser.screenshot(`${id}-whole`);
      await second.close();
      expect(await stored(id)).toEqual(['Tell me a story.', whole]);
      expect(browser.problems.filter((problem) => !problem.includes('404'))).toEqual([]);
    },
  );

  test.each([
    ['the AI SDK', '/?chat=', 'ai-pays'],
    ['AG-UI', '/agent?thread=', 'agui-pays'],
  ])('%s: a tool waits for a person, and acts once', async (_name, path, id) => {
    const before = acted;
    await page.goto(`${origin}${path}${id}`);
    await send('Pay.');
    (await model.called(1)).end([callPart('pay', { to: 'bob' }, 'c1')]);
    const approve = page.getByRole('button', { name: 'Approve' });
    await approve.waitFor();
    await page.reload();
    await approve.waitFor();
    await browser.screenshot(`${id}-asks`);
    expect(acted).toBe(before);
    await approve.click();
    const call = await model.called(2);
    await call.say('It is paid.');
    call.end();
    await expect.poll(() => page.locator('main').innerText()).toContain('It is paid.');
    await ready();
    expect(acted).toBe(before + 1);
    await browser.screenshot(`${id}-paid`);
  });

  /** Sends a message while something runs, and waits until it is stored, which a page does not show. */
  const steer = async (session: string, text: string) => {
    await page.getByPlaceholder('Say something').fill(text);
    await page.getByRole('button', { name: 'Steer' }).click();
    await page.getByText('is read before the next step').waitFor();
    const path = `/apps/harness_agent/users/user/sessions/${session}/invocations`;
    const list = async () => (await app.get(path)).body as { status: string }[];
    await expect.poll(async () => (await list()).some(({ status }) => status === 'queued')).toBe(true);
  };

  test('the AI SDK: a message steers what runs, or begins the next turn', async () => {
    const shown = () => page.locator('.message').allInnerTexts();
    await page.goto(`${origin}/?chat=steered`);
    await send('Find a hotel.');
    (await model.called(1)).end([callPart('look', { city: 'Rome' }, 'l1')]);
    await page.getByText('look {"city":"Rome"}').waitFor();
    await steer('steered', 'With a pool.');
    await browser.screenshot('ai-steers');
    found({ hotels: 3 });
    const call = await model.called(2);
    await call.say('Two have a pool.');
    await page.getByText('read', { exact: true }).waitFor();
    call.end();
    await ready();
    const first = ['Find a hotel.', 'look {"city":"Rome"} → {"hotels":3}', 'With a pool.', 'Two have a pool.'];
    await expect.poll(shown).toEqual(first);
    await browser.screenshot('ai-steered');
    await send('Book one.');
    const booking = await model.called(3);
    await booking.say('Booked.');
    await steer('steered', 'And a table.');
    booking.end();
    const table = await model.called(4);
    await table.say('A table, ');
    await expect.poll(shown).toEqual([...first, 'Book one.', 'Booked.', 'And a table.', 'A table, ']);
    await table.say('too.');
    table.end();
    await ready();
    const whole = [...first, 'Book one.', 'Booked.', 'And a table.', 'A table, too.'];
    await expect.poll(shown).toEqual(whole);
    await page.reload();
    await expect.poll(shown).toEqual(whole);
    await browser.screenshot('ai-steered-late');
    const { body } = await app.get('/apps/harness_agent/users/user/sessions/steered/invocations');
    const [late, , taken, run] = body as { id: string; steeredInto?: string }[];
    expect([late?.steeredInto, taken?.steeredInto]).toEqual([undefined, run?.id]);
  });

  test('AG-UI: a message steers what runs, or begins the next turn', async () => {
    const shown = () => page.locator('.message').allInnerTexts();
    await page.goto(`${origin}/agent?thread=agui-steered`);
    await ready();
    await send('Find a hotel.');
    (await model.called(1)).end([callPart('look', { city: 'Rome' }, 'l1')]);
    await page.getByText('look {"city":"Rome"}').waitFor();
    await steer('agui-steered', 'With a pool.');
    await browser.screenshot('agui-steers');
    found({ hotels: 3 });
    const call = await model.called(2);
    await call.say('Two have a pool.');
    call.end();
    await ready();
    const first = ['Find a hotel.', 'look {"city":"Rome"}', 'With a pool.', 'Two have a pool.'];
    await expect.poll(shown).toEqual(first);
    await send('Book one.');
    const booking = await model.called(3);
    await booking.say('Booked.');
    await steer('agui-steered', 'And a table.');
    booking.end();
    const table = await model.called(4);
    await table.say('A table, too.');
    table.end();
    await ready();
    const whole = [...first, 'Book one.', 'Booked.', 'And a table.', 'A table, too.'];
    await expect.poll(shown).toEqual(whole);
    await page.reload();
    await expect.poll(shown).toEqual(whole);
    await browser.screenshot('agui-steered');
  });

  test('the AI SDK: Stop ends the invocation', async () => {
    await page.goto(`${origin}/?chat=stopped`);
    await send('Speak for ever.');
    await (await model.called(1)).say('And then, and then, and then, ');
    await expect.poll(() => answer().innerText()).toContain('And then');
    await page.getByRole('button', { name: 'Stop' }).click();
    await ready();
    const invocations = '/apps/harness_agent/users/user/sessions/stopped/invocations';
    await expect
      .poll(async () => ((await app.get(invocations)).body as { status: string }[]).map(({ status }) => status))
      .toEqual(['cancelled']);
  });

  test('AG-UI: the model uses a tool of the page', async () => {
    await page.goto(`${origin}/agent?thread=title`);
    await send('Call this page Story.');
    (await model.called(1)).end([callPart('set_title', { title: 'Story' }, 't1')]);
    const call = await model.called(2);
    await call.say('Done.');
    call.end();
    await textIs('Done.');
    expect(await page.title()).toBe('Story');
    await browser.screenshot('agui-title');
  });
});
