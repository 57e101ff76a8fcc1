import { randomUUID } from 'node:crypto';
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import type { Model } from '../../src/agent/definition/model.ts';
import type { Tool } from '../../src/agent/definition/tool.ts';
import type { FunctionCall, Part } from '../../src/core/content.ts';
import { UnknownOutcomeError } from '../../src/core/errors.ts';
import type { Event } from '../../src/core/event.ts';
import { hostAgent } from '../support/agents.ts';
import { client, startApp, startOn } from '../support/app.ts';
import { openLive } from '../support/live-client.ts';
import { startTokenIssuer } from '../support/token-issuer.ts';
import { staged, stagedSql } from '../support/staged.ts';

/**
 * A yes counts only where it closes an open task of its session, by the rules of that task. The model calls the tools
 * that a message names; then it repeats the responses that it was told.
 */

const CONFIRM = 'adk_request_confirmation';
const FOUR_EYES = { groups: ['finance'], approvals: 2, excludesRequester: true };

const told: string[] = [];
const model: Model = {
  provider: 'scripted',
  // eslint-disable-next-line require-yield
  async *generate({ contents, tools: offered }) {
    const last = contents.at(-1)?.parts ?? [];
    const responses = last.flatMap(({ functionResponse }) => functionResponse?.response ?? []);
    told.push(JSON.stringify(contents));
    const words =
      responses.length > 0
        ? []
        : (last
            .map(({ text }) => text ?? '')
            .join(' ')
            .split(/\s+/) ?? []);
    const calls = words.filter((name) => offered.some((tool) => tool.name === name));
    const parts: Part[] = calls.map((name) => ({ functionCall: { name, args: {} } }));
    return { content: { role: 'model', parts: parts.length > 0 ? parts : [{ text: JSON.stringify(responses) }] } };
  },
};

const ran: Record<string, number> = {};
const tool = (name: string, more: Partial<Tool>): Tool => ({
  name,
  description: 'Counts.',
  parameters: { type: 'object', properties: {} },
  needsConfirmation: false,
  run: async () => ({ ran: (ran[name] = (ran[name] ?? 0) + 1) }),
  ...more,
});
const waiting = (name: string, wait: Tool['wait']): Tool =>
  tool(name, { longRunning: true, effect: 'none', run: async () => undefined, ...(wait && { wait }) });
const tools: Tool[] = [
  tool('wire', { needsConfirmation: true, wait: FOUR_EYES }),
  tool('pay', { needsConfirmation: true }),
  tool('late', {
    needsConfirmation: true,
    wait: FOUR_EYES,
    onUnknown: 'ask',
    run: async () => {
      ran['late'] = (ran['late'] ?? 0) + 1;
      throw new UnknownOutcomeError('tool_failed', 'the bank did not answer in time.');
    },
  }),
  waiting('approve', { users: ['ann', 'bob'], approvals: 2, excludesRequester: true }),
  waiting('sign', { groups: ['finance'] }),
  waiting('team', { groups: ['finance'], approvals: 2 }),
  waiting('choose', undefined),
  waiting('release', { kind: 'signal', signal: 'released', users: ['ann'], excludesRequester: true }),
  waiting('deliver', { kind: 'signal', signal: 'delivered' }),
  tool('ticket', { longRunning: true, effect: 'none', run: async () => ({ ticket: 'open' }) }),
  waiting('slow', undefined),
];

type Headers = Record<string, string>;
const as: Record<'alice' | 'ann' | 'bob' | 'eve' | 'importer', Headers> = {
  alice: {},
  ann: {},
  bob: {},
  eve: {},
  importer: {},
};
const tokens = staged(() => startTokenIssuer());
const app = staged(() =>
  startApp(
    { ...tokens.environment, JWT_GROUPS_CLAIM: 'groups', EVALS: 'true', DOORS: 'openai' },
    { agents: hostAgent(model, tools) },
  ),
);
const sql = stagedSql(app);
beforeAll(async () => {
  as.alice = await tokens.headersOf('alice', { groups: ['staff'] });
  as.ann = await tokens.headersOf('ann', { groups: ['finance', 'staff'] });
  as.bob = await tokens.headersOf('bob', { groups: ['finance'] });
  as.eve = await tokens.headersOf('eve', { groups: ['staff'] });
  as.importer = await tokens.headersOf('alice', { scopes: 'invoke read write import develop admin' });
});

const USER = '/apps/harness_agent/users/alice';
const at = (sessionId: string) => `${USER}/sessions/${sessionId}`;
const run = (sessionId: string, part: Part, more = {}, headers = as.alice) =>
  app.post(
    '/run',
    { appName: 'harness_agent', userId: 'alice', sessionId, newMessage: { role: 'user', parts: [part] }, ...more },
    headers,
  );
const reply = ({ id, name }: FunctionCall, response: object): Part =>
  ({ functionResponse: { id, name, response } }) as Part;
const YES = { confirmed: true };
const eventsOf = async (sessionId: string) =>
  ((await app.get(at(sessionId), as.alice)).body as { events: Event[] }).events;
const countOf = (name: string) => ran[name] ?? 0;

let sessions = 0;
interface Asked {
  sessionId: string;
  invocationId: string;
  /** The call that the answer goes to. */
  call: FunctionCall;
  task: string;
}
/** Has a tool called in a new session of alice. */
async function ask(text: string): Promise<Asked> {
  const sessionId = `s${++sessions}`;
  await app.post(`${USER}/sessions`, { sessionId }, as.alice);
  const { body } = await run(sessionId, { text });
  const events = body as Event[];
  const open = new Set(events.flatMap(({ longRunningToolIds: ids }) => ids ?? []));
  const calls = events.flatMap(
    ({ content }) => content?.parts?.flatMap(({ functionCall }) => functionCall ?? []) ?? [],
  );
  const call = calls.findLast(({ id }) => open.has(id ?? '')) ?? {};
  const { rows } = await sql.query<{ id: string }>('select id from tasks where session_id = $1 and call_id = $2', [
    sessionId,
    call.id,
  ]);
  return { sessionId, invocationId: events[0]?.invocationId ?? '', call, task: rows[0]?.id ?? '' };
}
const change = (id: string, body: object, headers: Headers) => app.send('PATCH', `/tasks/${id}`, body, headers);
const stateOf = async (id: string) =>
  (
    await sql.query<{ state: string; via: string; by: string }>(
      'select state, decided_via as via, decided_by as by from tasks where id = $1',
      [id],
    )
  ).rows[0];
const whenEnded = async ({ sessionId, invocationId }: Asked) => {
  const find = () =>
    sql.query<{ status: string }>('select status from invocations where session_id = $1 and id = $2', [
      sessionId,
      invocationId,
    ]);
  await expect.poll(async () => (await find()).rows[0]?.status).toBe('succeeded');
};
/** What is stored of a session. */
const stored = async (sessionId: string) => {
  const { rows } = await sql.query(
    `select (select count(*)::int from events where session_id = $1) as events,
            (select count(*)::int from invocations where session_id = $1) as invocations,
            (select json_agg(t) from tasks t where session_id = $1) as tasks,
            (select json_agg(c) from tool_calls c where session_id = $1) as calls,
            (select count(*)::int from signals where session_id = $1) as signals`,
    [sessionId],
  );
  return rows[0] as object;
};
/** Expects that a request is refused, in words like these, and that nothing is written in the session. */
async function expectRefused(
  sessionId: string,
  send: () => Promise<{ status: number; text: string }>,
  status: number | number[],
  words: RegExp | string = '',
) {
  const before = await stored(sessionId);
  const answer = await send();
  expect({ status: answer.status, text: answer.text }).toEqual({
    status: expect.toSatisfy((each: number) => [status].flat().includes(each)) as number,
    text: expect.stringMatching(words) as string,
  });
  expect(await stored(sessionId)).toEqual(before);
}

describe('a copy of a session', () => {
  test.each(['while it is open', 'after a no', 'from the event behind the question'])(
    'holds no permission: a fork, %s',
    async (when) => {
      const asked = await ask('wire');
      const count = (await eventsOf(asked.sessionId)).length;
      if (when === 'after a no') {
        expect((await change(asked.task, { action: 'reject' }, as.ann)).status).toBe(200);
        await whenEnded(asked);
      }
      const atSequence = { 'while it is open': undefined, 'after a no': count - 1 }[when] ?? count;
      const fork = `fork-${asked.sessionId}`;
      const made = await app.post(`${at(asked.sessionId)}/fork`, { sessionId: fork, atSequence }, as.alice);
      expect(made.status).toBe(200);
      const words = `it was asked in session ${asked.sessionId}`;
      await expectRefused(fork, () => run(fork, reply(asked.call, YES)), 409, words);
      await expectRefused(fork, () => run(fork, reply({ ...asked.call, name: 'choose' }, YES)), 409, words);
      const event = { author: 'user', content: { role: 'user', parts: [reply(asked.call, YES)] } };
      await expectRefused(fork, () => app.post(`${at(fork)}/events`, event, as.alice), 409, words);
      // An invocation of its own, which is gone on with, makes no difference.
      const { body } = await run(fork, { text: 'hello' });
      const [{ invocationId } = {}] = body as Event[];
      await expectRefused(fork, () => run(fork, reply(asked.call, YES), { invocationId }), 409, words);
      expect((await run(fork, { text: 'and now?' })).status).toBe(200);
      expect(countOf('wire')).toBe(0);
      if (when === 'after a no') return;
      // Who has to say yes says it where it was asked.
      for (const who of [as.ann, as.bob])
        expect((await change(asked.task, { action: 'answer' }, who)).status).toBe(200);
      await whenEnded(asked);
      expect(countOf('wire')).toBe(1);
      ran['wire'] = 0;
    },
  );

  test('a fork of a fork names the session where it was asked', async () => {
    const asked = await ask('wire');
    await app.post(`${at(asked.sessionId)}/fork`, { sessionId: 'fork-1' }, as.alice);
    await app.post(`${at('fork-1')}/fork`, { sessionId: 'fork-2' }, as.alice);
    await expectRefused(
      'fork-2',
      () => run('fork-2', reply(asked.call, YES)),
      409,
      `asked in session ${asked.sessionId}`,
    );
    expect(countOf('wire')).toBe(0);
  });

  test.each(['approve', 'sign', 'choose', 'ticket'])('a fork takes no answer to the call of %s', async (name) => {
    const asked = await ask(name);
    const fork = `fork-${asked.sessionId}`;
    await app.post(`${at(asked.sessionId)}/fork`, { sessionId: fork }, as.alice);
    const before = told.length;
    const words = `asked in session ${asked.sessionId}`;
    await expectRefused(fork, () => run(fork, reply(asked.call, { approved: true })), 409, words);
    // Without an id the model would take it for the answer to the first open call of that name.
    await expectRefused(fork, () => run(fork, reply({ name }, { approved: true })), 409);
    expect(told).toHaveLength(before);
    expect((await run(fork, { text: 'go on' })).status).toBe(200);
    expect(told.at(-1)).not.toContain('approved');
  });

  test('a fork of one that was cancelled takes none either', async () => {
    const asked = await ask('approve');
    const cancel = await app.post(`${at(asked.sessionId)}/invocations/${asked.invocationId}/cancel`, {}, as.alice);
    expect(cancel.status).toBe(200);
    const fork = `fork-${asked.sessionId}`;
    await app.post(`${at(asked.sessionId)}/fork`, { sessionId: fork }, as.alice);
    for (const id of [asked.sessionId, fork])
      await expectRefused(id, () => run(id, reply(asked.call, { approved: true })), 409);
  });

  test('a branch of the OpenAI door', async () => {
    const invoker = await tokens.headersOf('alice', { scopes: 'invoke' });
    const create = async (body: object) =>
      (await app.post('/v1/responses', { model: 'harness_agent', ...body }, invoker)).body as {
        id: string;
        output: { id: string }[];
        conversation: { id: string };
      };
    const first = await create({ input: 'wire' });
    const { rows } = await sql.query<{ session_id: string; call_id: string }>(
      'select session_id, call_id from tasks order by create_time desc limit 1',
    );
    const { session_id: original = '', call_id: id } = rows[0] ?? {};
    await run(original, { text: 'hello' }, {}, invoker);
    await create({ previous_response_id: first.id, input: 'x' });
    const branches = await sql.query<{ id: string }>('select id from sessions where forked_from_id = $1', [original]);
    const [{ id: branch } = { id: '' }] = branches.rows;
    expect(branch).not.toBe('');
    await expectRefused(branch, () => run(branch, reply({ id, name: CONFIRM }, YES), {}, invoker), 409, original);
    expect(countOf('wire')).toBe(0);
  });

  test('the history of an evaluation case', async () => {
    const asked = await ask('wire');
    const sequence = (await eventsOf(asked.sessionId)).length;
    const evalCase = {
      evalId: 'yes',
      conversation: [{ userContent: { role: 'user', parts: [reply(asked.call, YES)] } }],
      sessionInput: { appName: 'harness_agent', userId: 'alice', state: {}, sessionId: asked.sessionId, sequence },
    };
    const set = { evalSet: { eval_set_id: 'copies', eval_cases: [evalCase] } };
    expect((await app.post('/dev/apps/harness_agent/eval-sets', set, as.importer)).status).toBe(200);
    const metrics = [{ metricName: 'tool_trajectory_avg_score', threshold: 1 }];
    const begun = await app.post(
      '/dev/apps/harness_agent/eval-runs',
      { evalSetId: 'copies', evalMetrics: metrics },
      as.importer,
    );
    const { runId } = begun.body as { runId: string };
    const path = `/dev/apps/harness_agent/eval-runs/${runId}`;
    await app.get(`${path}/stream`, as.importer);
    const { body } = await app.get(path, as.importer);
    expect(body).toMatchObject({ status: 'done', counts: { errors: 1 } });
    expect(countOf('wire')).toBe(0);
  });

  test('what an import brings, also into the session itself', async () => {
    const asked = await ask('wire');
    const events = await eventsOf(asked.sessionId);
    // It is for keys, and for who needs none.
    const operator = await startOn(app.databaseUrl, {}, { agents: hostAgent(model, tools) });
    onTestFinished(() => operator.close());
    const { get, post } = client(operator.url);
    const lines = (await get(`${USER}/export`)).text.split('\n');
    const own = lines.filter((line) => line.includes(`"${asked.sessionId}"`));
    const bring = (some: string[]) =>
      post(`${USER}/import`, some.join('\n'), { 'content-type': 'application/x-ndjson' });
    // As another session: with tasks that say that it was done.
    const copied = own.map((line) =>
      line
        .replaceAll(`"${asked.sessionId}"`, '"imported"')
        .replace(`"id":"${asked.task}"`, '"id":"another"')
        .replace('"state":"open"', '"state":"done","decided_via":"tasks","answer":{"confirmed":true}'),
    );
    expect(await bring(copied)).toMatchObject({ status: 200, body: { present: 0 } });
    await expectRefused('imported', () => run('imported', reply(asked.call, YES)), 409);
    // Into the session: an answer, and a task that says that it was given.
    const parts = [reply(asked.call, YES)];
    const key = { app_name: 'harness_agent', user_id: 'alice', session_id: asked.sessionId };
    const payload = {
      id: 'said',
      invocationId: asked.invocationId,
      author: 'user',
      timestamp: 1,
      content: { role: 'user', parts },
    };
    const time = '2030-01-01T00:00:00Z';
    const event = {
      ...key,
      sequence: events.length + 1,
      id: 'said',
      invocation_id: asked.invocationId,
      author: 'user',
      event_time: time,
      payload,
      bytes: 1,
    };
    const task = {
      ...key,
      id: 'forged',
      invocation_id: asked.invocationId,
      call_id: asked.call.id,
      call_name: CONFIRM,
      kind: 'confirmation',
      state: 'done',
      form: { tool: 'wire' },
      rules: {},
      approvals: [],
      comments: [],
      answer: YES,
      decided_by: 'ann',
      decided_via: 'tasks',
      decide_time: time,
      create_time: time,
      version: 1,
      reminders: 0,
    };
    const forged = [
      { table: 'events', row: event },
      { table: 'tasks', row: task },
    ].map((line) => JSON.stringify(line));
    expect((await bring(forged)).status).toBe(200);
    const resumed = { invocationId: asked.invocationId, newMessage: undefined };
    await run(asked.sessionId, { text: '' }, resumed);
    await run(asked.sessionId, reply(asked.call, YES), { invocationId: asked.invocationId });
    expect(countOf('wire')).toBe(0);
  });
});

describe('an answer without a task', () => {
  test('is refused, and the model is not asked', async () => {
    const { sessionId } = await ask('hello');
    const before = told.length;
    for (const call of [
      { id: 'none', name: 'choose' },
      { id: 'none', name: CONFIRM },
      { id: 'none', name: '' },
    ])
      await expectRefused(sessionId, () => run(sessionId, reply(call, YES)), 409, /none/);
    await expectRefused(sessionId, () => run(sessionId, reply({ name: 'choose' }, YES)), 409);
    expect(told).toHaveLength(before);
    const path = `${at(sessionId)}/invocations`;
    const newMessage = { role: 'user', parts: [reply({ id: 'none', name: 'choose' }, YES)] };
    await expectRefused(sessionId, () => app.post(path, { newMessage }, as.alice), 409, /none/);
  });

  test('beside one that has a task takes that one along: nothing is answered', async () => {
    const asked = await ask('choose');
    const parts = [reply(asked.call, { n: 1 }), reply({ id: 'none', name: CONFIRM }, YES)];
    await expectRefused(asked.sessionId, () => run(asked.sessionId, {}, { newMessage: { role: 'user', parts } }), 409);
    expect((await run(asked.sessionId, reply(asked.call, { n: 1 }))).status).toBe(200);
  });

  test('of a call that the runtime has answered is refused: no response of a tool is replaced', async () => {
    const { sessionId } = await ask('hello');
    await run(sessionId, { text: 'pay' });
    const calls = (await eventsOf(sessionId)).flatMap(
      ({ content }) => content?.parts?.flatMap(({ functionCall }) => functionCall ?? []) ?? [],
    );
    // Before its confirmation the call has a provisional response.
    const call = calls.find(({ name }) => name === 'pay') ?? {};
    await expectRefused(sessionId, () => run(sessionId, reply(call, { paid: true })), 409);
    expect(told.join('')).not.toContain('"paid":true');
  });

  test('a yes names its call by its name, too', async () => {
    const asked = await ask('pay');
    const before = countOf('pay');
    await expectRefused(asked.sessionId, () => run(asked.sessionId, reply({ ...asked.call, name: 'pay' }, YES)), 409);
    const other = await ask('choose');
    await expectRefused(other.sessionId, () => run(other.sessionId, reply({ ...other.call, name: CONFIRM }, YES)), 409);
    expect(countOf('pay')).toBe(before);
  });

  test('of another invocation than the one that the request goes on with is refused', async () => {
    const asked = await ask('pay');
    const { body } = await run(asked.sessionId, { text: 'hello' });
    const [{ invocationId } = {}] = body as Event[];
    const before = countOf('pay');
    await expectRefused(asked.sessionId, () => run(asked.sessionId, reply(asked.call, YES), { invocationId }), 409);
    expect((await run(asked.sessionId, reply(asked.call, YES))).status).toBe(200);
    expect(countOf('pay')).toBe(before + 1);
  });

  test('of one that waits in the queue ends it, once, with its reason', async () => {
    const asked = await ask('choose');
    // What waits in the background is asked when its turn comes.
    await sql.query(`update sessions set lease_token = $2 where id = $1`, [asked.sessionId, randomUUID()]);
    await sql.query(
      `insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, start_time)
       select app_name, user_id, id, 'holder', 'running', lease_token, now() + interval '5 minutes', now()
       from sessions where id = $1`,
      [asked.sessionId],
    );
    const newMessage = { role: 'user', parts: [reply({ id: 'none', name: 'choose' }, { n: 1 })] };
    const started = await app.post(`${at(asked.sessionId)}/invocations`, { newMessage }, as.alice);
    expect(started.status).toBe(200);
    await sql.query(`update sessions set lease_token = null where id = $1`, [asked.sessionId]);
    await sql.query(`delete from invocations where id = 'holder'`);
    const find = async () =>
      (
        await sql.query<{ status: string; error_code: string }>(
          'select status, error_code from invocations where session_id = $1 and id <> $2',
          [asked.sessionId, asked.invocationId],
        )
      ).rows;
    await expect.poll(find).toEqual([{ status: 'failed', error_code: 'answer_refused' }]);
  });
});

describe('what goes on to work', () => {
  test('a yes of the user, with and without the invocation', async () => {
    for (const withId of [true, false]) {
      const asked = await ask('pay');
      const before = countOf('pay');
      const more = withId ? { invocationId: asked.invocationId } : {};
      expect((await run(asked.sessionId, reply(asked.call, YES), more)).status).toBe(200);
      expect(countOf('pay')).toBe(before + 1);
    }
  });

  test('a yes as an event, and then the invocation', async () => {
    const asked = await ask('pay');
    const before = countOf('pay');
    const event = { author: 'user', content: { role: 'user', parts: [reply(asked.call, YES)] } };
    expect((await app.post(`${at(asked.sessionId)}/events`, event, as.alice)).status).toBe(200);
    const resumed = { invocationId: asked.invocationId, newMessage: undefined };
    expect((await run(asked.sessionId, {}, resumed)).status).toBe(200);
    expect(countOf('pay')).toBe(before + 1);
  });

  test('a choice of the user', async () => {
    const asked = await ask('choose');
    expect((await run(asked.sessionId, reply(asked.call, { chosen: 'a' }))).text).toContain('chosen');
  });

  test('the later answer to a call whose tool has said that it works on it', async () => {
    const asked = await ask('ticket');
    expect((await run(asked.sessionId, reply(asked.call, { ticket: 'closed' }))).status).toBe(200);
    expect(told.at(-1)).toContain('closed');
  });

  test('answers of the tools of a client, by /run too', async () => {
    const create = async (body: object) =>
      (await app.post('/v1/responses', { model: 'harness_agent', ...body }, as.alice)).body as {
        id: string;
        output: { call_id: string }[];
      };
    const own = [{ type: 'function', name: 'weather', parameters: { type: 'object' }, strict: false }];
    await create({ input: 'weather', tools: own });
    const { rows } = await sql.query<{ session_id: string; call: FunctionCall }>(
      `select session_id, payload #> '{content,parts,0,functionCall}' as call from events
       where payload #>> '{content,parts,0,functionCall,name}' = 'weather'`,
    );
    const [{ session_id: sessionId, call } = { session_id: '', call: {} }] = rows;
    expect((await run(sessionId, reply(call, { sun: 1 }))).text).toContain('sun');
  });

  test('calls that a client brings with its answers', async () => {
    const messages = [
      { role: 'user', content: 'weather' },
      {
        role: 'assistant',
        content: null,
        tool_calls: [{ id: 'c1', type: 'function', function: { name: 'weather', arguments: '{}' } }],
      },
      { role: 'tool', tool_call_id: 'c1', content: 'sunny' },
    ];
    const answer = await app.post('/v1/chat/completions', { model: 'harness_agent', messages }, as.alice);
    expect(answer.text).toContain('sunny');
  });
});

describe('a task with rules', () => {
  test.each(['approve', 'sign', 'team', 'release'])('%s has no public address', async (name) => {
    const asked = await ask(name);
    for (const who of [as.ann, as.alice])
      await expectRefused(asked.sessionId, () => app.post(`/tasks/${asked.task}/address`, {}, who), [403, 409]);
    expect((await stateOf(asked.task))?.state).toBe('open');
  });

  test('loses its address where it is assigned later', async () => {
    const asked = await ask('choose');
    const { path } = (await app.post(`/tasks/${asked.task}/address`, {}, as.alice)).body as { path: string };
    await sql.query(`update tasks set assigned_users = '{ann}' where id = $1`, [asked.task]);
    await expectRefused(asked.sessionId, () => app.post(path, { n: 1 }), [403, 409]);
    await change(asked.task, { action: 'assign', users: ['ann'] }, as.ann);
    await expectRefused(asked.sessionId, () => app.post(path, { n: 1 }), 404);
    expect((await stateOf(asked.task))?.state).toBe('open');
  });

  test('a signal is asked who sends it, also one that is kept', async () => {
    const asked = await ask('release');
    const path = (id: string) => `${at(id)}/signals/released`;
    const send = () => app.post(path(asked.sessionId), { ok: true }, as.alice);
    await expectRefused(asked.sessionId, send, 403, 'Others have to answer task');
    const early = `s${++sessions}`;
    await app.post(`${USER}/sessions`, { sessionId: early }, as.alice);
    expect((await app.post(path(early), { ok: true }, as.alice)).body).toEqual({ kept: true });
    await run(early, { text: 'release' });
    // One that is not for it is dropped, as one that does not fit.
    const kept = () => sql.query('select id from signals where session_id = $1', [early]);
    await expect.poll(async () => (await kept()).rows).toEqual([]);
    // Nor is the task looked at again and again.
    const waits = () => sql.query('select state, due_time from tasks where session_id = $1', [early]);
    await expect.poll(async () => (await waits()).rows).toEqual([{ state: 'open', due_time: null }]);
    expect((await change(asked.task, { action: 'answer', answer: { ok: true } }, as.ann)).status).toBe(200);
    await whenEnded(asked);
  });

  test('a signal of the user is taken where the user may answer', async () => {
    const asked = await ask('deliver');
    expect((await app.post(`${at(asked.sessionId)}/signals/delivered`, { ok: true }, as.alice)).status).toBe(200);
    await whenEnded(asked);
    expect(await stateOf(asked.task)).toEqual({ state: 'done', via: 'signal', by: 'alice' });
  });

  test('a user narrows who may answer, and never widens it', async () => {
    const asked = await ask('team');
    const assign = (body: object, who: Headers) => change(asked.task, { action: 'assign', ...body }, who);
    for (const body of [
      { groups: ['staff'] },
      { groups: ['finance', 'staff'] },
      { users: ['eve'] },
      { users: ['bob'] },
    ])
      await expectRefused(asked.sessionId, () => assign(body, as.ann), 403);
    expect((await assign({ users: ['ann'], groups: ['finance'] }, as.ann)).status).toBe(200);
    expect((await assign({ users: ['ann'] }, as.ann)).status).toBe(200);
    // What was given up does not come back.
    await expectRefused(asked.sessionId, () => assign({ users: ['ann'], groups: ['finance'] }, as.ann), 403);
    expect((await change(asked.task, { action: 'answer', answer: {} }, as.bob)).status).toBe(404);
    const own = await ask('choose');
    await expectRefused(own.sessionId, () => change(own.task, { action: 'assign', groups: ['staff'] }, as.alice), 403);
  });
});

describe('a settlement', () => {
  /** A call that may have acted, which two of others have approved. */
  async function askLate() {
    const asked = await ask('late');
    for (const who of [as.ann, as.bob]) expect((await change(asked.task, { action: 'answer' }, who)).status).toBe(200);
    const find = () =>
      sql.query<{ id: string }>(`select id from tasks where session_id = $1 and kind = 'effect' and state = 'open'`, [
        asked.sessionId,
      ]);
    await expect.poll(async () => (await find()).rows.length).toBe(1);
    const { rows } = await sql.query<{ call_id: string }>('select call_id from tool_calls where session_id = $1', [
      asked.sessionId,
    ]);
    return { ...asked, task: (await find()).rows[0]?.id ?? '', settled: rows[0]?.call_id ?? '' };
  }

  test('of one who may not answer the task has written nothing', async () => {
    const asked = await askLate();
    const path = `${at(asked.sessionId)}/tool-calls/${asked.settled}/settle`;
    for (const outcome of ['done', 'not_done', 'run_again']) {
      const body = { outcome, ...(outcome === 'done' && { response: { ok: 'made up' } }) };
      await expectRefused(asked.sessionId, () => app.post(path, body, as.alice), 403, 'Others have to answer task');
    }
    expect((await app.get(`${USER}/tool-calls`, as.alice)).text).toContain(asked.settled);
    expect((await change(asked.task, { action: 'reject' }, as.ann)).status).toBe(200);
    await whenEnded(asked);
    expect(JSON.stringify(await eventsOf(asked.sessionId))).not.toContain('made up');
  });
});

describe('a live session', () => {
  test('hears why an answer is refused, and goes on', async () => {
    const asked = await ask('wire');
    const query = { app_name: 'harness_agent', user_id: 'alice', session_id: asked.sessionId, modalities: 'TEXT' };
    const live = await openLive(app, query, as.alice);
    live.send({ content: { role: 'user', parts: [reply(asked.call, YES)] } });
    const [frame] = await live.until(({ error }) => error !== undefined);
    expect(frame?.error).toBe(`Others have to answer task ${asked.task}.`);
    live.send({ content: { role: 'user', parts: [{ text: 'hello' }] } });
    await live.until(({ turnComplete }) => turnComplete === true);
    expect(countOf('wire')).toBe(0);
  });
});

describe('at the same moment', () => {
  test('of many answers through a fork and where it was asked one counts, and the tool runs once', async () => {
    const asked = await ask('pay');
    const before = countOf('pay');
    const fork = (n: number) => `race-${asked.sessionId}-${n}`;
    const results = await Promise.all(
      Array.from({ length: 24 }, async (_, n) => {
        if (n % 6 > 0) return (await run(asked.sessionId, reply(asked.call, YES))).status;
        const made = await app.post(`${at(asked.sessionId)}/fork`, { sessionId: fork(n) }, as.alice);
        expect(made.status).toBe(200);
        return -(await run(fork(n), reply(asked.call, YES))).status;
      }),
    );
    expect(results.filter((status) => status === 200)).toHaveLength(1);
    expect(results.filter((status) => status === -409)).toHaveLength(4);
    expect(countOf('pay')).toBe(before + 1);
  });
});
