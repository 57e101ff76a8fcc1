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
  ofBoth: createKey({ id: 'of-both', scopes: ['read', 'invoke'], users: ['owner', 'ann'] }),
  ofOther: createKey({ id: 'of-other', scopes: ['read', 'invoke', 'admin'], users: ['other'] }),
  ofApp: createKey({ id: 'of-app', scopes: ['read', 'invoke'], apps: ['harness_agent'] }),
  ofOtherApp: createKey({ id: 'of-other-app', scopes: ['read', 'invoke', 'admin'], apps: ['another'] }),
  ofAnnElsewhere: createKey({ id: 'of-ann-elsewhere', scopes: ['read', 'invoke'], users: ['ann'], apps: ['another'] }),
};
/** The statuses of a read, of an answer for `ann` and of one for the one who asked. */
type ByTask = Record<keyof typeof TASKS, number[]>;
const each = (statuses: number[], more: Partial<ByTask> = {}): ByTask => ({
  plain: statuses,
  toAnn: statuses,
  toFinance: statuses,
  toBoth: statuses,
  fourEyes: statuses,
  ...more,
});
const NOT_SEEN = [404, 404, 404];
const BY_KEY: Record<keyof typeof KEYS, ByTask> = {
  whole: each([200, 200, 200], { fourEyes: [200, 200, 403] }),
  reader: each([200, 403, 403]),
  // It answers as its user alone, and vouches for nobody: who is not assigned does not answer.
  ofOwner: each([200, 403, 403], { plain: [200, 403, 200] }),
  ofAnn: each(NOT_SEEN, { toAnn: [200, 200, 403], toBoth: [200, 200, 403] }),
  ofBoth: each([200, 403, 403], { plain: [200, 403, 200], toAnn: [200, 200, 403], toBoth: [200, 200, 403] }),
  ofOther: each(NOT_SEEN),
  ofApp: each([200, 403, 403], { plain: [200, 403, 200] }),
  ofOtherApp: each(NOT_SEEN),
  ofAnnElsewhere: each(NOT_SEEN),
};
/** Those that may read the sessions of `owner` are told them. */
const OF_OWNER = new Set(['whole', 'reader', 'ofOwner', 'ofBoth', 'ofApp']);

test('keys: one without bounds answers for whom it names, a bound one sees and answers what its users are asked', async () => {
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
    expect(list.status).toBe(200);
    const { items } = list.body as { items: { id: string; sessionId?: string }[] };
    const expected = BY_KEY[name as keyof typeof KEYS];
    const seen = Object.keys(TASKS).filter((task) => expected[task as keyof typeof TASKS][0] === 200);
    expect([name, items.map(({ id }) => id.split('-')[0] ?? '').toSorted()]).toEqual([name, seen.toSorted()]);
    expect(items.every(({ sessionId }) => (sessionId !== undefined) === OF_OWNER.has(name))).toBe(true);
    for (const filter of ['ownerId=owner', 'assignee=ann', 'group=finance', 'appName=harness_agent', 'text=ask']) {
      const narrowed = (await get(`/tasks?${filter}`, headers)).body as { items: { id: string }[] };
      expect(narrowed.items.filter(({ id }) => !seen.includes(id.split('-')[0] ?? ''))).toEqual([]);
    }
    const found: Record<string, number[]> = {};
    const answer = async (id: string, by: string) =>
      (await send('PATCH', `/tasks/${id}`, { action: 'answer', answer: {}, by }, headers)).status;
    for (const [task, id] of Object.entries(asAnn))
      found[task] = [(await get(`/tasks/${id}`, headers)).status, await answer(id, 'ann')];
    const asOwner = await makeTasks(`key-owner-${name}`);
    for (const [task, id] of Object.entries(asOwner)) found[task]?.push(await answer(id, 'owner'));
    expect([name, found]).toEqual([name, expected]);
  }
  await keyed.close();
});

test.each(['answer', 'reject', 'assign', 'postpone', 'comment'] as const)(
  'a key that is bound to others changes nothing of a task: %s',
  async (action) => {
    const file = join(mkdtempSync(join(tmpdir(), 'agent-runtime-task-keys-')), 'keys');
    writeFileSync(
      file,
      ['ofAnn', 'ofOther', 'ofOtherApp'].map((name) => `${KEYS[name as keyof typeof KEYS].entry}\n`).join(''),
    );
    const keyed = await startOn(app.databaseUrl, { RUNTIME_API_KEYS_FILE: file });
    const { send, post } = client(keyed.url);
    const ids = await makeTasks(`foreign-${action}`);
    const rows = async () => (await sql.query('select * from tasks order by id')).rows;
    const before = await rows();
    const body = { action, answer: {}, text: 'x', users: ['other'], seconds: 60 };
    for (const name of ['ofAnn', 'ofOther', 'ofOtherApp'] as const)
      for (const by of [undefined, 'owner', 'ann', 'other']) {
        const headers = { authorization: `Bearer ${KEYS[name].key}` };
        const sent = { ...body, ...(by && { by }) };
        expect((await send('PATCH', `/tasks/${ids.plain}`, sent, headers)).status).toBe(404);
        expect((await post(`/tasks/${ids.plain}/address`, {}, headers)).status).toBe(404);
      }
    expect(await rows()).toEqual(before);
    await keyed.close();
  },
);
