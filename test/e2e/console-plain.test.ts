import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createKey } from '../../src/platform/http/access/key-ring.ts';
import { startApp, type TestApp } from '../support/app.ts';
import { findBrowser } from '../support/browser.ts';
import { type ConsolePage, openConsole } from '../support/console.ts';

/** What the console says is so: text, days, colours, whose data, refusals, in one language, on a narrow window too. */

const browserPath = findBrowser();
const users = '/apps/harness_agent/users';
/** A browser that speaks another language, in a zone whose days are not those of UTC. */
const BERLIN = { locale: 'de-DE', timezoneId: 'Europe/Berlin' };

const SAID = [
  'Say:\n\n<div>\nKEY FACT: the flight is **cancelled**.\n</div>\n\nEnd.',
  '<script>let a</script> and what stands behind it',
  '<!-- a remark -->\n\n[^1]: A note that nothing names\n\n[source]: https://example.com/of-it',
];

/** Where the words above the fields of a search begin, in pixels. */
const TOPS_OF_LABELS = `[...document.querySelectorAll('.filters label')].map((label) => {
  const range = document.createRange();
  range.selectNodeContents(label.childNodes[0]);
  return range.getBoundingClientRect().top;
})`;
/** The pixels that the choice of the application has beside its name. */
const ROOM_BESIDE_APPLICATION = `(() => {
  const select = document.querySelector('.whose select');
  const context = document.createElement('canvas').getContext('2d');
  context.font = getComputedStyle(select).font;
  return select.clientWidth - context.measureText(select.value).width;
})()`;

describe.skipIf(!browserPath)('the console', () => {
  let app: TestApp;
  let browser: ConsolePage;
  let page: Page;
  const ask = (user: string, session: string, prompt: string) =>
    app.post('/harness/invoke', {
      prompt,
      harness_name: 'd',
      run_agent_request: { user_id: user, session_id: session },
    });
  const link = (name: string) => page.getByRole('link', { name, exact: true });

  beforeAll(async () => {
    app = await startApp({ CRONJOBS: 'true', TOOLS: 'calculator,ask_person,sleep_for' });
    browser = await openConsole(browserPath ?? '', app.url, BERLIN);
    page = browser.page;
    await page.addInitScript(`
      window.drawn = [];
      const { fillText } = CanvasRenderingContext2D.prototype;
      CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
        window.drawn.push(text);
        return fillText.call(this, text, ...rest);
      };`);
    await ask('u1', 's1', 'What is 17 * 23? Use the calculator.');
    await app.post(`${users}/u2/sessions`, { sessionId: 'of-u2' });
  });
  afterAll(async () => {
    await browser?.close();
    await app?.close();
  });

  test('shows all that a model said: HTML, notes and addresses as text', async () => {
    await app.post(`${users}/u1/sessions`, { sessionId: 'html' });
    for (const text of SAID)
      await app.post(`${users}/u1/sessions/html/events`, {
        author: 'harness_agent',
        content: { role: 'model', parts: [{ text }] },
      });
    await page.goto(`${app.url}/console/sessions/harness_agent/u1/html`);
    await page.getByText('KEY FACT: the flight is cancelled.').waitFor();
    const shown = await page.getByRole('log').innerText();
    for (const text of ['<div>', 'End.', '<script>let a</script> and what stands behind it', '<!-- a remark -->'])
      expect(shown).toContain(text);
    for (const text of ['A note that nothing names', 'https://example.com/of-it']) expect(shown).toContain(text);
    expect(await browser.look('html')).toEqual([]);
  });

  test('events have milliseconds, all else is in English too, and the zone is named', async () => {
    const times = await page.getByRole('log').locator('time').allInnerTexts();
    expect(times.length).toBe(SAID.length);
    for (const time of times) expect(time).toMatch(/^\d+ [A-Z][a-z]+ \d{4}, \d\d:\d\d:\d\d\.\d{3}$/);
    await page.getByText(/times of Europe\/Berlin \(UTC\+[12]\)/).waitFor();
    await link('Sessions of u1').click();
    await page
      .getByRole('row', { name: /17 \* 23/ })
      .getByText(/( ago|^now)$/)
      .first()
      .waitFor();
  });

  test('an age is counted in days of the calendar', async () => {
    const schedule = { type: 'once', onceAt: '2900-01-04T07:00:00Z' };
    const job = { ownerId: 'u1', name: 'Report', prompt: 'Report.', schedule };
    expect((await app.post('/harness/cronjobs', job)).status).toBe(201);
    const other = await openConsole(browserPath ?? '', app.url, BERLIN);
    try {
      for (const [now, said] of [
        ['2900-01-02T09:16:00Z', 'in 2 days'],
        ['2900-01-03T01:00:00Z', 'tomorrow'],
        ['2900-01-03T09:00:00Z', 'in 22 hr'],
        ['2900-01-06T06:00:00Z', '2 days ago'],
        ['2900-03-06T06:00:00Z', '4 Jan 2900'],
      ] as const) {
        await other.page.clock.setFixedTime(now);
        await other.page.goto(`${app.url}/console/operations`);
        await other.page
          .getByRole('row', { name: /Report/ })
          .getByText(said, { exact: true })
          .waitFor();
      }
    } finally {
      await other.close();
    }
    await page.goto(`${app.url}/console/operations`);
    await page.getByRole('columnheader', { name: 'Scheduled runs' }).waitFor();
    await page.getByRole('columnheader', { name: 'Failed in a row' }).waitFor();
    await page.getByText('This service has no webhooks.').waitFor();
    await expect.poll(() => page.getByRole('note').count()).toBe(1);
  });

  test('usage: days are days of UTC, and a model has what it was called for', async () => {
    await page.goto(`${app.url}/console/usage?days=30`);
    const models = page.getByRole('region', { name: 'Usage by model' });
    await models.getByRole('row', { name: /^offline/ }).waitFor();
    expect(await models.getByRole('row').count()).toBe(2);
    expect(await models.getByRole('columnheader').allInnerTexts()).not.toContain('Invocations');
    const drawn = (await page.evaluate('window.drawn')) as string[];
    const days = new Set(drawn.filter((text) => /[a-z]{3}/i.test(text) && !/ (s|ms)$/.test(text)));
    expect(days.size).toBeGreaterThan(2);
    for (const day of days) expect(day).toMatch(/^\d{1,2} [A-Z][a-z]{2,3}$/);
    await page.getByText('As a table').click();
    const today = new Date().toLocaleDateString('en-GB', {
      day: 'numeric',
      month: 'short',
      year: 'numeric',
      timeZone: 'UTC',
    });
    await page.getByRole('region', { name: 'Usage by day of UTC' }).getByRole('row', { name: today }).waitFor();
    await page.getByRole('columnheader', { name: '95 of 100 within' }).waitFor();
    await page.getByText('Cost, in the currency of your model prices').waitFor();
    expect(await browser.look('usage-plain')).toEqual([]);
  });

  test('application and user hold from page to page, and stand where they say what is shown', async () => {
    await page.goto(`${app.url}/console/sessions`);
    const user = page.getByLabel('User', { exact: true });
    const chosen = page.locator('.whose');
    await user.fill('u2');
    await user.press('Enter');
    await link('of-u2').waitFor();
    const shows: Record<string, [app: number, user: number]> = {
      Usage: [1, 0],
      Quality: [1, 0],
      Tasks: [0, 0],
      Operations: [0, 1],
      Sessions: [1, 1],
    };
    for (const [name, [apps, fields]] of Object.entries(shows)) {
      await link(name).click();
      await page.getByRole('heading', { name, exact: true }).waitFor();
      await expect.poll(() => chosen.getByLabel('App').count()).toBe(apps);
      expect([name, await chosen.getByLabel('User').count()]).toEqual([name, fields]);
      if (fields > 0) expect([name, await chosen.getByLabel('User').inputValue()]).toEqual([name, 'u2']);
    }
    await link('Usage').click();
    await page.getByLabel(/^Of/).selectOption('user');
    await expect.poll(() => user.inputValue()).toBe('u2');
    await link('Sessions').click();
    await link('of-u2').click();
    await page.getByText('No event yet.').waitFor();
    expect(await chosen.count()).toBe(0);
    await page.goto(`${app.url}/console/sessions/harness_agent/u2/of-u2`);
    await page.getByText('No event yet.').waitFor();
    await link('Sessions').click();
    await link('of-u2').waitFor();
    expect(await user.inputValue()).toBe('u2');
  });

  test('a task that only sleeps is apart from those that wait for a person', async () => {
    await ask('u3', 'sleeps', 'Use sleep_for {"days": 2}');
    await page.goto(`${app.url}/console/tasks`);
    await link('What waits for a time or a signal').waitFor();
    await ask('u1', 'asks', 'Use ask_person {"question": "Which size?"}');
    await page.reload();
    await link('Which size?').waitFor();
    expect(await page.getByRole('row').count()).toBe(2);
    await page.getByLabel('Waits for').selectOption('a time or a signal');
    await page.getByRole('button', { name: 'Search' }).click();
    await page
      .getByRole('row', { name: /sleep_for/ })
      .getByText('nobody')
      .waitFor();
    expect(await page.getByRole('row').count()).toBe(2);
    expect(page.url()).toContain('kind=itself');
    expect(await browser.look('tasks-asleep')).toEqual([]);
  });

  test('what does not exist has a way back, and nothing to try again', async () => {
    await page.goto(`${app.url}/console/sessions/harness_agent/u1/nowhere`);
    await page.getByRole('alert').waitFor();
    expect(await page.getByRole('button', { name: 'Try again' }).count()).toBe(0);
    expect(await browser.look('not-found')).toEqual(expect.not.arrayContaining([expect.stringMatching(/not-found/)]));
    browser.problems.length = 0;
    await link('Back to the sessions').click();
    await page.getByRole('row', { name: /17 \* 23/ }).waitFor();
    await page.goto(`${app.url}/console/no-such-page`);
    await page.getByText('There is no such page.').getByRole('link').click();
    await page.getByRole('row', { name: /17 \* 23/ }).waitFor();
  });

  test('390 pixels: a table says that it goes on, the application can be read, labels are in line', async () => {
    await page.goto(`${app.url}/console/sessions`);
    await page.getByRole('row', { name: /17 \* 23/ }).waitFor();
    expect(await page.getByText('scroll it sideways').count()).toBe(0);
    const tops = (await page.evaluate(TOPS_OF_LABELS)) as number[];
    expect(tops.length).toBe(4);
    expect(new Set(tops.map(Math.round)).size).toBe(1);
    await page.setViewportSize({ width: 390, height: 844 });
    await page.getByText('scroll it sideways').waitFor();
    const room = (await page.evaluate(ROOM_BESIDE_APPLICATION)) as number;
    // The arrow, and padding.
    expect(room).toBeGreaterThan(35);
    await page.setViewportSize({ width: 1280, height: 900 });
  });

  test('an error is red and says so, and a run that lost a case is not green', async () => {
    const set = '/dev/apps/harness_agent/eval-sets/smoke';
    await app.post(`${set}/add-session`, { evalId: 'first', sessionId: 's1', userId: 'u1' });
    const stored = (await app.get(`${set}/eval-cases/first`)).text;
    const evalMetrics = [{ metricName: 'response_match_score', threshold: 0.9 }];
    const run = async () => {
      const known = ((await app.get('/dev/apps/harness_agent/eval-runs')).body as { runId: string }[]).map(
        ({ runId }) => runId,
      );
      expect((await app.post(`${set}/run`, { evalMetrics })).status).toBe(200);
      const after = (await app.get('/dev/apps/harness_agent/eval-runs')).body as { runId: string }[];
      return after.find(({ runId }) => !known.includes(runId))?.runId ?? '';
    };
    const won = await run();
    await app.send('PUT', `${set}/eval-cases/first`, stored.replace('answered: 391', 'answered: 400'));
    const lost = await run();
    const budget = { appliesTo: 'app', period: 'day', maxInvocations: 1 };
    expect((await app.send('PUT', '/apps/harness_agent/budgets', budget)).status).toBe(200);
    const broken = await run();
    await page.goto(`${app.url}/console/quality?set=smoke`);
    // Runs of one minute still have times below them.
    await expect.poll(async () => String(await page.evaluate('window.drawn'))).toMatch(/\b\d\d:\d\d\b/);
    const status = (id: string) => page.getByRole('row', { name: id }).locator('.badge');
    for (const [id, word, tone] of [
      [won, 'passed', 'good'],
      [lost, 'failed', 'bad'],
      [broken, 'error', 'bad'],
    ] as const) {
      await status(id).getByText(word, { exact: true }).waitFor();
      expect(await status(id).getAttribute('class')).toContain(tone);
    }
    await page.goto(`${app.url}/console/quality/harness_agent/${lost}?baseline=${won}`);
    await page.getByText('no significant difference').waitFor();
    expect(await page.locator('.badge.good').count()).toBe(0);
    await page.goto(`${app.url}/console/quality/harness_agent/${broken}?case=first`);
    await page.getByRole('region', { name: 'Cases' }).getByText('error', { exact: true }).waitFor();
    await page.getByRole('heading', { name: 'Trial 1 error' }).waitFor();
    expect(await page.locator('.badge.good').count()).toBe(0);
    expect(await page.getByText('0 of 0').count()).toBe(0);
    expect(await browser.look('run-error')).toEqual([]);
  });
});

describe.skipIf(!browserPath)('a key that may read', () => {
  test('every refusal looks the same and says what one can do', async () => {
    const { key, entry } = createKey({ scopes: ['read'] });
    const file = join(mkdtempSync(join(tmpdir(), 'keys-')), 'keys.json');
    writeFileSync(file, `${entry}\n`);
    const app = await startApp({
      RUNTIME_API_KEYS: 'a-key-of-32-characters-xxxxxxxxxx',
      RUNTIME_API_KEYS_FILE: file,
      CONSOLE: 'true',
      DEV_UI: 'false',
    });
    const browser = await openConsole(browserPath ?? '', app.url);
    const { page } = browser;
    try {
      const headers = { authorization: 'Bearer a-key-of-32-characters-xxxxxxxxxx' };
      await app.post(`${users}/u1/sessions`, { sessionId: 's1' }, headers);
      await page.goto(`${app.url}/console/sessions`);
      await page.getByLabel('Key').fill(key);
      await page.getByRole('button', { name: 'Log in' }).click();
      await page.getByText('This key may not list the users. Name a user above.').waitFor();
      expect(await page.getByText('Nobody has a session here yet').count()).toBe(0);
      await page.getByLabel('User').fill('u1');
      await page.getByLabel('User').press('Enter');
      await page.getByRole('link', { name: 's1' }).waitFor();
      for (const path of ['operations', 'usage?of=app', 'quality']) {
        await page.goto(`${app.url}/console/${path}`);
        await page.getByRole('note').first().waitFor();
        await expect.poll(() => page.getByText('Loading…').count()).toBe(0);
        expect(await page.getByRole('alert').count()).toBe(0);
        expect(await page.getByRole('button', { name: 'Try again' }).count()).toBe(0);
        for (const text of await page.getByRole('note').allInnerTexts())
          expect(text).toMatch(/^(Not allowed|Switched off)\. .*\.$/);
        const faults = await browser.look(`reader-${path.split('?')[0]}`);
        expect(faults.filter((fault) => !fault.includes('403'))).toEqual([]);
      }
    } finally {
      await browser.close();
      await app.close();
    }
  });
});
