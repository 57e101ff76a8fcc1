import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { testApp } from '../support/app.ts';
import { startProcess } from '../support/service-process.ts';

/** What an operator lists over all users. */

const app = testApp({ CRONJOBS: 'true' });
const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const type = (...args: string[]) => startProcess(process.execPath, [MAIN, '--url', app.url, ...args], {}).end;

/** An item of either list. */
interface Item {
  userId?: string;
  jobId: string;
  ownerId: string;
  name: string;
}

/** Reads a list page by page; counts the pages. */
async function readPages(path: string) {
  const items: Item[] = [];
  let pages = 0;
  for (let cursor: string | undefined = ''; cursor !== undefined; pages += 1) {
    const { status, body } = await app.get(`${path}${cursor && `&cursor=${cursor}`}`);
    expect(status).toBe(200);
    const page = body as { items: Item[]; nextCursor?: string };
    items.push(...page.items);
    cursor = page.nextCursor;
  }
  return { items, pages };
}

test('the users of an application, by page: of whatever there is anything', async () => {
  for (const user of ['b', 'a', 'c', 'a']) await app.post(`/apps/harness_agent/users/${user}/sessions`, {});
  const artifact = { filename: 'user:note.txt', artifact: { text: 'hello' } };
  await app.post('/apps/harness_agent/users/d%20d/sessions', { sessionId: 's' });
  await app.post('/apps/harness_agent/users/d%20d/sessions/s/artifacts', artifact);
  await app.send('DELETE', '/apps/harness_agent/users/d%20d/sessions/s');
  const users = ['a', 'b', 'c', 'd d'].map((userId) => ({ userId }));
  const path = '/apps/harness_agent/users';
  expect(await readPages(`${path}?limit=3`)).toEqual({ items: users, pages: 2 });
  expect(await readPages(`${path}?limit=4`)).toEqual({ items: users, pages: 1 });
  expect((await app.get(`${path}?limit=1001`)).status).toBe(422);
  expect((await app.get(`${path}?cursor=x`)).status).toBe(422);
  expect((await app.get('/apps/nope/users')).body).toEqual({ detail: 'App not found: nope' });
  expect(await type('users', 'list')).toEqual({ code: 0, out: 'user\na\nb\nc\nd d\n', error: '' });
});

test('the cronjobs of all users, by page, and those of one', async () => {
  const schedule = { type: 'daily', time: '08:00', timezone: 'UTC' };
  for (const [index, ownerId] of ['u1', 'u2', 'u1'].entries())
    await app.post('/harness/cronjobs', { ownerId, name: `job ${index}`, prompt: 'Hello.', schedule });
  const { items, pages } = await readPages('/cronjobs?limit=2');
  expect([pages, items.map(({ name }) => name).toSorted()]).toEqual([2, ['job 0', 'job 1', 'job 2']]);
  expect(items.map(({ jobId }) => jobId)).toEqual(items.map(({ jobId }) => jobId).toSorted());
  const mine = await type('cron', 'list', '--user', 'u2', '--json');
  expect([mine.code, mine.error]).toEqual([0, '']);
  expect((JSON.parse(mine.out) as { name: string }[]).map(({ name }) => name)).toEqual(['job 1']);
  const all = await type('cron', 'list', '--all');
  expect([all.code, all.out.match(/job \d/g)?.toSorted()]).toEqual([0, ['job 0', 'job 1', 'job 2']]);
});
