import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { PoolClient } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Answer } from '../support/app.ts';
import { APP, eventBody, invokeBody, listPath, report, sessionPath, stage, whenAtRest } from './support/faults.ts';
import { type Acked, findViolations } from './support/invariants.ts';
import { answerFor, promptFor } from './support/model-server.ts';
import { boundNow, paced } from './support/pace.ts';
import { type ServerProcess, spareServers, startServer, tryTo } from './support/server-process.ts';
import { holdAt, type Point, startVictim, type Stop, stopAt, type Victim } from './support/stops.ts';
import { MINUTE } from '../support/patience.ts';

/**
 * A process is killed before, and after, each message that one operation sends to PostgreSQL. One kill ends many
 * operations, each held at its point; each has a user and a session of its own, whose id tells its messages from the
 * others'. The processes serve as a role that neither owns the tables nor sees past row-level security.
 */

/** Long enough for a busy machine that does all operations at once; the processes of operators have 15 s. */
const LEASE_MS = paced(4_000);
/** The lock of those who look for invocations of dead processes (`src/process/sweeper.ts`). */
const DEAD_SWEEP = 7_240_003;
/** The lease of the killed process and the work after it, times the load of the machine. */
const USABLE_WITHIN_MS = 15_000;
/** Ends what hangs. */
const ENDED_WITHIN_MS = 2 * MINUTE;
/** Points of each operation that one kill ends: starting a process costs more than all of them. */
const POINTS_PER_KILL = 6;
/** An operation that waits for its turn looks again and again: its sweep ends here. */
const MOST_POINTS = 24;

const here = stage();
let survivor: ServerProcess;

interface Operation {
  name: string;
  /** Makes what the operation needs, before the process that is going to be killed is asked. */
  prepare?(point: Point): Promise<unknown>;
  /** Every request carries an `Idempotency-Key`, so that it can be made again after the kill. */
  run(at: ServerProcess, point: Point): Promise<Answer>;
  /** What a client may rely on after status 200. */
  acked?(point: Point): Acked;
  /** How often the effect is there, as SQL over the rows of a user `$1` with the id `$2`. */
  effects: string;
  /** Further sentences about what is wrong. */
  check?(point: Point): Promise<string[]>;
}

const createSession = ({ userId, sessionId }: Point) => survivor.post(listPath(userId), { sessionId });
const keyOf = ({ id }: Point) => ({ 'idempotency-key': `key-${id}` });
const SAID = `select count(*) from events where user_id = $1 and payload -> 'content' -> 'parts' -> 0 ->> 'text' = $2`;
const PROMPTED = `select count(*) from events
  where user_id = $1 and payload -> 'content' -> 'parts' -> 0 ->> 'text' like '#id=' || $2 || ' %'`;
const CHANGED = `select count(*) from events
  where user_id = $1 and payload -> 'actions' -> 'stateDelta' ->> 'own' = $2`;
const SAVED = 'select count(*) from artifact_versions where user_id = $1 and content = $2::text::bytea';
const CAPTURED = 'select count(*) from eval_cases where source_user_id = $1 and eval_set_id = $2';

const invoking = (calls: number): Omit<Operation, 'name'> => ({
  run: (at, point) =>
    at.post('/harness/invoke', invokeBody(point.userId, point.sessionId, { id: point.id, calls }), keyOf(point)),
  effects: PROMPTED,
  acked: ({ userId, sessionId, id }) => ({
    userId,
    sessionId,
    said: promptFor({ id, calls }),
    answered: answerFor(id),
  }),
});

/** A session that a process which is gone still holds, with an open function call. */
async function holdSession({ userId, sessionId, id }: Point, leaseMs: number): Promise<void> {
  const invocationId = `e-dead-${id}`;
  const call = { functionCall: { id: `open-${id}`, name: 'calculator', args: {} } };
  await survivor.post(listPath(userId), {
    sessionId,
    events: [
      { invocationId, ...eventBody(`dead ${id}`) },
      { invocationId, author: APP, content: { role: 'model', parts: [call] } },
    ],
  });
  const token = randomUUID();
  await here.sql.query('update sessions set lease_token = $1 where user_id = $2 and id = $3', [
    token,
    userId,
    sessionId,
  ]);
  await here.sql.query(
    `insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, start_time)
     values ($1, $2, $3, $4, 'running', $5, clock_timestamp() + $6 * interval '1 millisecond', clock_timestamp())`,
    [APP, userId, sessionId, invocationId, token, leaseMs],
  );
}

const pathOf = ({ userId, sessionId }: Point) => sessionPath(userId, sessionId);
/** No `app:` keys: a transaction held at its COMMIT would keep the others from the application's row. */
const deltaOf = ({ id }: Point) => ({ own: id, 'user:shared': id });

const operations: Operation[] = [
  {
    name: 'create',
    run: (at, point) => {
      const { userId, sessionId, id } = point;
      const events = [eventBody(id, { own: id, 'user:shared': id })];
      return at.post(listPath(userId), { sessionId, events }, keyOf(point));
    },
    effects: SAID,
    acked: ({ userId, sessionId, id }) => ({ userId, sessionId, said: id }),
  },
  {
    name: 'append',
    prepare: createSession,
    run: (at, point) => at.post(`${pathOf(point)}/events`, eventBody(point.id, deltaOf(point)), keyOf(point)),
    effects: SAID,
    acked: ({ userId, sessionId, id }) => ({ userId, sessionId, said: id }),
  },
  {
    name: 'change state',
    prepare: createSession,
    run: (at, point) => at.send('PATCH', pathOf(point), { stateDelta: deltaOf(point) }, keyOf(point)),
    effects: CHANGED,
  },
  { name: 'invoke with 0 tool calls', ...invoking(0) },
  { name: 'invoke with 1', prepare: createSession, ...invoking(1) },
  { name: 'with 3', prepare: createSession, ...invoking(3) },
  { name: 'take-over', prepare: (point) => holdSession(point, 0), ...invoking(0) },
  { name: 'queue', prepare: (point) => holdSession(point, LEASE_MS), ...invoking(0) },
  {
    name: 'artifact save',
    prepare: createSession,
    run: (at, point) =>
      at.post(`${pathOf(point)}/artifacts`, { filename: 'a.txt', artifact: { text: point.id } }, keyOf(point)),
    effects: SAVED,
    check: async (point) => {
      const { status } = await survivor.post(`${pathOf(point)}/artifacts`, {
        filename: 'a.txt',
        artifact: { text: 'next' },
      });
      return status === 200 ? [] : [`I9: the next save was answered with ${status}`];
    },
  },
  {
    name: 'add-session',
    prepare: createSession,
    run: (at, point) => {
      const { userId, sessionId, id } = point;
      return at.post(
        `/dev/apps/${APP}/eval-sets/${id}/add-session`,
        { evalId: 'case', sessionId, userId },
        keyOf(point),
      );
    },
    effects: CAPTURED,
  },
];

interface OperationStop extends Stop {
  operation: Operation;
}

interface Swept {
  points: number;
  violations: string[];
  usableAfterMs: number;
}

/** One kill, with every operation at several of its points. Returns the operations that have more. */
async function killAt(victim: Victim, stops: OperationStop[], swept: Map<Operation, Swept>): Promise<Operation[]> {
  await Promise.all(stops.map(async ({ operation, point }) => operation.prepare?.(point)));
  victim.proxy.rules = holdAt(stops);
  const outcomes = await Promise.all(
    stops.map(({ operation, point, reached }) => Promise.race([reached.promise, tryTo(operation.run(victim, point))])),
  );
  await victim.kill();
  const killedAt = performance.now();
  const emptySets = await here.sql.query<{ id: string }>(
    'select id from eval_sets s where not exists (select from eval_cases c where c.eval_set_id = s.id)',
  );
  const repeated = await Promise.all(
    stops.map((stop, position) =>
      repeat(stop, typeof outcomes[position] === 'object' ? outcomes[position] : undefined),
    ),
  );
  const used = await Promise.all(stops.map(({ point }) => useAgain(point, killedAt)));
  const usableWithinMs = await boundNow(USABLE_WITHIN_MS);
  const acked = stops.flatMap(({ operation, point }, position) => {
    const outcome = outcomes[position];
    const told = typeof outcome === 'object' && outcome.status === 200 ? operation.acked?.(point) : undefined;
    return told ? [told] : [];
  });
  const users = stops.map(({ point }) => point.userId);
  const found = await findViolations(here.sql, { users, acked, api: survivor, isSwept: false });
  for (const [position, stop] of stops.entries()) {
    const { operation, point, message, when } = stop;
    const figures = swept.get(operation) ?? { points: 0, violations: [], usableAfterMs: 0 };
    swept.set(operation, figures);
    const outcome = outcomes[position];
    const refused =
      typeof outcome === 'object' && outcome.status !== 200 ? [`refused with ${outcome.status} ${outcome.text}`] : [];
    const usableAfterMs = used[position]?.ms ?? 0;
    const own = [
      ...refused,
      ...(usableAfterMs < usableWithinMs ? [] : [`usable after ${usableAfterMs} ms, not ${usableWithinMs}`]),
      ...(used[position]?.violations ?? []),
      ...(repeated[position] ?? []),
      ...((await operation.check?.(point)) ?? []),
      ...emptySets.rows.filter((row) => row.id === point.id).map(() => 'an evaluation set without its case'),
      ...found.filter((violation) => violation.includes(point.id)),
    ];
    figures.violations.push(...own.map((violation) => `${operation.name}, ${when} message ${message}: ${violation}`));
    figures.usableAfterMs = Math.max(figures.usableAfterMs, usableAfterMs);
    if (outcome === 'reached') figures.points++;
  }
  const ended = new Set(
    stops.filter((_, position) => outcomes[position] !== 'reached').map(({ operation }) => operation),
  );
  return [...new Set(stops.map(({ operation }) => operation))].filter((operation) => !ended.has(operation));
}

/** I6: the request once more, with its key, on another replica: all in all its effect is there once. */
async function repeat({ operation, point }: OperationStop, first: Answer | undefined): Promise<string[]> {
  let again = await operation.run(survivor, point);
  for (
    const until = performance.now() + ENDED_WITHIN_MS;
    again.status === 409 && performance.now() < until;
    await sleep(50)
  ) {
    again = await operation.run(survivor, point); // the first one is not yet known to be dead
  }
  const { rows } = await here.sql.query<{ count: string }>(operation.effects, [point.userId, point.id]);
  const { error } = (again.body ?? {}) as { error?: string | null };
  // A request that died is told as interrupted: it was begun, or it waited and was not.
  const isRight = rows[0]?.count === '1' || (typeof error === 'string' && rows[0]?.count === '0');
  return [
    ...(again.status === 200 ? [] : [`I6: repeated with ${again.status} ${again.text}`]),
    ...(first && first.text !== again.text ? [`I6: answered ${first.text}, repeated ${again.text}`] : []),
    ...(isRight ? [] : [`I6: the effect is there ${rows[0]?.count} times after ${again.text}`]),
  ];
}

/** The next invocation of the session, on another replica. */
async function useAgain({ userId, sessionId }: Point, killedAt: number): Promise<{ ms: number; violations: string[] }> {
  const id = randomUUID();
  const answer = await survivor.post('/harness/invoke', invokeBody(userId, sessionId, { id, calls: 1 }));
  const ms = Math.round(performance.now() - killedAt);
  const { output } = (answer.body ?? {}) as { output?: string };
  const violations =
    output === answerFor(id) ? [] : [`${sessionId}: I10: the next invocation: ${answer.status} ${answer.text}`];
  return { ms, violations };
}

describe('a process killed at any message to PostgreSQL', () => {
  // Every held operation keeps a connection, and a quarter of the pool is for reads.
  const settings = {
    SESSION_LEASE_MS: String(LEASE_MS),
    SESSION_WAIT_MS: String(ENDED_WITHIN_MS),
    // A transaction that is held may send nothing for as long.
    DATABASE_STATEMENT_TIMEOUT_MS: String(ENDED_WITHIN_MS),
    DATABASE_POOL_SIZE: '128',
  };
  let sweeping: PoolClient;
  beforeAll(async () => {
    // No process sweeps before the last test: what the next invocation finds, nobody has mended.
    sweeping = await here.sql.connect();
    await sweeping.query('select pg_advisory_lock($1)', [DEAD_SWEEP]);
    survivor = await startServer(here.servingUrl, here.environment({ ...settings, DATABASE_POOL_SIZE: '20' }));
  });
  afterAll(async () => {
    await survivor.kill();
  });

  test('leaves nothing half done, and the session goes on', async () => {
    const victims = spareServers(async () => {
      const victim = await startVictim(here.servingUrl, here.environment(settings));
      const warm = randomUUID(); // what is loaded at the first use does not count as time of an operation
      await victim.post('/harness/invoke', invokeBody(`warm-${warm}`, warm, { id: warm }));
      return victim;
    });
    const swept = new Map<Operation, Swept>();
    let pending = operations;
    for (let first = 1; pending.length > 0 && first <= MOST_POINTS; first += POINTS_PER_KILL) {
      const places = Array.from({ length: POINTS_PER_KILL }, (_, position) => first + position);
      const stops = pending.flatMap((operation) => places.map((n) => ({ operation, ...stopAt(n) })));
      pending = await killAt(await victims.take(), stops, swept);
    }
    await victims.close();
    const figures = [...swept.values()];
    const violations = figures.flatMap((each) => each.violations);
    const slowestMs = Math.max(...figures.map(({ usableAfterMs }) => usableAfterMs));
    const points = [...swept].map(([{ name }, each]) => `${name} ${each.points - failed(each)}/${each.points}`);
    report(
      'crash points',
      `${points.join(', ')}; ${violations.length} violations; usable after ${slowestMs} ms at most`,
    );
    expect(violations).toEqual([]);
    expect(here.model.badHistories).toEqual([]);
    for (const { points: count } of figures) expect(count).toBeGreaterThan(0);
  });

  test('leaves no waiter behind that a sweep does not end', async () => {
    sweeping.release(true);
    const sweeper = await startServer(here.servingUrl, here.environment({ SESSION_LEASE_MS: '300' }));
    const ms = await whenAtRest(here.sql, ENDED_WITHIN_MS);
    const violations = await findViolations(here.sql);
    report('sweep after the crash points', `at rest after ${ms} ms; ${violations.length} violations`);
    expect(violations).toEqual([]);
    await sweeper.kill();
  });
});

/** How many points have a violation. */
const failed = ({ violations }: Swept) => new Set(violations.map((text) => text.slice(0, text.indexOf(':')))).size;
