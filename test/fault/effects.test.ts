import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { APP, listPath, report, sessionPath, stage, whenAtRest } from './support/faults.ts';
import { findViolations } from './support/invariants.ts';
import { answerFor, type Message, promptFor, type ScriptedCall } from './support/model-server.ts';
import { paced } from './support/pace.ts';
import { either, random } from './support/seed.ts';
import { type ServerProcess, startServer } from './support/server-process.ts';
import { MINUTE } from '../support/patience.ts';

/**
 * A service outside counts what the tools of many invocations do there, while their processes are killed at random, or
 * replaced as a deployment does: what acts once never acts twice, and what cannot be known is said.
 */

const LEAST_RUNS = either(60, 1_000);
/** Runs are begun until so many kills have come among them. */
const LEAST_KILLS = either(5, 50);
/** Runs that are begun at once, each in its own session. */
const AT_ONCE = either(12, 40);
/** A process lives so long, by the seed. */
const [SHORTEST_LIFE_MS, LONGEST_LIFE_MS] = [300, either(3_000, 8_000)];
const PATIENCE_MS = either(5 * MINUTE, 3_600_000);
const UNKNOWN = /It is not known whether this call took effect/;

/** What has come to the service: the keys of the operations of each session, by tool, one for each time. */
const came = new Map<string, string[]>();
/** The operations that took effect where repeats are known by their key. */
const effects = new Set<string>();
const draw = random('counting service');

const service = createServer((request, response) => {
  const [, name = '', session = ''] = (request.url ?? '').split('/');
  const operation = String(request.headers['idempotency-key']);
  const isKnown = [...came].some(([place, keys]) => place.startsWith(`${name} `) && keys.includes(operation));
  const found = isKnown ? { done: true, response: { counted: true } } : { done: false };
  if (request.method === 'GET') {
    response.end(JSON.stringify(found));
    return;
  }
  came.set(`${name} ${session}`, [...(came.get(`${name} ${session}`) ?? []), operation]);
  if (name === 'book') effects.add(operation);
  // Some answer at once, others only after a kill may have come.
  setTimeout(() => response.end('{"counted":true}'), draw.whole(0, 1) * draw.whole(0, 500));
});

const agents = mkdtempSync(join(tmpdir(), 'agent-runtime-effects-'));
const here = stage((messages: Message[], { id }: { id: string }): string | ScriptedCall[] => {
  const done = messages.filter(({ role }) => role === 'tool').length;
  const calls = (...names: string[]) => names.map((name) => ({ name, arguments: {} }));
  if (done === 0) return calls('charge', 'book', 'look', 'order');
  return done === 4 ? calls('pay') : answerFor(id);
});

function writeAgent(url: string): void {
  mkdirSync(join(agents, APP, 'migrations'), { recursive: true });
  writeFileSync(join(agents, APP, 'migrations', '0001.sql'), 'create table orders (id uuid, session text);');
  const tool = (name: string, effect: string, more = '') => `{
    name: '${name}', description: 'Counts.', effect: '${effect}', needsConfirmation: false,
    parameters: { type: 'object', properties: {}, additionalProperties: false },
    run: (_, { session, operationId, signal }) => ask('POST', '${name}/' + session.sessionId, operationId, signal),
    ${more} }`;
  writeFileSync(
    join(agents, APP, 'agent.ts'),
    `const ask = async (method, path, key, signal) =>
      (await fetch('${url}/' + path, { method, headers: { 'idempotency-key': key }, signal })).json();
    const order = {
      name: 'order', description: 'Writes a row.', transactional: true, needsConfirmation: false,
      parameters: { type: 'object', properties: {}, additionalProperties: false },
      async run(_, { session, operationId, sql }) {
        const [row] = await sql('insert into orders values ($1, $2) returning *', [operationId, session.sessionId]);
        await new Promise((resolve) => setTimeout(resolve, Math.random() * 300));
        return row;
      },
    };
    export const agent = { kind: 'sequential', subAgents: [{ name: 'buyer', tools: [ order,
      ${tool('charge', 'once')}, ${tool('book', 'idempotent')}, ${tool('look', 'none')},
      ${tool('pay', 'once', `check: (key, signal) => ask('GET', 'pay', key, signal)`)},
    ] }] };`,
  );
}

const replicas: ServerProcess[] = [];
const start = (more = {}) =>
  startServer(
    here.servingUrl,
    here.environment({
      ...more,
      AGENTS_DIR: agents,
      TOOLS: '',
      SESSION_LEASE_MS: String(paced(2_000)),
      // Chance kills one invocation more often than a prompt that is to blame would be let.
      INVOCATION_ATTEMPTS: '100',
      // The pauses that follow many deaths count too.
      INVOCATION_TIMEOUT_MS: String(PATIENCE_MS),
    }),
  );
beforeAll(async () => {
  await new Promise<void>((resolve) => service.listen(0, '127.0.0.1', resolve));
  writeAgent(`http://127.0.0.1:${(service.address() as AddressInfo).port}`);
  // It makes the table of the tools.
  replicas.push(await start({ DATABASE_MIGRATION_URL: here.databaseUrl }));
  replicas.push(await start());
});
afterAll(async () => {
  for (const replica of replicas) await replica.kill();
  service.close();
});

/** Repeats a request at one replica or the other until one answers. */
async function insist(path: string, body: unknown, key: string): Promise<void> {
  for (;;) {
    const answer = await draw
      .pick(replicas)
      .post(path, body, { 'idempotency-key': key })
      .catch(() => undefined);
    if (answer && answer.status < 500) return;
    await sleep(50);
  }
}

async function begin(n: number): Promise<void> {
  const [userId, sessionId] = [`u-${n}`, `s-${n}`];
  await insist(listPath(userId), { sessionId }, `create-${n}`);
  const newMessage = { role: 'user', parts: [{ text: promptFor({ id: sessionId }) }] };
  await insist(`${sessionPath(userId, sessionId)}/invocations`, { newMessage }, `begin-${n}`);
}

const countOf = async (sql: string) => Number((await here.sql.query<{ n: string }>(sql)).rows[0]?.n);

test('what acts once never acts twice, and what cannot be known is listed', async () => {
  let [next, isOver] = [0, false];
  const stops = { SIGKILL: 0, SIGTERM: 0 };
  const work = Array.from({ length: AT_ONCE }, async () => {
    while (next < LEAST_RUNS || stops.SIGKILL < LEAST_KILLS) await begin(next++);
  });
  const ended = Promise.all(work)
    .then(() => whenAtRest(here.sql, PATIENCE_MS))
    .finally(() => (isOver = true));
  while (!isOver) {
    await Promise.race([sleep(draw.whole(SHORTEST_LIFE_MS, LONGEST_LIFE_MS)), ended]);
    if (isOver) break;
    const position = draw.whole(0, 1);
    const name = (stops.SIGKILL + stops.SIGTERM) % 3 === 1 ? 'SIGTERM' : 'SIGKILL';
    const old = replicas[position] as ServerProcess;
    old.signal(name);
    stops[name] += 1;
    await old.exited;
    replicas[position] = await start();
  }
  await ended;
  const runs = next;

  const { rows: statuses } = await here.sql.query(`select status, count(*)::int as n from invocations group by 1`);
  const timesOf = (name: string) =>
    Array.from({ length: runs }, (_, n) => (came.get(`${name} s-${n}`) ?? []).length).toSorted((a, b) => b - a);
  const told = await countOf(
    `select count(*) as n from events, jsonb_path_query(payload, '$.content.parts[*].functionResponse') r
     where r ->> 'name' in ('charge', 'pay') and r #>> '{response,error}' ~ '${UNKNOWN.source}'`,
  );
  let listed = 0;
  for (let n = 0; n < runs; n++) {
    const { body } = await (replicas[0] as ServerProcess).get(`/apps/${APP}/users/u-${n}/tool-calls?state=unknown`);
    listed += (body as { items: [] }).items.length;
  }
  const answered = await countOf(
    `select count(distinct o.id) as n from agent_tools.orders o
     join events e on e.session_id = o.session
       and payload @@ format('$.content.parts[*].functionResponse.response.id == "%s"', o.id)::jsonpath`,
  );
  const ordered = await countOf('select count(*) as n from agent_tools.orders');
  const unknownOrders = await countOf(
    `select count(*) as n from tool_calls where tool = 'order' and (state, effect) <> ('done', 'transactional')`,
  );
  const { rows: refusals } = await here.sql.query(
    `select r #>> '{response,error}' as error, count(*)::int as n
     from events, jsonb_path_query(payload, '$.content.parts[*].functionResponse') r
     where r ->> 'name' = 'order' and r -> 'response' ? 'error' group by 1`,
  );
  const open = await countOf(`select count(*) as n from tool_calls where state = 'started' or response is not null`);
  const again = await countOf('select count(*) as n from invocations where attempt > 1');
  const [charge, pay, book] = [timesOf('charge'), timesOf('pay'), timesOf('book')];
  const bookings = new Set([...came].flatMap(([name, keys]) => (name.startsWith('book ') ? keys : [])));
  report(
    'effects',
    `${runs} runs, ${stops.SIGKILL} kills, ${stops.SIGTERM} restarts, ${again} went on; ` +
      `${JSON.stringify(statuses)}; once: at most ${charge[0]} and ${pay[0]}, ${listed} unknown, all listed; ` +
      `idempotent: ${bookings.size} operations, ${effects.size} effects, ${book.reduce((a, b) => a + b, 0)} calls; ` +
      `transactional: ${ordered} rows, ${answered} of them answered, ${unknownOrders} unknown`,
  );
  expect(statuses).toEqual([{ status: 'succeeded', n: runs }]);
  expect([charge[0], pay[0]]).toEqual([1, 1]);
  // What never came is known to be open, or was never said to be done.
  expect(charge.filter((times) => times === 0).length).toBeLessThanOrEqual(listed);
  expect(pay.at(-1)).toBe(1);
  expect([book.at(-1) === 0, bookings.size, effects.size]).toEqual([false, runs, runs]);
  expect(refusals).toEqual([]);
  expect([ordered, answered, unknownOrders]).toEqual([runs, runs, 0]);
  expect(listed).toBe(told);
  expect(open).toBe(0);
  expect(again).toBeGreaterThan(0);
  expect(await findViolations(here.sql, {})).toEqual([]);
  expect(here.model.badHistories).toEqual([]);
});
