import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createKey } from '../../src/platform/http/access/key-ring.ts';
import { startApp } from '../support/app.ts';
import { staged, stagedSql } from '../support/staged.ts';

/** The invocations of an application over all users. */

const folder = mkdtempSync(join(tmpdir(), 'agent-runtime-invocations-'));
const keys = {
  service: createKey({ id: 'service', scopes: ['invoke', 'read', 'write', 'admin'] }),
  reader: createKey({ id: 'reader', scopes: ['read'] }),
  operator: createKey({ id: 'operator', scopes: ['admin'] }),
  ofTwo: createKey({ id: 'of-two', scopes: ['read'], users: ['u1', 'u2'] }),
  ofMany: createKey({ id: 'of-many', scopes: ['read'], users: Array.from({ length: 21 }, (_, n) => `u${n}`) }),
};
type Name = keyof typeof keys;
const as = (name: Name) => ({ authorization: `Bearer ${keys[name].key}` });

beforeAll(() => {
  writeFileSync(
    join(folder, 'keys'),
    Object.values(keys)
      .map(({ entry }) => entry)
      .join('\n'),
  );
});
const app = staged(() => startApp({ DEV_UI: 'false', RUNTIME_API_KEYS_FILE: join(folder, 'keys') }));
const sql = stagedSql(app);
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

interface Listed {
  id: string;
  userId: string;
  sessionId: string;
  status: string;
  agent?: string;
  firstText?: string;
  error?: { code: string };
}
interface Page {
  items: Listed[];
  nextCursor?: string;
  isCut: boolean;
}
const PATH = '/apps/harness_agent/invocations';
const list = (query = '', name: Name = 'service') => app.get(`${PATH}?${query}`, as(name));
async function read(query = '', name: Name = 'service'): Promise<Page> {
  const { status, body, text } = await list(query, name);
  expect([status, status === 200 ? '' : text]).toEqual([200, '']);
  return body as Page;
}
const sessionsOf = async (query: string, name?: Name) => (await read(query, name)).items.map((each) => each.sessionId);

const ask = (userId: string, sessionId: string, prompt: string, maxCalls = 5) =>
  app.post(
    '/harness/invoke',
    {
      prompt,
      harness_name: 'demo',
      run_agent_request: { user_id: userId, session_id: sessionId, max_llm_calls: maxCalls },
    },
    as('service'),
  );

beforeAll(async () => {
  await ask('u1', 's1', 'Hello from Berlin.');
  await ask('u2', 's2', 'What is 17 * 23? Use the calculator.', 1);
  await ask('u3', 's3', 'Hello from PARIS.');
  await ask('u1', 's1', 'Good bye.');
});

test('the newest first, over all users, with what was asked, who answered and why it failed', async () => {
  const { items, isCut } = await read();
  expect(items.map(({ userId, sessionId, firstText }) => [userId, sessionId, firstText])).toEqual([
    ['u1', 's1', 'Good bye.'],
    ['u3', 's3', 'Hello from PARIS.'],
    ['u2', 's2', 'What is 17 * 23? Use the calculator.'],
    ['u1', 's1', 'Hello from Berlin.'],
  ]);
  expect(items[2]).toMatchObject({ status: 'failed', agent: 'harness_agent', error: { code: 'llm_calls_limit' } });
  expect(isCut).toBe(false);
});

test('by pages, which leave out none and have none twice', async () => {
  const found: string[] = [];
  for (let cursor: string | undefined = ''; cursor !== undefined; ) {
    const page: Page = await read(`limit=1${cursor && `&cursor=${cursor}`}`);
    expect(page.items).toHaveLength(1);
    found.push(...page.items.map(({ id }) => id));
    cursor = page.nextCursor;
  }
  expect(found).toEqual((await read()).items.map(({ id }) => id));
});

test('by each filter', async () => {
  const { items } = await read();
  const [last, , failed, first] = items;
  const version = (last as Listed & { agentVersion: string }).agentVersion;
  const times = (last as Listed & { createTime: number }).createTime;
  const rows: [string, string[]][] = [
    ['status=failed', ['s2']],
    ['status=failed&status=succeeded', ['s1', 's3', 's2', 's1']],
    ['status=running', []],
    ['errorCode=llm_calls_limit', ['s2']],
    ['errorCode=llm_calls_limit&status=succeeded', []],
    ['agent=harness_agent', ['s1', 's3', 's2', 's1']],
    ['agent=another', []],
    [`version=${version}`, ['s1', 's3', 's2', 's1']],
    ['version=none', []],
    ['userId=u1', ['s1', 's1']],
    ['userId=u1&status=failed', []],
    ['userId=nobody', []],
    ['sessionId=s1', ['s1', 's1']],
    ['sessionId=s1&userId=u1&limit=1', ['s1']],
    ['sessionId=s1&userId=u2', []],
    ['text=paris', ['s3']],
    ['text=hello', ['s3', 's1']],
    ['text=s2', ['s2']],
    [`text=${failed?.id}`, ['s2']],
    [`text=${first?.id}&userId=u1`, ['s1']],
    [`createdBefore=${times}`, ['s3', 's2', 's1']],
    [`createdAfter=${times - 0.000001}`, ['s1']],
    [`createdAfter=${times + 60}`, []],
  ];
  for (const [query, expected] of rows) expect([query, await sessionsOf(query)]).toEqual([query, expected]);
  expect((await list('status=odd')).status).toBe(422);
  expect((await list('cursor=x')).status).toBe(422);
});

test('all users for the scopes `read` and `admin`; else the users that a key acts for, or that it names', async () => {
  const refused = async (query: string, name: Name) => {
    const { status, body } = await list(query, name);
    return [status, (body as { detail: string }).detail];
  };
  expect(await refused('', 'reader')).toEqual([
    403,
    'The credential does not have the scope `admin`: it lists the invocations of all users.',
  ]);
  expect(await sessionsOf('userId=u3', 'reader')).toEqual(['s3']);
  expect((await refused('', 'operator'))[0]).toBe(403);
  expect(await sessionsOf('', 'ofTwo')).toEqual(['s1', 's2', 's1']);
  expect(await sessionsOf('limit=2', 'ofTwo')).toEqual(['s1', 's2']);
  const { nextCursor } = await read('limit=2', 'ofTwo');
  expect(await sessionsOf(`limit=2&cursor=${nextCursor}`, 'ofTwo')).toEqual(['s1']);
  expect(await sessionsOf('userId=u2', 'ofTwo')).toEqual(['s2']);
  expect(await refused('userId=u3', 'ofTwo')).toEqual([404, 'User not found: u3']);
  expect(await refused('', 'ofMany')).toEqual([
    400,
    'The key is bound to more than 20 users: name one of them with `userId`.',
  ]);
  expect(await sessionsOf('userId=u1', 'ofMany')).toEqual(['s1', 's1']);
});

test('a page that looked at many says so, and the next one goes on; failures and a session are found at once', async () => {
  await sql.query(`insert into sessions (app_name, user_id, id) values ('many', 'u1', 's'), ('many', 'u2', 's')`);
  await sql.query(`insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time,
                                      first_text, error_code, error_message, create_time)
    select 'many', case when n in (1, 5100) then 'u2' else 'u1' end, 's', 'i' || n,
      case when n = 1 then 'failed' else 'succeeded' end, gen_random_uuid(), now(),
      case when n = 1 then 'the needle' else 'hay' end, case when n = 1 then 'internal' end, case when n = 1 then 'It.' end,
      timestamptz '2026-01-01' + n / 2 * interval '1 second'
    from generate_series(1, 5100) n`);
  const readMany = async (query: string) =>
    (await app.get(`/apps/many/invocations?${query}`, as('service'))).body as Page;
  const first = await readMany('text=needle');
  expect([first.items, first.isCut]).toEqual([[], true]);
  const second = await readMany(`text=needle&cursor=${first.nextCursor}`);
  expect([second.items.map(({ id }) => id), second.isCut, second.nextCursor]).toEqual([['i1'], false, undefined]);
  const idsOf = ({ items, isCut }: Page) => [items.map(({ id }) => id), isCut];
  expect(idsOf(await readMany('status=failed'))).toEqual([['i1'], false]);
  expect(idsOf(await readMany('errorCode=internal&text=needle'))).toEqual([['i1'], false]);
  expect(idsOf(await readMany('userId=u2'))).toEqual([['i5100', 'i1'], false]);
  // Two of each moment: none is left out or twice where a page ends between them.
  const seen: string[] = [];
  for (let cursor = ''; seen.length < 9; ) {
    const page = await readMany(`limit=3${cursor && `&cursor=${cursor}`}`);
    seen.push(...page.items.map(({ id }) => id));
    cursor = page.nextCursor ?? '';
  }
  expect(seen).toEqual(Array.from({ length: 9 }, (_, n) => `i${5100 - n}`));
  expect(idsOf(await readMany('userId=u1&sessionId=s&text=i2'))).toEqual([['i2'], false]);
});

test('what waits in the background says what it is asked', async () => {
  await app.post('/apps/harness_agent/users/u9/sessions', { sessionId: 's9' }, as('service'));
  await sql.query(`insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, start_time)
    values ('harness_agent', 'u9', 's9', 'busy', 'running', gen_random_uuid(), now() + interval '1 hour', now())`);
  await sql.query(
    `update sessions set lease_token = (select lease_token from invocations where user_id = 'u9' and id = 'busy')
     where user_id = 'u9' and id = 's9'`,
  );
  const message = { newMessage: { role: 'user', parts: [{ text: 'Wait for me.' }] } };
  const { status } = await app.post('/apps/harness_agent/users/u9/sessions/s9/invocations', message, as('service'));
  expect(status).toBe(200);
  const { items } = await read('userId=u9&status=queued');
  expect(items.map(({ firstText }) => firstText)).toEqual(['Wait for me.']);
});
