import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { hostAgent } from '../support/agents.ts';
import { startApp, type TestApp } from '../support/app.ts';
import { findBrowser } from '../support/browser.ts';
import { type ConsolePage, openConsole } from '../support/console.ts';
import { SpokenModel } from '../support/spoken-model.ts';

/** What somebody sees who opens the address of a service for the first time. */

const browserPath = findBrowser();

describe.skipIf(!browserPath)('the console, opened without a choice', () => {
  let app: TestApp;
  let browser: ConsolePage;

  beforeAll(async () => {
    const hosted = hostAgent(new SpokenModel());
    const agent = hosted.get('harness_agent');
    if (!agent) throw new Error('no agent');
    const agents = new Map([['a_first', { ...agent, name: 'a_first' }], ...hosted]);
    app = await startApp({}, { agents });
    await app.post('/apps/harness_agent/users/u1/sessions', { sessionId: 's1' });
    browser = await openConsole(browserPath ?? '', app.url);
  });
  afterAll(async () => {
    await browser?.close();
    await app?.close();
  });

  test('/ is a page with a style, narrow and wide', async () => {
    await browser.page.goto(`${app.url}/`);
    await browser.page.getByRole('link', { name: 'Operations' }).waitFor();
    expect(await browser.look('start')).toEqual([]);
    const border = await browser.page.evaluate(`getComputedStyle(document.querySelector('a')).borderTopStyle`);
    expect(border).toBe('solid');
  });

  test('it opens with the application that has sessions, though another one is the first', async () => {
    const { page } = browser;
    await page.goto(`${app.url}/console/`);
    await page.getByRole('link', { name: 's1', exact: true }).waitFor();
    expect(await page.getByLabel('App').inputValue()).toBe('harness_agent');
    expect(await page.getByLabel('App').locator('option').allInnerTexts()).toEqual(['a_first', 'harness_agent']);
  });

  test('the fields of a search stand in one line', async () => {
    const fields = await browser.page.locator('.filters').first().locator('input, select, button').all();
    const boxes = await Promise.all(fields.map((field) => field.boundingBox()));
    expect(boxes.length).toBeGreaterThan(3);
    expect(new Set(boxes.map((box) => `${box?.y} ${box?.height}`)).size).toBe(1);
  });
});
