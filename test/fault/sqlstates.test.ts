import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Answer } from '../support/app.ts';
import { APP, eventBody, invokeBody, listPath, report, sessionPath, stage, whenAtRest } from './support/faults.ts';
import { findViolations } from './support/invariants.ts';
import { answerFor } from './support/model-server.ts';
import { paced } from './support/pace.ts';
import { either, random } from './support/seed.ts';
import { type ServerProcess, startServer } from './support/server-process.ts';
import { MINUTE } from '../support/patience.ts';

/**
 * A trigger fails with any SQLSTATE, in any table that an operation writes, in the statement or at its commit, once or
 * always.
 */

/** Long enough for a busy machine: what the process does when it loads code must not cost it the lease. */
const LEASE_MS = paced(3_000);
const REST_WITHIN_MS = 2 * MINUTE;
/** Cases at once. */
const LANES = 12;
/** Cases of the short set, by the seed; the long set has all. */
const MOST_CASES = either(150, 10_000);

const here = stage();
let server: ServerProcess;

/** What repeating at once may cure. */
const REPEATABLE = ['40001', '40P01', '55P03'];
/** What another time may cure: cancelled, shutting down, connection, disk, memory, connections, read-only. */
const PASSING = ['57014', '57P01', '57P03', '08006', '53100', '53200', '53300', '25006'];
/** What PostgreSQL cannot store, and what nobody expects. */
const LASTING = ['22P05', 'XX000'];

interface Operation {
  name: string;
  /** The tables that it writes. */
  tables: string[];
  /** True where the runtime may try again by itself without doing anything twice. */
  persists: boolean;
  prepare?(id: string): Promise<unknown>;
  run(id: string): Promise<Answer>;
}

const user = (id: string) => `u-${id}`;
const one = (id: string) => sessionPath(user(id), 's');
const create = (id: string) => server.post(listPath(user(id)), { sessionId: 's' });
const delta = (id: string) => ({ own: id, [`user:${id}`]: id, [`app:${id}`]: id });
const WRITES_STATE = ['sessions', 'events', 'user_states', 'app_states'];

const operations: Operation[] = [
  {
    name: 'create',
    tables: WRITES_STATE,
    persists: false,
    run: (id) => server.post(listPath(user(id)), { sessionId: 's', events: [eventBody(id, delta(id))] }),
  },
  {
    name: 'append',
    tables: WRITES_STATE,
    persists: false,
    prepare: create,
    run: (id) => server.post(`${one(id)}/events`, eventBody(id, delta(id))),
  },
  {
    name: 'change state',
    tables: WRITES_STATE,
    persists: false,
    prepare: create,
    run: (id) => server.send('PATCH', one(id), { stateDelta: delta(id) }),
  },
  {
    name: 'invoke',
    tables: ['sessions', 'events', 'invocations', 'artifacts', 'artifact_versions'],
    persists: true,
    prepare: create,
    run: (id) => server.post('/harness/invoke', invokeBody(user(id), 's', { id: randomUUID(), calls: 2 })),
  },
  {
    name: 'artifact save',
    tables: ['artifacts', 'artifact_versions'],
    persists: false,
    prepare: create,
    run: (id) => server.post(`${one(id)}/artifacts`, { filename: 'a.txt', artifact: { text: id } }),
  },
  {
    name: 'add-session',
    tables: ['eval_sets', 'eval_cases'],
    persists: false,
    prepare: create,
    run: (id) =>
      server.post(`/dev/apps/${APP}/eval-sets/${id}/add-session`, {
        evalId: randomUUID(),
        sessionId: 's',
        userId: user(id),
      }),
  },
];

interface Fault {
  operation: Operation;
  table: string;
  state: string;
  when: 'statement' | 'commit';
  times: 'once' | 'always';
}

/**
 * A row of `fault_control` makes the writes of the rows that hold its marker fail. Sequences count on when a
 * transaction does not.
 */
const INSTALL = `
  create table fault_control (marker text primary key, table_name text, state text, happens text, times int);
  create function fault() returns trigger language plpgsql as $$
  declare control record;
  begin
    for control in select * from fault_control where table_name = tg_table_name and happens = tg_argv[0]
                     and position(marker in to_jsonb(new)::text) > 0 loop
      if nextval(format('%I', 'fault_' || control.marker)) <= control.times then
        raise exception 'injected into %', tg_table_name using errcode = control.state;
      end if;
    end loop;
    return new;
  end $$;
  do $$
  declare written text;
  begin
    foreach written in array array['sessions', 'events', 'invocations', 'artifacts', 'artifact_versions',
      'eval_sets', 'eval_cases'] loop
      execute format('create trigger fault before insert or update on %I
        for each row execute function fault(''statement'')', written);
      execute format('create constraint trigger fault_late after insert or update on %I deferrable initially deferred
                      for each row execute function fault(''commit'')', written);
    end loop;
    -- An upsert shows its own keys only at the insert; the merged row holds everybody's.
    foreach written in array array['user_states', 'app_states'] loop
      execute format('create trigger fault before insert on %I
        for each row execute function fault(''statement'')', written);
    end loop;
  end $$`;

const LEAK = /injected|Failed query|insert into|update \w+ set|fault_control|at \w+ \(/i;

async function inject(id: string, { table, state, when, times }: Fault): Promise<void> {
  await here.sql.query(`create sequence "fault_${id}"`);
  const count = times === 'once' ? 1 : 1_000_000;
  await here.sql.query('insert into fault_control values ($1, $2, $3, $4, $5)', [id, table, state, when, count]);
}

/** What is wrong with one answer, if anything. */
function answerViolations(fault: Fault, { status, headers, text, body }: Answer): string[] {
  const { operation, state, times } = fault;
  const { error } = (body ?? {}) as { error?: string | null };
  const succeeded = status === 200 && (error === undefined || error === null);
  // What fails inside a tool is told to the model, which then answers.
  const isInTool = operation.name === 'invoke' && fault.table.startsWith('artifact');
  const isCured = times === 'once' && (REPEATABLE.includes(state) || (operation.persists && PASSING.includes(state)));
  const isHonest = LASTING.includes(state)
    ? status === (state === '22P05' ? 422 : 500) || (operation.persists && status === 200 && typeof error === 'string')
    : status === 503 && (headers.has('retry-after') || headers.has('x-invocation-id'));
  const isRight = isInTool || isCured ? succeeded : isHonest;
  return [
    ...(isRight ? [] : [`answered ${status} ${text}`]),
    ...(LEAK.test(text) ? [`the answer says too much: ${text}`] : []),
  ];
}

async function suffer(fault: Fault): Promise<string[]> {
  const id = randomUUID().replaceAll('-', '_');
  const { operation, table, state, when, times } = fault;
  await operation.prepare?.(id);
  await inject(id, fault);
  const answer = await operation.run(id);
  const { rows } = await here.sql.query<{ calls: string; called: boolean }>(
    `select last_value as calls, is_called as called from "fault_${id}"`,
  );
  await here.sql.query('delete from fault_control where marker = $1', [id]);
  const next = await operation.run(id);
  const isDone = operation.name === 'create' && answer.status === 200;
  const { error } = (next.body ?? {}) as { error?: string | null };
  const isNextRight = isDone ? next.status === 409 : next.status === 200 && (error ?? null) === null;
  const { text: stored } = await server.get(one(id));
  return [
    ...(rows[0]?.called === true ? [] : ['the fault never happened']),
    ...answerViolations(fault, answer),
    ...(isNextRight ? [] : [`the next request was answered ${next.status} ${next.text}`]),
    ...(LEAK.test(stored) ? [`the session says too much: ${LEAK.exec(stored)?.[0]}`] : []),
  ].map((violation) => `${operation.name}, ${state} ${times} in ${table} (${when}): ${violation}`);
}

function allFaults(): Fault[] {
  const states = [...REPEATABLE, ...PASSING, ...LASTING];
  const times = ['once', 'always'] as const;
  return operations.flatMap((operation) => {
    const places = operation.tables.map((table) => ({ table, when: 'statement' as const }));
    const late = operation.tables.filter((table) => ['events', 'artifact_versions', 'eval_cases'].includes(table));
    return [...places, ...late.map((table) => ({ table, when: 'commit' as const }))].flatMap((place) =>
      states.flatMap((state) => times.map((each) => ({ operation, ...place, state, times: each }))),
    );
  });
}

describe('any SQLSTATE in any write', () => {
  beforeAll(async () => {
    await here.sql.query(INSTALL);
    server = await startServer(
      here.databaseUrl,
      here.environment({
        SESSION_LEASE_MS: String(LEASE_MS),
        LOG_LEVEL: 'silent',
        DATABASE_POOL_SIZE: '24',
      }),
    );
  });
  afterAll(() => server.kill());

  test('is cured by a repetition or named without a word of SQL, and the next request is served', async () => {
    const { next: chance } = random('sqlstates');
    const all = allFaults();
    const shuffled = all.map((fault) => ({ fault, place: chance() })).toSorted((a, b) => a.place - b.place);
    const faults = shuffled.slice(0, MOST_CASES).map(({ fault }) => fault);
    const waiting = [...faults];
    const violations: string[] = [];
    const lanes = Array.from({ length: LANES }, async () => {
      for (let taken = waiting.pop(); taken; taken = waiting.pop()) violations.push(...(await suffer(taken)));
    });
    await Promise.all(lanes);
    await whenAtRest(here.sql, REST_WITHIN_MS);
    violations.push(...(await findViolations(here.sql, { api: server })));
    const states = new Set(faults.map(({ state }) => state)).size;
    const places = new Set(faults.map(({ operation, table, when }) => `${operation.name} ${table} ${when}`)).size;
    report(
      'SQLSTATEs',
      `${faults.length} of ${all.length} cases: ${states} states in ${places} places ` +
        `of ${operations.length} operations, ` +
        'once and always; ' +
        `${violations.length} violations`,
    );
    expect(violations).toEqual([]);
  });

  test('leaves the answer right when everything is well again', async () => {
    const id = randomUUID();
    const { body } = await server.post('/harness/invoke', invokeBody(user(id), 's', { id, calls: 3 }));
    expect(body).toMatchObject({ output: answerFor(id), error: null });
  });
});
