import { existsSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Answer } from '../support/app.ts';
import { getFunctionCalls, getFunctionResponses, type JsonObject } from '../../src/core/content.ts';
import type { Event } from '../../src/core/event.ts';
import { isEnd, openLive } from '../support/live-client.ts';
import { APP, eventually, listPath, report, sessionPath, stage, whenAtRest } from './support/faults.ts';
import { findViolations } from './support/invariants.ts';
import { answerFor, type Message, promptFor, type ScriptedCall } from './support/model-server.ts';
import { paced } from './support/pace.ts';
import type { Message as WireMessage } from './support/postgres-proxy.ts';
import { type ServerProcess, startServer, tryTo } from './support/server-process.ts';
import { holdAt, type Point, startVictim, type Stop, stopAt } from './support/stops.ts';
import { MINUTE } from '../support/patience.ts';

/**
 * Work that goes on: a process is killed before, and after, each message to PostgreSQL of an invocation with tools,
 * a transfer, agents side by side and a confirmation. Another process takes it up, and it ends as if undisturbed.
 */

const LEASE_MS = paced(3_000);
/** The lease, and the work of all that were killed at once, on a busy machine. */
const ENDED_WITHIN_MS = 2 * MINUTE;
/** Points that one kill ends: each holds a connection. */
const POINTS_PER_KILL = 60;
const UNKNOWN = /^It is not known whether this call took effect/;

const agents = mkdtempSync(join(tmpdir(), 'agent-runtime-goes-on-'));
/** One line for each run of a tool: its name and its session. */
const runs = join(agents, 'runs');

function writeAgent(name: string, source: string): void {
  mkdirSync(join(agents, name), { recursive: true });
  writeFileSync(join(agents, name, 'agent.ts'), source);
}

const tool = (name: string, effect: string, more = '') => `{
  name: '${name}', description: 'Counts.', effect: '${effect}', needsConfirmation: ${name === 'send'},
  parameters: { type: 'object', properties: {}, additionalProperties: false },
  async run(_, { session }) {
    appendFileSync(${JSON.stringify(runs)}, '${name} ' + session.sessionId + '\\n');
    ${more}
    return { done: '${name}' };
  } }`;

const llm = (name: string, tools: string, more = '') =>
  `{ name: '${name}', instruction: 'You are ${name}.', tools: [${tools}], ${more} }`;

mkdirSync(join(agents, APP, 'migrations'), { recursive: true });
writeFileSync(join(agents, APP, 'migrations', '0001.sql'), 'create table bookings (session text, operation text);');
writeAgent(
  APP,
  `import { appendFileSync } from 'node:fs';
  const lookup = ${tool('lookup', 'none')};
  const charge = ${tool('charge', 'once')};
  const send = ${tool('send', 'once')};
  const book = { name: 'book', description: 'Books.', transactional: true, needsConfirmation: false,
    parameters: { type: 'object', properties: {}, additionalProperties: false },
    run: (_, { sql, session, operationId }) =>
      sql('insert into bookings values ($1, $2) returning 1 as booked', [session.sessionId, operationId]) };
  export const agent = { kind: 'sequential', subAgents: [
    ${llm('buyer', 'lookup, charge, book', `subAgents: [${llm('clerk', 'lookup')}], outputKey: 'bought'`)},
    { name: 'both', kind: 'parallel', subAgents: [${llm('left', 'lookup')}, ${llm('right', "'write_state'")}] },
    ${llm('closer', 'send')},
  ] };`,
);

/** What each agent does, by the answers of tools that it has. */
function script(messages: Message[], { id }: { id: string }): string | ScriptedCall[] {
  const [, name = ''] = /You are (\w+)\./.exec(JSON.stringify(messages[0]?.content)) ?? [];
  const done = messages.filter(({ role }) => role === 'tool').length;
  const calls = (...names: string[]) => names.map((each) => ({ name: each, arguments: {} }));
  const first: Record<string, ScriptedCall[]> = {
    buyer: calls('lookup', 'charge', 'book'),
    clerk: calls('lookup'),
    left: calls('lookup'),
    right: [{ name: 'write_state', arguments: { key: 'right', value: 1 } }],
    closer: calls('send'),
    killer: calls('die'),
    waiter: calls('wait'),
  };
  if (done === 0) return first[name] ?? answerFor(id);
  if (name === 'buyer' && done === 3) return [{ name: 'transfer_to_agent', arguments: { agent_name: 'clerk' } }];
  return name === 'closer' ? answerFor(id) : `${name} is done`;
}

const here = stage(script);
let survivor: ServerProcess;
const settings = (more = {}) =>
  here.environment({
    AGENTS_DIR: agents,
    TOOLS: '',
    SESSION_LEASE_MS: String(LEASE_MS),
    DATABASE_POOL_SIZE: '128',
    // All points go on at once: they wait half of it for one of the few connections of the tools, and the first ones
    // are held within their transaction until all have come to their place.
    DATABASE_STATEMENT_TIMEOUT_MS: String(ENDED_WITHIN_MS),
    ...more,
  });
beforeAll(async () => {
  // It makes the tables of the tools.
  const migrates = { DATABASE_MIGRATION_URL: here.databaseUrl, DATABASE_POOL_SIZE: '20' };
  survivor = await startServer(here.servingUrl, settings(migrates));
});
afterAll(async () => {
  await survivor.kill();
});

const runsOf = (name: string, { sessionId }: Point) =>
  existsSync(runs) ? readFileSync(runs, 'utf8').split(`${name} ${sessionId}\n`).length - 1 : 0;

const createSession = ({ userId, sessionId }: Point, appName = APP) =>
  survivor.post(listPath(userId).replace(APP, appName), { sessionId });

/** The body of a start in the background, whose path names the rest. */
const toMessage = ({ id }: Point) => ({ newMessage: { role: 'user', parts: [{ text: promptFor({ id }) }] } });
const toBody = (point: Point, appName = APP) => {
  const { userId, sessionId } = point;
  return { appName, userId, sessionId, ...toMessage(point) };
};

const ask = (at: ServerProcess, point: Point) =>
  at.post('/run', toBody(point), { 'idempotency-key': `ask-${point.id}` });

const eventsOf = async ({ userId, sessionId }: Point, appName = APP): Promise<Event[]> =>
  ((await survivor.get(sessionPath(userId, sessionId).replace(APP, appName))).body as { events: Event[] }).events;

const bookingsOf = async ({ sessionId }: Point) =>
  (await here.sql.query('select from agent_tools.bookings where session = $1', [sessionId])).rowCount;

/** The response of the tool whose rows are committed with it. */
const bookedSay = async (point: Point) => {
  const responses = (await eventsOf(point)).flatMap(({ content }) => getFunctionResponses(content));
  return JSON.stringify(responses.find(({ name }) => name === 'book')?.response);
};

/** The question of the last agent, and the answer to it. */
async function toDecision(point: Point) {
  const events = await eventsOf(point);
  const asked = events.find(({ longRunningToolIds }) => longRunningToolIds?.length);
  const [call] = getFunctionCalls(asked?.content);
  const functionResponse = { id: call?.id, name: call?.name, response: { confirmed: true } };
  const isSaid = events.filter(({ author }) => author === 'user').length > 1;
  return { asked, isSaid, newMessage: { role: 'user', parts: [{ functionResponse }] } };
}

async function confirm(at: ServerProcess, point: Point) {
  const { asked, newMessage } = await toDecision(point);
  const body = { ...toBody(point), newMessage, invocationId: asked?.invocationId };
  return at.post('/run', body, { 'idempotency-key': `confirm-${point.id}` });
}

/** Answers in a turn of a live session; a client that comes back says it only where the session does not have it. */
async function confirmLive(at: ServerProcess, point: Point) {
  const { userId: user_id, sessionId: session_id } = point;
  const live = await openLive(at, { app_name: APP, user_id, session_id, modalities: 'TEXT' });
  const { isSaid, newMessage } = await toDecision(point);
  if (!isSaid) live.send({ content: newMessage });
  if (!isSaid) await Promise.race([live.until(isEnd), live.closed]);
  live.socket.terminate();
  return { status: 200, text: '' };
}

const rowsOf = async ({ userId }: Point) =>
  (
    await here.sql.query<JsonObject>(
      `select status, attempt, llm_calls, tool_calls, request::text, error_code, error_message,
         (select sum(b.invocations) from budget_uses b where b.user_id = $1) as begun
       from invocations where user_id = $1 order by create_time desc`,
      [userId],
    )
  ).rows;

const isUnknown = (response: unknown) => UNKNOWN.test((response as { error?: string }).error ?? '');

/** The events of a session by branch, without what differs between two runs: ids and times. */
function toComparable(events: Event[], { id }: Point): string[] {
  const ids = new Map<string, string>();
  const text = JSON.stringify(events, function (this: { name?: string }, name, value: unknown) {
    // The model's version is the signature of what it was asked, with the ids of this point.
    if (['timestamp', 'lastUpdateTime', 'modelVersion'].includes(name)) return undefined;
    const isId = (name === 'id' || name === 'invocationId') && typeof value === 'string';
    if (isId && !ids.has(value)) ids.set(value, `id-${name === 'id' ? '' : 'of-invocation'}`);
    if (name === 'response' && this.name !== 'book' && isUnknown(value)) return { done: this.name };
    return isId ? ids.get(value) : value;
  });
  const plain = [...ids].reduce((left, [real, shown]) => left.replaceAll(real, shown), text).replaceAll(id, 'ID');
  return (JSON.parse(plain) as Event[]).map((event) => `${event.branch ?? ''} ${JSON.stringify(event)}`).toSorted();
}

interface Case {
  name: string;
  prepare(point: Point): Promise<unknown>;
  run(at: ServerProcess, point: Point): Promise<Pick<Answer, 'status' | 'text'>>;
  status: string;
  once: string;
}

const cases: Case[] = [
  { name: 'asking', prepare: createSession, run: ask, status: 'paused', once: 'charge' },
  {
    name: 'confirmed',
    prepare: async (point) => {
      await createSession(point);
      await ask(survivor, point);
    },
    run: confirm,
    status: 'succeeded',
    once: 'send',
  },
  {
    name: 'confirmed in a live session',
    prepare: async (point) => {
      await createSession(point);
      await ask(survivor, point);
    },
    run: confirmLive,
    status: 'succeeded',
    once: 'send',
  },
];

describe('a process killed at any message to PostgreSQL', () => {
  test.each(cases)('$name: another one goes on, and it ends as if undisturbed', async (each) => {
    const { point: model } = stopAt(1);
    await each.prepare(model);
    await each.run(survivor, model);
    const [undisturbed, expected] = [toComparable(await eventsOf(model), model), here.model.requests(model.id)];
    const [counts] = await rowsOf(model);
    // What waits keeps its request: it may be woken.
    const request = each.status === 'paused' ? expect.any(String) : null;
    expect(counts).toMatchObject({ status: each.status, attempt: 1, request });

    const measured: Stop = { ...stopAt(1), message: Infinity };
    const stops: Stop[] = [];
    const wrong: string[] = [];
    const neverRan: string[] = [];
    let victim = await startVictim(here.servingUrl, settings());
    await each.prepare(measured.point);
    victim.proxy.rules = holdAt([measured]);
    await each.run(victim, measured.point);
    const all = Array.from({ length: 2 * measured.seen }, (_, index) => stopAt(index + 1));
    for (let first = 0; first < all.length; first += POINTS_PER_KILL) {
      const held = all.slice(first, first + POINTS_PER_KILL);
      await Promise.all(held.map(({ point }) => each.prepare(point)));
      victim.proxy.rules = holdAt(held);
      await Promise.all(
        held.map(({ point, reached }) => Promise.race([reached.promise, tryTo(each.run(victim, point))])),
      );
      await victim.kill();
      // As clients do: the same request again, which waits for the answer, or begins what was not begun.
      const answers = await Promise.all(held.map(({ point }) => each.run(survivor, point)));
      answers.forEach(({ status, text }, index) => {
        if (status !== 200) wrong.push(`${each.name}, point ${first + index}: ${status} ${text}`);
      });
      stops.push(...held);
      if (first + POINTS_PER_KILL < all.length) victim = await startVictim(here.servingUrl, settings());
    }
    const ms = await whenAtRest(here.sql, ENDED_WITHIN_MS);
    for (const { point, message, when } of stops) {
      const at = `${each.name}, ${when} message ${message}`;
      const [row] = await rowsOf(point);
      const note = (what: string) => wrong.push(`${at}: ${what}`);
      if (row?.['status'] !== each.status) note(`${String(row?.['status'])} ${String(row?.['error_message'])}`);
      if (JSON.stringify(toComparable(await eventsOf(point), point)) !== JSON.stringify(undisturbed))
        note('other events');
      // Of the agents that run side by side each may have been waiting for its answer.
      const asked = here.model.requests(point.id);
      if (asked > expected + 2) note(`${asked} model calls`);
      if (runsOf(each.once, point) > 1) note(`${each.once} ran ${runsOf(each.once, point)} times`);
      if (runsOf(each.once, point) === 0) neverRan.push(at);
      if ((await bookingsOf(point)) !== 1) note(`booked ${await bookingsOf(point)} times: ${await bookedSay(point)}`);
      if ((row?.['request'] === null) === (each.status === 'paused')) note('its request is not as after its end');
      if (row?.['tool_calls'] !== counts?.['tool_calls']) note(`${String(row?.['tool_calls'])} tool calls`);
      if (Number(row?.['begun']) !== Number(counts?.['begun'])) note(`counted ${String(row?.['begun'])} times`);
      const calls = Number(row?.['llm_calls']);
      if (calls < Number(counts?.['llm_calls']) || calls > asked) note(`${calls} model calls counted of ${asked}`);
    }
    // Between the entry that it begins and its run nobody can tell: of a call that was not begun it is never said.
    if (neverRan.length > 1) wrong.push(`${each.once} never ran: ${neverRan.join('; ')}`);
    const users = stops.map(({ point }) => point.userId);
    // A call that waits for a person has two responses: that it does, and its own.
    const found = await findViolations(here.sql, { users });
    wrong.push(...found.filter((text) => !each.name.startsWith('confirmed') || !text.includes('I5')));
    report(`goes on, ${each.name}`, `${stops.length} points, ${wrong.length} wrong, at rest after ${ms} ms`);
    expect(wrong).toEqual([]);
    expect(here.model.badHistories).toEqual([]);
  });
});

test('a transaction whose connection breaks: its rows are there if its answer says so, and only then', async () => {
  const victim = await startVictim(here.servingUrl, settings());
  const seen: string[] = [];
  for (const when of ['before', 'after'] as const) {
    // The statement, looks at what it may do and at the settings, the commit, and what clears the connection.
    for (const message of [1, 2, 3, 4, 5]) {
      const { point } = stopAt(1);
      await createSession(point);
      const inTools = new Set<number>();
      let [count, cut]: [number, WireMessage | undefined] = [0, undefined];
      victim.proxy.rules = {
        before(each) {
          if (each.has(point.id) && /bookings/.test(each.sql)) inTools.add(each.connection);
          if (!inTools.has(each.connection) || ++count !== message) return;
          cut = each;
          if (when === 'before') each.cut();
        },
        after(each) {
          if (each === cut && when === 'after') each.cut();
        },
      };
      await ask(victim, point);
      victim.proxy.rules = {};
      const booked = (await bookedSay(point)) === '{"result":[{"booked":1}]}';
      seen.push(`${when} ${message}: ${booked} ${await bookingsOf(point)}`);
    }
  }
  await victim.kill();
  expect(seen.filter((one) => !/: (?:false 0|true 1)$/.test(one))).toEqual([]);
  expect(seen).toContain('before 1: false 0');
  expect(seen.filter((one) => one.endsWith('true 1')).length).toBeGreaterThan(0);
});

describe('an invocation whose process died', () => {
  const elsewhere = mkdtempSync(join(tmpdir(), 'agent-runtime-goes-on-'));
  const write = (app: string, root: string) => {
    mkdirSync(join(elsewhere, app), { recursive: true });
    writeFileSync(
      join(elsewhere, app, 'agent.ts'),
      `import { appendFileSync } from 'node:fs';\nexport const agent = ${root};\n`,
    );
  };
  const alone = (agent: string) => `{ kind: 'sequential', subAgents: [${agent}] }`;
  const slow = alone(llm('waiter', tool('wait', 'none', 'await new Promise(() => undefined);')));
  /** A process with applications that the other ones do not have. */
  const startOther = (more = {}) => startServer(here.servingUrl, settings({ AGENTS_DIR: elsewhere, ...more }));
  const pathOf = (app: string, { userId, sessionId }: Point) => sessionPath(userId, sessionId).replace(APP, app);

  /** Begins an invocation in the background, and kills its process once its tool runs. */
  async function beginAndKill(app: string, name: string): Promise<{ point: Point; path: string }> {
    const { point } = stopAt(1);
    const server = await startOther();
    await server.post(listPath(point.userId).replace(APP, app), { sessionId: point.sessionId });
    const { body } = await server.post(`${pathOf(app, point)}/invocations`, toMessage(point));
    await eventually('the tool runs', ENDED_WITHIN_MS, async () => runsOf(name, point) > 0);
    await server.kill();
    return { point, path: `${pathOf(app, point)}/invocations/${(body as { id: string }).id}` };
  }
  const whenEnded = async (point: Point) => {
    await eventually('it has ended', ENDED_WITHIN_MS, async () => (await rowsOf(point))[0]?.['request'] === null);
    const [row] = await rowsOf(point);
    expect(await findViolations(here.sql, { users: [point.userId] })).toEqual([]);
    return row;
  };

  test('and of each process that takes it up: ends after three, with the number', async () => {
    write('deadly', alone(llm('killer', tool('die', 'idempotent', `process.kill(process.pid, 'SIGKILL');`))));
    const { point } = await beginAndKill('deadly', 'die');
    for (const times of [2, 3]) {
      const next = await startOther();
      await next.exited;
      expect(runsOf('die', point)).toBe(times);
    }
    expect(await whenEnded(point)).toMatchObject({
      status: 'interrupted',
      attempt: 3,
      error_message: 'The invocation was interrupted: its process stopped before the answer, which happened 3 times.',
    });
  });

  test('and of each process that takes it up: what ran beside it is not ended with it', async () => {
    const goOn = join(elsewhere, 'go on');
    const waits = `while (!process.getBuiltinModule('node:fs').existsSync(${JSON.stringify(goOn)}))
      await new Promise((resolve) => setTimeout(resolve, 20));`;
    write('patient', alone(llm('waiter', tool('wait', 'none', waits))));
    write('deadly', alone(llm('killer', tool('die', 'idempotent', `process.kill(process.pid, 'SIGKILL');`))));
    const [patient, deadly] = [stopAt(1).point, stopAt(1).point];
    const begin = async (server: ServerProcess, app: string, point: Point) => {
      await server.post(listPath(point.userId).replace(APP, app), { sessionId: point.sessionId });
      await tryTo(server.post(`${pathOf(app, point)}/invocations`, toMessage(point)));
    };
    const first = await startOther();
    await begin(first, 'patient', patient);
    await eventually('the tool runs', ENDED_WITHIN_MS, async () => runsOf('wait', patient) === 1);
    await begin(first, 'deadly', deadly);
    await first.exited;
    await (await startOther()).exited;
    // Both have died twice, and one of them is why: each is alone with its last process.
    const third = await startOther();
    await eventually('the tool runs', ENDED_WITHIN_MS, async () => runsOf('wait', patient) === 3);
    expect(runsOf('die', deadly)).toBe(2);
    writeFileSync(goOn, '');
    expect(await whenEnded(patient)).toMatchObject({ status: 'succeeded', attempt: 3 });
    await third.exited;
    expect(await whenEnded(deadly)).toMatchObject({ status: 'interrupted', attempt: 3 });
  });

  test('ends where the agent has changed: the first step that it no longer makes is named', async () => {
    write('changing', slow);
    const { point } = await beginAndKill('changing', 'wait');
    write('changing', alone(llm('another', '')));
    const next = await startOther();
    expect(await whenEnded(point)).toMatchObject({
      status: 'interrupted',
      error_message: expect.stringContaining('It no longer makes the step of `waiter` that is event 2 of the session.'),
    });
    await next.kill();
  });

  test('ends as cancelled where that was asked before, or while it waited to be taken up', async () => {
    write('slow', slow);
    const before = await beginAndKill('slow', 'wait');
    // At once: once it waits to be taken up, only a process that has its application ends it.
    await survivor.post(`${before.path}/cancel`, {});
    expect(await whenEnded(before.point)).toMatchObject({ status: 'cancelled', error_code: 'cancelled' });
    const later = await beginAndKill('slow', 'wait');
    const waits = async () => (await rowsOf(later.point))[0]?.['status'] === 'queued';
    await eventually('it waits', ENDED_WITHIN_MS, waits);
    const { body } = await survivor.post(`${later.path}/cancel`, {});
    expect(body).toMatchObject({ status: 'queued' });
    const next = await startOther();
    expect(await whenEnded(later.point)).toMatchObject({ status: 'cancelled', error_code: 'cancelled' });
    await next.kill();
  });

  test('has the rest of its time, not all of it again', async () => {
    write('slow', slow);
    const { point } = await beginAndKill('slow', 'wait');
    const next = await startOther({ INVOCATION_TIMEOUT_MS: '100' });
    expect(await whenEnded(point)).toMatchObject({ status: 'failed', error_code: 'time_limit', attempt: 2 });
    await next.kill();
  });

  test('is not taken up where its request carries credentials, which its row has never', async () => {
    const stop: Stop = { ...stopAt(1), when: 'after' };
    const victim = await startVictim(here.servingUrl, settings());
    await createSession(stop.point);
    victim.proxy.rules = holdAt([stop]);
    const server = { url: 'https://tools.example/mcp', headers: { authorization: 'Bearer geheim' } };
    const body = { ...toBody(stop.point), harness: { mcp_servers: [server] } };
    await Promise.race([stop.reached.promise, tryTo(victim.post('/run', body))]);
    await victim.kill();
    const { rows } = await here.sql.query<{ text: string }>(
      'select i::text as text from invocations i where user_id = $1',
      [stop.point.userId],
    );
    expect(rows).toHaveLength(1);
    expect(rows[0]?.text).not.toContain('geheim');
    expect(await whenEnded(stop.point)).toMatchObject({
      status: 'interrupted',
      attempt: 1,
      error_message: expect.stringContaining('and its MCP servers have credentials, which are not stored.'),
    });
  });
});
