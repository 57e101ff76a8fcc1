import { Client } from 'pg';
import { expect, test } from 'vitest';
import { startApp } from '../support/app.ts';
import { findBrowser } from '../support/browser.ts';
import { openConsole } from '../support/console.ts';

/** The console over many sessions and a long one: only what is seen is asked for, and is in the page. */

const browserPath = findBrowser();
const COUNT = 10_000;
const sessions = '/apps/harness_agent/users/u1/sessions';

/** Jumps about in the conversation for 120 frames, and answers how long its long tasks took, in milliseconds. */
const SCROLL = `new Promise((resolve) => {
  const tasks = [];
  const observer = new PerformanceObserver((list) => tasks.push(...list.getEntries().map(({ duration }) => duration)));
  observer.observe({ type: 'longtask' });
  const box = document.querySelector('.conversation');
  let step = 0;
  const move = () => {
    box.scrollTop = (box.scrollHeight * ((step * 37) % 100)) / 100 + step;
    if (++step < 120) requestAnimationFrame(move);
    else setTimeout(() => resolve(tasks), 200);
  };
  move();
})`;

test.skipIf(!browserPath)('10,000 sessions and a session of 10,000 events', async () => {
  const app = await startApp();
  const sql = new Client({ connectionString: app.databaseUrl });
  await sql.connect();
  const browser = await openConsole(browserPath ?? '', app.url);
  const { page, problems } = browser;
  try {
    await app.post(sessions, { sessionId: 'long' });
    const parts = [{ text: 'A **line** of `text`, and [a link](https://example.com).\n\n- one\n- two' }];
    const event = { author: 'harness_agent', content: { role: 'model', parts } };
    await app.post(`${sessions}/long/events`, event);
    /** Copies the rows of the long session; named columns get values of their own. */
    const copy = async (table: string, name: string, from: number, values: Record<string, string>) => {
      const { rows } = await sql.query<{ name: string }>(
        `select column_name as name from information_schema.columns
          where table_schema = current_schema() and table_name = $1 and is_generated = 'NEVER' and is_identity = 'NO'`,
        [table],
      );
      const chosen = rows.map((column) => values[column.name] ?? `t."${column.name}"`);
      await sql.query(
        `insert into ${table} (${rows.map((column) => `"${column.name}"`).join()}) select ${chosen.join()}
           from ${table} t, generate_series(${from}, ${COUNT}) n where ${name} = 'long'`,
      );
    };
    const payload = `replace(t.payload::text, '**line**', '**line ' || n || '**')::jsonb`;
    await copy('events', 'session_id', 2, { sequence: 'n', id: `'e' || n`, payload });
    await sql.query(`update sessions set last_sequence = ${COUNT} where id = 'long'`);
    await copy('sessions', 'id', 1, { id: `'s' || n`, last_sequence: '0' });
    await page.goto(`${app.url}/console/tasks`);
    const took = async (what: string, work: () => Promise<unknown>) => {
      const startedAt = performance.now();
      await work();
      console.log(`${what}: ${Math.round(performance.now() - startedAt)} ms`);
    };
    const asked: string[] = [];
    page.on('request', (request) => asked.push(request.url()));
    await took('first view of 10,000 sessions', async () => {
      await page.getByRole('link', { name: 'Sessions' }).click();
      await page.getByRole('row').nth(50).waitFor();
    });
    expect(await page.getByRole('row').count()).toBe(51);
    await took('a session of 10,000 events, to its end', async () => {
      await page.goto(`${app.url}/console/sessions/harness_agent/u1/long`);
      await page.getByText(`of ${COUNT.toLocaleString('en')}`).waitFor();
    });
    const tasks = (await page.evaluate(SCROLL)) as number[];
    console.log(`tasks over 50 ms while it scrolls: ${tasks.length}, the longest ${Math.max(0, ...tasks)} ms`);
    // Not one for each event that came.
    expect(asked.filter((url) => url.includes('numRecentEvents=0')).length).toBeLessThan(20);
    expect(await page.locator('.row').count()).toBeLessThan(60);
    expect(problems).toEqual([]);
  } finally {
    await browser.close();
    await sql.end();
    await app.close();
  }
});
