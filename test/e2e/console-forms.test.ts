import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createKey } from '../../src/platform/http/access/key-ring.ts';
import { startApp, type TestApp } from '../support/app.ts';
import { findBrowser } from '../support/browser.ts';
import { type ConsolePage, openConsole } from '../support/console.ts';

/** What the console makes by forms of the document's schemas: a run, a budget, a cronjob. */

const browserPath = findBrowser();
const ofUser = 'app=harness_agent&user=u1';

describe.skipIf(!browserPath)('a form of the document', () => {
  let app: TestApp;
  let browser: ConsolePage;
  let page: Page;
  const press = (name: string) => page.getByRole('button', { name, exact: true }).click();
  const open = (name: string) => page.locator('summary', { hasText: name }).click();

  beforeAll(async () => {
    app = await startApp({ CRONJOBS: 'true' });
    browser = await openConsole(browserPath ?? '', app.url);
    page = browser.page;
    await app.post('/harness/invoke', {
      prompt: 'What is 2 * 3? Use the calculator.',
      harness_name: 'd',
      run_agent_request: { user_id: 'u1', session_id: 's1' },
    });
  });
  afterAll(async () => {
    await browser?.close();
    await app?.close();
  });

  test('a budget is set, and shown with its use', async () => {
    await page.goto(`${app.url}/console/usage?${ofUser}`);
    await open('Set a budget');
    await page.getByLabel('Applies to (required)').selectOption('app');
    await page.getByLabel('Each (required)').selectOption('day');
    await page.getByLabel('Most invocations').fill('4');
    await press('Set a budget');
    await page.getByText('1 of 4', { exact: true }).waitFor();
    expect(await browser.look('budget')).toEqual([]);
    expect((await app.get('/apps/harness_agent/budgets')).body).toMatchObject([
      { appliesTo: 'app', maxInvocations: 4, used: { invocations: 1 } },
    ]);
    await press('Remove');
    await browser.confirm('Remove it');
    await page.getByText('No budget is set.').waitFor();
  });

  test('budgets: one that is used up says so, and pages follow one another', async () => {
    const budgets = '/apps/harness_agent/budgets';
    const ofDay = { appliesTo: 'user', period: 'day' };
    await app.send('PUT', budgets, { ...ofDay, appliesTo: 'app', maxInvocations: 1 });
    for (let n = 0; n < 100; n += 1)
      await app.send('PUT', budgets, { ...ofDay, forUser: `x${String(n).padStart(2, '0')}`, maxInvocations: 7 });
    await page.goto(`${app.url}/console/usage?${ofUser}`);
    const row = (name: RegExp) => page.getByRole('region', { name: 'Budgets' }).getByRole('row', { name });
    await row(/^the application day used up 1 of 1/).waitFor();
    await row(/^x98 day 0 of 7/).waitFor();
    expect(await row(/^x99/).count()).toBe(0);
    expect(await browser.look('budgets-used-up')).toEqual([]);
    await press('More budgets');
    await row(/^x99 day 0 of 7/).waitFor();
    expect(await row(/used up/).count()).toBe(1);
    expect(await page.getByRole('button', { name: 'More budgets' }).count()).toBe(0);
    for (const { appliesTo, forUser, period } of (await app.get(budgets)).body as Record<string, string>[])
      await app.send(
        'DELETE',
        `${budgets}?${String(new URLSearchParams({ appliesTo, period, ...(forUser && { forUser }) } as Record<string, string>))}`,
      );
  });

  test('a cronjob: what is refused stands beside its field, and nothing that was typed is lost', async () => {
    await page.goto(`${app.url}/console/operations?${ofUser}`);
    await open('Make a cronjob');
    await page.getByLabel('Name (required)').fill('Sums');
    await page.getByLabel('Prompt (required)').fill('What is 2 * 3?');
    await page.getByLabel('kind').selectOption('weekly');
    await page.getByLabel('time (required)').fill('8 pm');
    await page.getByLabel('weekdays').fill('1, 3');
    const faults = browser.problems.length;
    await press('Make a cronjob');
    const time = page.locator('label', { hasText: 'time (required)' });
    await time.getByText('a time is HH:MM, from 00:00 to 23:59').waitFor();
    const shown = await browser.look('cronjob-form');
    expect(shown.slice(faults).filter((fault) => !fault.includes('422'))).toEqual([]);
    await time.getByRole('textbox').fill('20:00');
    await press('Make a cronjob');
    await page.getByRole('link', { name: 'Sums' }).waitFor();
    expect((await app.get('/harness/cronjobs?ownerId=u1')).body).toMatchObject({
      items: [
        { name: 'Sums', prompt: 'What is 2 * 3?', schedule: { type: 'weekly', time: '20:00', weekdays: [1, 3] } },
      ],
    });
  });

  test('the interval of a cronjob is said in words', async () => {
    const schedule = { type: 'interval', intervalSeconds: 5_400 };
    await app.post('/harness/cronjobs', { name: 'Often', prompt: 'Hello', ownerId: 'u1', schedule });
    await page.goto(`${app.url}/console/operations?${ofUser}`);
    const row = page.getByRole('row', { name: /^Often/ });
    await expect.poll(() => row.innerText()).toContain('every 90 minutes');
  });

  test('an evaluation is started with a metric, and followed to its end', async () => {
    const set = '/dev/apps/harness_agent/eval-sets/smoke';
    await app.post(`${set}/add-session`, { evalId: 'first', sessionId: 's1', userId: 'u1' });
    await page.goto(`${app.url}/console/quality?${ofUser}&set=smoke`);
    await open('Start a run');
    await page.getByLabel('Metric (required)').selectOption('response_match_score');
    // Taken out of the form's own check, so that the service refuses it: the reason stands in its row.
    await page.getByLabel('Threshold').evaluate((input) => input.removeAttribute('required'));
    const faults = browser.problems.length;
    await press('Start a run');
    const row = page.locator('.form-row');
    await row.getByText('response_match_score needs a threshold.').waitFor();
    await page.getByText('What was refused is marked above.').waitFor();
    const shown = await browser.look('run-form');
    expect(shown.slice(faults).filter((fault) => !fault.includes('422'))).toEqual([]);
    await page.getByLabel('Threshold').fill('0.8');
    await press('Start a run');
    await page.getByText('passed', { exact: true }).first().waitFor();
    await page.getByText('1 of 1').first().waitFor();
    expect((await app.get('/dev/apps/harness_agent/eval-runs')).body).toMatchObject([
      { evalSetId: 'smoke', status: 'done' },
    ]);
  });
});

test.skipIf(!browserPath)('who may not set a budget reads what it needs, and sees no form', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'forms-'));
  const file = join(folder, 'keys');
  const reader = createKey({ id: 'reader', scopes: ['read'] });
  writeFileSync(file, `${reader.entry}\n`);
  const app = await startApp({ RUNTIME_API_KEYS_FILE: file, DEV_UI: 'false', CONSOLE: 'true', CRONJOBS: 'true' });
  const browser = await openConsole(browserPath ?? '', app.url);
  const { page } = browser;
  try {
    await page.goto(`${app.url}/console/operations?${ofUser}`);
    await page.getByLabel('Key').fill(reader.key);
    await page.getByRole('button', { name: 'Log in', exact: true }).click();
    await page.getByText('“Make a cronjob” needs the scope “invoke”').waitFor();
    expect(await page.locator('.create').count()).toBe(0);
  } finally {
    await browser.close();
    await app.close();
    rmSync(folder, { recursive: true });
  }
});
