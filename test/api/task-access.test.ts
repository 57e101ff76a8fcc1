import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { beginFor, prepareRowSecurity } from '../../src/platform/db/row-security.ts';
import { createKey } from '../../src/platform/http/access/key-ring.ts';
import { client, startApp, startOn, type TestApp } from '../support/app.ts';
import { startTokenIssuer, type TokenIssuer } from '../support/token-issuer.ts';

/** Who sees a task and who may answer it: each kind of caller with each kind of assignment. */

const CALLERS = { owner: ['staff'], ann: [], fin: ['finance', 'staff'], other: ['legal'] } as const;
type Caller = keyof typeof CALLERS;
const TASKS = {
  plain: { users: [], groups: [], rules: {} },
  toAnn: { users: ['ann'], groups: [], rules: {} },
  toFinance: { users: [], groups: ['finance'], rules: {} },
  toBoth: { users: ['ann'], groups: ['finance'], rules: {} },
  fourEyes: { users: [], groups: ['staff'], rules: { excludesRequester: true } },
};
/** The statuses of a read and of an answer. */
const HIDDEN = [404, 404];
const SEEN = [200, 403];
const MAY = [200, 200];
const EXPECTED: Record<Caller, Record<keyof typeof TASKS, number[]>> = {
  owner: { plain: MAY, toAnn: SEEN, toFinance: SEEN, toBoth: SEEN, fourEyes: SEEN },
  ann: { plain: HIDDEN, toAnn: MAY, toFinance: HIDDEN, toBoth: MAY, fourEyes: HIDDEN },
  fin: { plain: HIDDEN, toAnn: HIDDEN, toFinance: MAY, toBoth: MAY, fourEyes: MAY },
  other: { plain: HIDDEN, toAnn: HIDDEN, toFinance: HIDDEN, toBoth: HIDDEN, fourEyes: HIDDEN },
};

let tokens: TokenIssuer;
let app: TestApp;
let sql: Client;
beforeAll(async () => {
  tokens = await startTokenIssuer();
  app = await startApp({ ...tokens.environment, JWT_GROUPS_CLAIM: 'groups' });
  sql = new Client({ connectionString: app.databaseUrl });
  await sql.connect();
});
afterAll(async () => {
  await sql.end();
  await app.close();
  await tokens.close();
});

/** Makes one task of each assignment. @returns their ids */
async function makeTasks(suffix: string): Promise<Record<keyof typeof TASKS, string>> {
  // What was answered before goes on meanwhile.
  const busy = `select id from invocations where status in ('queued', 'running')
                union all select id from tasks where state = 'answered'`;
  await expect.poll(async () => (await sql.query(busy)).rows).toEqual([]);
  await sql.query('delete from sessions');
  for (const [name, { users, groups, rules }] of Object.entries(TASKS)) {
    const id = `${name}-${suffix}`;
    await sql.query("insert into sessions (app_name, user_id, id, state) values ('harness_agent', 'owner', $1, '{}')", [
      id,
    ]);
    await sql.query(
      `insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, start_time,
                                end_time)
       values ('harness_agent', 'owner', $1, 'i', 'paused', gen_random_uuid(), now(), now(), now())`,
      [id],
    );
    await sql.query(
      `insert into tasks (app_name, user_id, session_id, id, invocation_id, call_id, call_name, kind, form, rules,
                          assigned_users, assigned_groups)
       values ('harness_agent', 'owner', $1, $1, 'i', 'c', 'ask', 'call', '{"tool": "ask"}', $2, $3, $4)`,
      [id, rules, users, groups],
    );
  }
  const ids = Object.keys(TASKS).map((name) => [name, `${name}-${suffix}`]);
  return Object.fromEntries(ids) as Record<keyof typeof TASKS, string>;
}

const callers = Object.keys(CALLERS) as Caller[];
const seenBy = (caller: Caller) =>
  Object.entries(EXPECTED[caller])
    .filter(([, [read]]) => read === 200)
    .map(([name]) => name);

describe.each(['both walls', 'without row-level security'])('%s', (walls) => {
  beforeAll(async () => {
    if (walls !== 'both walls') await sql.query('alter table tasks disable row level security');
  });
  afterAll(() => sql.query('alter table tasks enable row level security'));

  test.each(callers)('%s', async (caller) => {
    const headers = await tokens.headersOf(caller, { groups: [...CALLERS[caller]] });
    const ids = await makeTasks(`${caller}-${walls.length}`);
    const { items } = (await app.get('/tasks', headers)).body as { items: { id: string; sessionId?: string }[] };
    expect(items.map(({ id }) => `${id.split('-')[0]}`).toSorted()).toEqual(seenBy(caller).toSorted());
    // The session, only those see who may read it.
    expect(items.every(({ sessionId }) => (sessionId !== undefined) === (caller === 'owner'))).toBe(true);
    const found: Record<string, number[]> = {};
    for (const [name, id] of Object.entries(ids)) {
      const read = await app.get(`/tasks/${id}`, headers);
      const answered = await app.send('PATCH', `/tasks/${id}`, { action: 'answer', answer: {} }, headers);
      found[name] = [read.status, answered.status];
    }
    expect(found).toEqual(EXPECTED[caller]);
  });
});

test.each(callers)('row-level security alone: %s', async (caller) => {
  await makeTasks(`sql-${caller}`);
  const { role } = await prepareRowSecurity({ url: app.databaseUrl }, {});
  await sql.query(beginFor(caller, { role }, CALLERS[caller]));
  const tasks = await sql.query<{ id: string }>('select id from tasks');
  const sessions = await sql.query('select id from sessions');
  await sql.query('rollback');
  expect(tasks.rows.map(({ id }) => `${id.split('-')[0]}`).toSorted()).toEqual(seenBy(caller).toSorted());
  expect(sessions.rows).toHaveLength(caller === 'owner' ? 5 : 0);
});

test('who is assigned may comment and take it, but not give it to others or say who it is', async () => {
  const fin = await tokens.headersOf('fin', { groups: [...CALLERS.fin] });
  const { toFinance } = await makeTasks('rest');
  const send = async (body: object) => (await app.send('PATCH', `/tasks/${toFinance}`, body, fin)).status;
  expect(await send({ action: 'comment', text: 'Which invoice?' })).toBe(200);
  expect(await send({ action: 'assign', users: ['ann'] })).toBe(403);
  expect(await send({ action: 'answer', by: 'ann', answer: {} })).toBe(403);
  expect(await send({ action: 'assign', users: ['fin'] })).toBe(200);
  const colleague = await tokens.headersOf('colleague', { groups: ['finance'] });
  expect((await app.get(`/tasks/${toFinance}`, colleague)).status).toBe(404);
});

/** Keys, by what they may; each answers for the person that it names, and none has groups. */
const KEYS = {
  whole: createKey({ id: 'whole', scopes: ['read', 'invoke'] }),
  reader: createKey({ id: 'reader', scopes: ['read'] }),
  ofOwner: createKey({ id: 'of-owner', scopes: ['read', 'invoke'], users: ['owner'] }),
  ofAnn: createKey({ id: 'of-ann', scopes: ['read', 'invoke'], users: ['ann'] }),
  ofApp: createKey({ id: 'of-app', scopes: ['read', 'invoke'], apps: ['harness_agent'] }),
};
const BOUND = [403, 403, 403, 403];
/** The statuses of a list, of a read, of an answer for `ann` and of one for the one who asked. */
const BY_KEY: Record<keyof typeof KEYS, { fourEyes: number[]; others: number[] }> = {
  whole: { fourEyes: [200, 200, 200, 403], others: [200, 200, 200, 200] },
  reader: { fourEyes: [200, 200, 403, 403], others: [200, 200, 403, 403] },
  // Tasks are of many users and applications: what is bound to some is let at none.
  ofOwner: { fourEyes: BOUND, others: BOUND },
  ofAnn: { fourEyes: BOUND, others: BOUND },
  ofApp: { fourEyes: BOUND, others: BOUND },
};

test('keys: one without bounds sees all and answers for whom it names, a bound one nothing', async () => {
  const file = join(mkdtempSync(join(tmpdir(), 'agent-runtime-task-keys-')), 'keys');
  writeFileSync(
    file,
    Object.values(KEYS)
      .map(({ entry }) => `${entry}\n`)
      .join(''),
  );
  const keyed = await startOn(app.databaseUrl, { RUNTIME_API_KEYS_FILE: file });
  const { get, send } = client(keyed.url);
  for (const [name, { key }] of Object.entries(KEYS)) {
    const headers = { authorization: `Bearer ${key}` };
    const asAnn = await makeTasks(`key-ann-${name}`);
    const list = await get('/tasks', headers);
    const { items = [] } = list.body as { items?: { sessionId?: string }[] };
    expect(items.filter(({ sessionId }) => sessionId !== undefined)).toHaveLength(list.status === 200 ? 5 : 0);
    const found: Record<string, number[]> = {};
    const answer = async (id: string, by: string) =>
      (await send('PATCH', `/tasks/${id}`, { action: 'answer', answer: {}, by }, headers)).status;
    for (const [task, id] of Object.entries(asAnn))
      found[task] = [list.status, (await get(`/tasks/${id}`, headers)).status, await answer(id, 'ann')];
    const asOwner = await makeTasks(`key-owner-${name}`);
    for (const [task, id] of Object.entries(asOwner)) found[task]?.push(await answer(id, 'owner'));
    const { fourEyes, others } = BY_KEY[name as keyof typeof KEYS];
    expect([name, found]).toEqual([
      name,
      { plain: others, toAnn: others, toFinance: others, toBoth: others, fourEyes },
    ]);
  }
  await keyed.close();
});
