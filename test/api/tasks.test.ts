import { describe, expect, test } from 'vitest';
import type { Part } from '../../src/core/content.ts';
import type { Model } from '../../src/agent/definition/model.ts';
import type { Tool } from '../../src/agent/definition/tool.ts';
import { hostAgent } from '../support/agents.ts';
import { startApp } from '../support/app.ts';
import { staged, stagedSql } from '../support/staged.ts';
import { builtInTools } from '../../src/agent/tools/registry.ts';
import { getNextTime } from '../../src/features/cronjobs/schedule.ts';

/** The state of a task whose answer may have come to its invocation already. */
const DECIDED = expect.stringMatching(/^(?:answered|done)$/) as string;

/** Tasks: what waits for a person, and its answers. The model calls the tool that a message names, then says `done`. */

const USERS = '/apps/harness_agent/users';
interface Task {
  id: string;
  kind: string;
  state: string;
  form: { tool: string; args?: object; hint?: string };
  callId?: string;
  sessionId?: string;
  invocationId: string;
  decidedVia?: string;
  answer?: object;
  approvals: { by: string }[];
}

const model: Model = {
  provider: 'scripted',
  // eslint-disable-next-line require-yield
  async *generate({ contents }) {
    const last = contents.at(-1)?.parts ?? [];
    const text = last.map((part) => part.text ?? '').join('');
    const said = last.some(({ functionResponse }) => functionResponse) ? '' : text;
    const calls = said.split(' ').filter((name) => tools.some((tool) => tool.name === name));
    if (calls.length === 0) return { content: { role: 'model', parts: [{ text: 'done' }] } };
    return {
      content: { role: 'model', parts: calls.map((name): Part => ({ functionCall: { name, args: { n: 1 } } })) },
    };
  },
};

let ran = 0;
const plain = { description: 'Counts.', parameters: { type: 'object', properties: { n: { type: 'number' } } } };
const tools: Tool[] = [
  { ...plain, name: 'pay', needsConfirmation: true, run: async () => ({ paid: ++ran }) },
  { ...plain, name: 'ship', needsConfirmation: true, run: async () => ({ shipped: 1 }) },
  { ...plain, name: 'ask', needsConfirmation: false, longRunning: true, effect: 'none', run: async () => undefined },
  {
    ...plain,
    name: 'wire',
    needsConfirmation: true,
    wait: { groups: ['finance'], approvals: 2, excludesRequester: true },
    run: async () => ({ wired: ++ran }),
  },
  {
    ...plain,
    name: 'soon',
    needsConfirmation: false,
    longRunning: true,
    effect: 'none',
    wait: { expiresAfter: 0.2, defaultAnswer: { late: true } },
    run: async () => undefined,
  },
  {
    ...plain,
    name: 'nap',
    needsConfirmation: false,
    longRunning: true,
    effect: 'none',
    wait: { kind: 'sleep', expiresAfter: 86_400 },
    run: async () => undefined,
  },
  {
    ...plain,
    name: 'parcel',
    needsConfirmation: false,
    longRunning: true,
    effect: 'none',
    wait: {
      kind: 'signal',
      signal: 'parcel',
      schema: { type: 'object', properties: { n: { type: 'number' } }, required: ['n'] },
    },
    run: async () => undefined,
  },
];

const PUBLIC_URL = 'https://agents.example.com/below';
const app = staged(() => startApp({ PUBLIC_URL }, { agents: hostAgent(model, tools) }));
const sql = stagedSql(app);

let sessions = 0;
/** Says something in a new session. @returns its tasks, and what asks and answers there */
async function say(text: string, userId = 'u') {
  const sessionId = `s${++sessions}`;
  const path = `${USERS}/${userId}/sessions/${sessionId}`;
  await app.post(`${USERS}/${userId}/sessions`, { sessionId });
  const run = (parts: Part[], more = {}, headers = {}) => {
    const body = { appName: 'harness_agent', userId, sessionId, newMessage: { role: 'user', parts }, ...more };
    return app.post('/run', body, headers);
  };
  const asked = await run([{ text }]);
  expect(asked.status).toBe(200);
  const list = async (query = '') =>
    ((await app.get(`/tasks?sessionId=${sessionId}${query}`)).body as { items: Task[] }).items;
  const statusOf = async () =>
    (await sql.query<{ status: string }>('select status from invocations where session_id = $1', [sessionId])).rows.map(
      ({ status }) => status,
    );
  const whenEnded = async () => {
    await expect.poll(statusOf).toEqual(['succeeded']);
  };
  const responses = async () =>
    ((await app.get(path)).body as { events: { content?: { parts?: Part[] } }[] }).events.flatMap(({ content }) =>
      (content?.parts ?? []).flatMap(({ functionResponse }) => functionResponse?.response ?? []),
    );
  const [task] = await list();
  return { path, sessionId, run, list, whenEnded, statusOf, responses, task: task as Task };
}
const change = (id: string, body: object, headers = {}) => app.send('PATCH', `/tasks/${id}`, body, headers);

describe('a task', () => {
  test('is there for a confirmation, and its answer runs the call', async () => {
    const { task, whenEnded, responses, list } = await say('pay');
    expect(task).toMatchObject({ kind: 'confirmation', state: 'open', form: { tool: 'pay', args: { n: 1 } } });
    const before = ran;
    const got = await app.get(`/tasks/${task.id}`);
    expect(got.headers.get('etag')).toBe('"1"');
    expect((await change(task.id, { action: 'answer' }, { 'if-match': '"7"' })).status).toBe(412);
    const answered = await change(task.id, { action: 'answer' }, { 'if-match': '"1"' });
    expect(answered).toMatchObject({ status: 200, body: { state: DECIDED, decidedBy: 'u', decidedVia: 'tasks' } });
    await whenEnded();
    expect(ran).toBe(before + 1);
    expect((await responses()).at(-1)).toEqual({ paid: ran });
    expect(await list('&state=open')).toEqual([]);
    expect(await list('&state=done')).toMatchObject([{ id: task.id, answer: { confirmed: true } }]);
  });

  test('is rejected', async () => {
    const { task, whenEnded, responses } = await say('pay');
    const before = ran;
    await change(task.id, { action: 'reject' });
    await whenEnded();
    expect(ran).toBe(before);
    expect((await responses()).at(-1)).toEqual({ error: 'This tool call is rejected.' });
  });

  test('is rejected with a reason, which is a comment of it and told to the model', async () => {
    const { task, whenEnded, responses } = await say('pay');
    const { body } = await change(task.id, { action: 'reject', text: 'Too much.' });
    expect(body).toMatchObject({
      comments: [{ by: 'u', text: 'Too much.' }],
      answer: { confirmed: false, reason: 'Too much.' },
    });
    await whenEnded();
    expect((await responses()).at(-1)).toEqual({ error: 'This tool call is rejected: Too much.' });
  });

  test('is closed by a message of its session, and then refuses other answers with who was first', async () => {
    const { task, run, responses } = await say('ask');
    expect(task).toMatchObject({ kind: 'call', form: { tool: 'ask' } });
    const answer = (n: number, more = {}) =>
      run([{ functionResponse: { id: task.callId, name: 'ask', response: { n } } }], more);
    expect((await answer(1, { invocationId: task.invocationId })).status).toBe(200);
    const late = [
      await change(task.id, { action: 'answer', answer: { n: 2 } }),
      await answer(3, { invocationId: task.invocationId }),
      await answer(4),
    ];
    const detail = expect.stringMatching(/^Task \S+ was answered before: by u, through run, at 2\S+Z\.$/) as string;
    expect(late.map(({ status, body }) => ({ status, body }))).toEqual(
      late.map(() => ({ status: 409, body: { detail } })),
    );
    expect(await responses()).toEqual([{ n: 1 }]);
  });

  test('is closed by an event that is appended, too', async () => {
    const { task, path } = await say('ask');
    const content = {
      role: 'user',
      parts: [{ functionResponse: { id: task.callId, name: 'ask', response: { n: 1 } } }],
    };
    expect((await app.post(`${path}/events`, { author: 'user', content })).status).toBe(200);
    expect((await app.post(`${path}/events`, { author: 'user', content })).status).toBe(409);
  });

  test('of several, the invocation goes on with all answers once none is open', async () => {
    const { list, whenEnded, statusOf, responses } = await say('pay ship ask');
    const tasks = await list();
    expect(tasks.map(({ form }) => form.tool).toSorted()).toEqual(['ask', 'pay', 'ship']);
    const [first, ...others] = tasks;
    await change(first?.id ?? '', { action: 'answer', answer: { n: 5 } });
    expect(await statusOf()).toEqual(['paused']);
    for (const { id } of others) await change(id, { action: 'answer', answer: { n: 5 } });
    await whenEnded();
    const given = (await responses()).map((response) => JSON.stringify(response));
    expect(given.filter((text) => /paid|shipped/.test(text))).toHaveLength(2);
    expect(given).toContain('{"n":5}');
  });

  test('is cancelled with its invocation', async () => {
    const { task, path } = await say('pay');
    await app.post(`${path}/invocations/${task.invocationId}/cancel`, {});
    const answer = await change(task.id, { action: 'answer' });
    expect(answer).toMatchObject({ status: 409, body: { detail: `Task ${task.id} was cancelled.` } });
  });

  test('of 60 answers at once through two ways, one is taken, and all others hear whose', async () => {
    const { task, run, whenEnded, responses } = await say('ask');
    const answers = await Promise.all(
      Array.from({ length: 60 }, async (_, n) =>
        n % 2 === 0
          ? change(task.id, { action: 'answer', answer: { n } })
          : run([{ functionResponse: { id: task.callId, name: 'ask', response: { n } } }], {
              invocationId: n % 4 === 1 ? task.invocationId : undefined,
            }),
      ),
    );
    const won = answers.flatMap(({ status }, n) => (status === 200 ? n : []));
    expect(won).toHaveLength(1);
    const told = answers.filter(({ status, text }) => status === 409 && text.includes('was answered before: by u'));
    expect(told).toHaveLength(59);
    if (won[0] !== undefined && won[0] % 4 !== 3) await whenEnded();
    expect(await responses()).toEqual([{ n: won[0] }]);
  });

  test('counts for its user, who may have no more open ones than a bound', async () => {
    const small = await startApp({ MAX_OPEN_TASKS: '1' }, { agents: hostAgent(model, tools) });
    await small.post(`${USERS}/v/sessions`, { sessionId: 's' });
    const session = { appName: 'harness_agent', userId: 'v', sessionId: 's' };
    const answer = await small.post('/run', { ...session, newMessage: { role: 'user', parts: [{ text: 'ask pay' }] } });
    expect((answer.body as object[]).at(-1)).toMatchObject({ errorCode: 'too_many_tasks' });
    expect(((await small.get('/tasks')).body as { items: Task[] }).items).toEqual([]);
    await small.close();
  });
});

describe('who answers', () => {
  test('two people have to, who are not the one who asked', async () => {
    const { task, run, whenEnded, responses } = await say('wire');
    expect(task).toMatchObject({ groups: ['finance'], approvalsNeeded: 2 });
    const name = 'adk_request_confirmation';
    const yes = { functionResponse: { id: task.callId, name, response: { confirmed: true } } };
    expect((await run([yes], { invocationId: task.invocationId })).status).toBe(403);
    expect((await change(task.id, { action: 'answer' })).status).toBe(403);
    expect(await change(task.id, { action: 'answer', by: 'ann' })).toMatchObject({ body: { state: 'open' } });
    expect((await change(task.id, { action: 'answer', by: 'ann' })).status).toBe(409);
    const before = ran;
    expect(await change(task.id, { action: 'answer', by: 'bob' })).toMatchObject({ body: { state: DECIDED } });
    await whenEnded();
    expect((await responses()).at(-1)).toEqual({ wired: before + 1 });
  });
});

describe('what an erasure and a second message do', () => {
  test('a name that is erased is gone from the tasks of others, which stay', async () => {
    const { task } = await say('wire', 'asks');
    await change(task.id, { action: 'comment', text: 'Who is Acme?', by: 'leaver' });
    await change(task.id, { action: 'comment', text: 'A supplier.', by: 'stays' });
    await change(task.id, { action: 'answer', by: 'leaver' });
    const decided = await say('pay', 'asks');
    await change(decided.task.id, { action: 'assign', users: ['leaver', 'stays'], by: 'asks' });
    await change(decided.task.id, { action: 'reject', by: 'leaver' });
    await decided.whenEnded();
    expect((await app.send('DELETE', `${USERS}/leaver`)).body).toMatchObject({ status: 'done', counts: { tasks: 2 } });
    const [open, done] = [await app.get(`/tasks/${task.id}`), await app.get(`/tasks/${decided.task.id}`)];
    expect(`${open.text}${done.text}`).not.toContain('leaver');
    expect(open.body).toMatchObject({ state: 'open', approvals: [], comments: [{ by: 'stays', text: 'A supplier.' }] });
    expect(done.body).toMatchObject({ state: 'done', users: ['stays'], decidedVia: 'tasks' });
  });

  test('a message that interrupts ends a sleep, one that waits its turn does not', async () => {
    const { run, statusOf, list } = await say('nap');
    expect(await list()).toMatchObject([{ kind: 'sleep', state: 'open' }]);
    expect((await run([{ text: 'Hello' }])).status).toBe(200);
    expect((await statusOf()).toSorted()).toEqual(['paused', 'succeeded']);
    expect((await run([{ text: 'Stop.' }], {}, { 'x-double-texting': 'interrupt' })).status).toBe(200);
    expect((await statusOf()).toSorted()).toEqual(['interrupted', 'succeeded', 'succeeded']);
    expect(await list('&state=cancelled')).toMatchObject([{ kind: 'sleep' }]);
    expect(await list('&state=cancelled&kind=signal&kind=sleep')).toMatchObject([{ kind: 'sleep' }]);
    expect(await list('&state=cancelled&kind=signal&kind=question')).toEqual([]);
    // Nobody sleeps: a person is not passed over.
    const asked = await say('pay');
    await asked.run([{ text: 'Hello' }], {}, { 'x-double-texting': 'interrupt' });
    expect(await asked.list()).toMatchObject([{ state: 'open' }]);
  });
});

describe('the deadline', () => {
  test('answers in place of a person', async () => {
    await sql.query(
      `insert into webhooks (app_name, user_id, id, url, host, includes_output, secret)
       values ('harness_agent', 'u', 'w', 'https://example.com/', 'example.com', false, 'whsec_')`,
    );
    await sql.query(
      `create function own_webhook() returns trigger language plpgsql as
       $$ begin new.webhook_url := 'https://example.com/'; return new; end $$`,
    );
    await sql.query(
      'create trigger own_webhook before insert on invocations for each row execute function own_webhook()',
    );
    const { whenEnded, responses, list } = await say('soon');
    await whenEnded();
    await sql.query('drop trigger own_webhook on invocations');
    const { rows } = await sql.query<{ type: string }>(
      `select payload::json ->> 'type' as type from webhook_deliveries
       where payload like '%task%' order by create_time`,
    );
    expect(rows.map(({ type }) => type)).toEqual(['task.created', 'task.expired']);
    expect(await responses()).toEqual([{ late: true }]);
    expect(await list('&state=done')).toMatchObject([{ decidedVia: 'deadline' }]);
  });
});

describe('a signal', () => {
  const send = (path: string, body: object, headers = {}) => app.post(`${path}/signals/parcel`, body, headers);

  test('answers what waits for it, once for its key, where it fits', async () => {
    const { path, task, whenEnded, responses } = await say('parcel');
    expect(task).toMatchObject({ kind: 'signal', signal: 'parcel' });
    expect((await send(path, { n: 'x' })).status).toBe(400);
    const key = { 'idempotency-key': 'k1' };
    const first = await send(path, { n: 1 }, key);
    expect(first).toMatchObject({ status: 200, body: { kept: false, taskId: task.id } });
    expect((await send(path, { n: 1 }, key)).text).toBe(first.text);
    await whenEnded();
    expect(await responses()).toEqual([{ n: 1 }]);
  });

  test('that comes first is kept for the wait, up to a bound; one that does not fit is dropped', async () => {
    await app.post(`${USERS}/w/sessions`, { sessionId: 'early' });
    const path = `${USERS}/w/sessions/early`;
    for (const body of [{ no: 1 }, { n: 2 }, { n: 3 }]) expect((await send(path, body)).body).toEqual({ kept: true });
    const newMessage = { role: 'user', parts: [{ text: 'parcel' }] };
    await app.post('/run', { appName: 'harness_agent', userId: 'w', sessionId: 'early', newMessage });
    const statuses = async () =>
      (await sql.query("select status from invocations where session_id = 'early'")).rows as object[];
    await expect.poll(statuses).toEqual([{ status: 'succeeded' }]);
    expect((await app.get(path)).text).toContain('"response": {"n": 2}');
    const { rows } = await sql.query<{ payload: object }>('select payload from signals');
    expect(rows).toEqual([{ payload: { n: 3 } }]);
    const more = await Promise.all(Array.from({ length: 100 }, (_, n) => send(path, { n })));
    expect(more.filter(({ status }) => status === 409)).toHaveLength(1);
    expect((await send(`${USERS}/w/sessions/none`, {})).status).toBe(404);
  });

  test('comes by a public address once, which names nobody and is kept as a hash', async () => {
    const { task, whenEnded, responses } = await say('parcel');
    const { path, url } = (await app.post(`/tasks/${task.id}/address`, {})).body as { path: string; url: string };
    expect(path).toMatch(/^\/signals\/[\w-]{43}$/);
    expect(url).toBe(`${PUBLIC_URL}${path}`);
    const { rows } = await sql.query('select * from tasks where id = $1', [task.id]);
    expect(JSON.stringify(rows)).not.toContain(path.slice(9));
    expect((await app.post(path, { n: 'x' })).status).toBe(400);
    expect((await app.post(path, { n: 4 })).body).toEqual({ kept: false });
    await whenEnded();
    expect(await responses()).toEqual([{ n: 4 }]);
    const late = await app.post(path, { n: 5 });
    expect(late.status).toBe(409);
    expect(late.text).not.toContain('a system');
    await sql.query("update tasks set token_expire_time = now() - interval '1 second' where id = $1", [task.id]);
    expect((await app.post(path, { n: 6 })).status).toBe(404);
    const other = await say('pay');
    expect((await app.post(`/tasks/${other.task.id}/address`, {})).status).toBe(409);
  });

  test('of 200 answers at once through three ways one is taken, and 199 hear how', async () => {
    const { task, run, whenEnded, responses } = await say('parcel');
    const { path } = (await app.post(`/tasks/${task.id}/address`, {})).body as { path: string };
    const ways = [
      (n: number) => change(task.id, { action: 'answer', answer: { n } }),
      (n: number) =>
        run([{ functionResponse: { id: task.callId, name: 'parcel', response: { n } } }], {
          invocationId: task.invocationId,
        }),
      (n: number) => app.post(path, { n }),
    ];
    const answers = await Promise.all(Array.from({ length: 200 }, async (_, n) => ways[n % 3]?.(n)));
    const won = answers.flatMap((answer, n) => (answer?.status === 200 ? n : []));
    const told = answers.flatMap((answer, n) => {
      // By the address nobody is named.
      const said = n % 3 === 2 ? /before: through (\w+), at/ : /before: by (?:u|a system), through (\w+), at/;
      return (answer?.status === 409 && said.exec(answer.text)?.[1]) || [];
    });
    expect([won.length, told.length]).toEqual([1, 199]);
    expect([...new Set(told)]).toEqual([['tasks', 'run', 'signal'][(won[0] ?? 0) % 3]]);
    await whenEnded();
    expect(await responses()).toEqual([{ n: won[0] }]);
  });
});

describe('the tools of waits', () => {
  const call = async (name: string, args: object) => {
    const hosted = hostAgent(
      {
        provider: 'scripted',
        // eslint-disable-next-line require-yield
        async *generate({ contents }) {
          const isAnswered = contents.at(-1)?.parts?.some(({ functionResponse }) => functionResponse);
          const part: Part = isAnswered ? { text: 'done' } : { functionCall: { name, args: args as never } };
          return { content: { role: 'model', parts: [part] } };
        },
      },
      [...builtInTools().values()],
    );
    const one = await startApp({}, { agents: hosted });
    await one.post(`${USERS}/t/sessions`, { sessionId: 's' });
    const newMessage = { role: 'user', parts: [{ text: 'Go.' }] };
    const run = await one.post('/run', { appName: 'harness_agent', userId: 't', sessionId: 's', newMessage });
    const list = await one.get('/tasks');
    return { one, events: run.text, items: (list.body as { items: (Task & { expireTime?: number })[] }).items };
  };

  test.each([
    ['sleep_for', { days: 2, hours: 1 }, 2 * 86_400 + 3_600],
    ['sleep_until', { time: '2099-07-01T08:00', timeZone: 'Europe/Berlin' }, 366 * 86_400],
  ])('%s', async (name, args, seconds) => {
    const { one, items } = await call(name, args);
    expect(items).toMatchObject([{ kind: 'sleep' }]);
    const [{ expireTime = 0 } = {}] = items;
    expect(Math.abs(expireTime - Date.now() / 1000 - seconds)).toBeLessThan(600);
    await one.close();
  });

  test('sleep_until and a schedule go by the same clock, also in an hour that comes twice', async () => {
    // The last Sunday of October: 02:30 comes twice in Berlin, and PostgreSQL would take the second one.
    const year = new Date(Date.now() - 300 * 86_400_000).getUTCFullYear() + 1;
    const end = new Date(Date.UTC(year, 9, 31));
    const time = `${year}-10-${31 - end.getUTCDay()}T02:30`;
    const { one, items } = await call('sleep_until', { time, timeZone: 'Europe/Berlin' });
    expect(new Date((items[0]?.expireTime ?? 0) * 1000).toISOString()).toBe(`${time.slice(0, 11)}00:30:00.000Z`);
    const due = getNextTime({ type: 'once', onceAt: time, timezone: 'Europe/Berlin' }, new Date(0));
    expect(due?.getTime()).toBe((items[0]?.expireTime ?? 0) * 1000);
    await one.close();
  });

  test('sleep_for wakes by itself, and says so; a wrong time zone is the answer', async () => {
    const { one } = await call('sleep_for', { seconds: 0.5 });
    await expect.poll(async () => (await one.get(`${USERS}/t/sessions/s`)).text).toContain('"done"');
    expect((await one.get(`${USERS}/t/sessions/s`)).text).toContain('"woken": "on time"');
    await one.close();
    const wrong = await call('sleep_until', { time: '2027-01-01T08:00', timeZone: 'Mars/Base' });
    expect(wrong.events).toContain('is no known time zone');
    await wrong.one.close();
  });

  test('ask_person has a form, which its answer has to fit', async () => {
    const schema = { type: 'object', properties: { size: { enum: ['S', 'L'] } }, required: ['size'] };
    const { one, items } = await call('ask_person', { question: 'Which size?', schema });
    expect(items).toMatchObject([{ kind: 'question', form: { hint: 'Which size?', schema } }]);
    const answer = (given?: object) => one.send('PATCH', `/tasks/${items[0]?.id}`, { action: 'answer', answer: given });
    expect((await answer({ size: 'M' })).status).toBe(400);
    expect((await answer()).status).toBe(400);
    expect((await answer({ size: 'L' })).status).toBe(200);
    await one.close();
  });
});
