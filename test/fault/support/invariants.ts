import { createHash } from 'node:crypto';
import type { Pool } from 'pg';
import { unescapeJson } from '../../../src/platform/json-escape.ts';
import type { JsonObject } from '../../../src/core/content.ts';
import { getFunctionCalls, getFunctionResponses } from '../../../src/core/content.ts';
import type { Event } from '../../../src/core/event.ts';
import type { TestApp } from '../../support/app.ts';

/**
 * The invariants I1–I12 of the reliability goals, as what is stored and what a client sees must show them after every
 * fault.
 */

/** An answer that a client got: success was told, so this must be there. */
export interface Acked {
  userId: string;
  sessionId: string;
  /** The unique text of the prompt, or of the appended event. */
  said: string;
  /** The answer of the agent, where an invocation was told to have succeeded. */
  answered?: string;
  idempotencyKey?: string;
}

interface SessionRow {
  app_name: string;
  user_id: string;
  id: string;
  state: JsonObject;
  last_sequence: number;
  lease_token: string | null;
  update_epoch: number;
}

interface EventRow {
  user_id: string;
  session_id: string;
  sequence: number;
  id: string;
  invocation_id: string;
  payload: Event;
}

interface InvocationRow {
  user_id: string;
  session_id: string;
  id: string;
  status: string;
  idempotency_key: string | null;
  response_body: string | null;
  is_expired: boolean;
}

/** What the checks look at. */
interface Stored {
  sessions: SessionRow[];
  events: Map<string, EventRow[]>;
  invocations: Map<string, InvocationRow[]>;
}

const sessionOf = (userId: string, sessionId: string) => `${userId}/${sessionId}`;

/** What may differ between tests. */
export interface CheckOptions {
  /** Only these users; by default all. */
  users?: string[] | undefined;
  acked?: Acked[];
  /** The state that a session was created with, by `user/session`: it stands in no event. */
  initialStates?: ReadonlyMap<string, JsonObject>;
  /** False where nobody sweeps: waiters that died may still be there [true]. */
  isSwept?: boolean;
  /** Where the API is asked too, one request per session. */
  api?: Pick<TestApp, 'get'>;
}

/** Every violation of an invariant as a sentence, for a database in which nothing runs any more. Empty: all hold. */
export async function findViolations(database: Pool, options: CheckOptions = {}): Promise<string[]> {
  const stored = await load(database, options.users);
  const violations = [
    ...stored.sessions.flatMap((session) => sessionViolations(stored, session, options)),
    ...(await sharedStateViolations(database, stored, options)),
    ...(options.acked ?? []).flatMap((acked) => ackedViolations(stored, acked)),
    ...keyViolations(stored),
    ...(await artifactViolations(database, options.users)),
  ];
  if (options.api)
    for (const session of stored.sessions) violations.push(...(await apiViolations(stored, session, options.api)));
  return violations;
}

type AsText<Row, Member extends keyof Row> = Omit<Row, Member> & Record<Member, string>;
/** What the store escaped is as it was sent. */
const parse = (text: string): unknown => JSON.parse(unescapeJson(text));

async function load(database: Pool, users: string[] | undefined): Promise<Stored> {
  const mine = 'where ($1::text[] is null or user_id = any($1))';
  const { rows: sessions } = await database.query<AsText<SessionRow, 'state'>>(
    `select app_name, user_id, id, state::text, last_sequence, lease_token,
       extract(epoch from update_time)::float8 as update_epoch
     from sessions ${mine} order by user_id, id`,
    [users ?? null],
  );
  const { rows: events } = await database.query<AsText<EventRow, 'payload'>>(
    `select user_id, session_id, sequence, id, invocation_id, payload::text from events ${mine}
     order by user_id, session_id, sequence`,
    [users ?? null],
  );
  const { rows: invocations } = await database.query<InvocationRow>(
    `select user_id, session_id, id, status, idempotency_key, response_body,
       lease_expire_time < clock_timestamp() as is_expired
     from invocations ${mine} order by create_time, id`,
    [users ?? null],
  );
  const grouped = <Row extends { user_id: string; session_id: string }>(rows: Row[]) =>
    Map.groupBy(rows, (row) => sessionOf(row.user_id, row.session_id));
  return {
    sessions: sessions.map((row) => ({ ...row, state: parse(row.state) as JsonObject })),
    events: grouped(events.map((row) => ({ ...row, payload: parse(row.payload) as Event }))),
    invocations: grouped(invocations),
  };
}

function sessionViolations(stored: Stored, session: SessionRow, options: CheckOptions): string[] {
  const name = sessionOf(session.user_id, session.id);
  const events = stored.events.get(name) ?? [];
  const invocations = stored.invocations.get(name) ?? [];
  return [
    ...sequenceViolations(session, events),
    ...stateViolations(session, events, options.initialStates?.get(name) ?? {}),
    ...contiguityViolations(events, invocations),
    ...callViolations(events),
    ...leaseViolations(session, invocations, options.isSwept ?? true),
  ].map((violation) => `${name}: ${violation}`);
}

/** I2 and I7: 1..n in the order of their times, and the session is as new as its newest event. */
function sequenceViolations({ last_sequence, update_epoch }: SessionRow, events: EventRow[]): string[] {
  const sequences = events.map(({ sequence }) => sequence);
  const violations: string[] = [];
  if (sequences.some((sequence, position) => sequence !== position + 1) || last_sequence !== events.length) {
    violations.push(`I2: sequences ${sequences.join(',')} with last_sequence ${last_sequence}`);
  }
  const times = events.map(({ payload }) => payload.timestamp ?? 0);
  if (times.some((time, position) => time < (times[position - 1] ?? 0))) violations.push('I7: a later event is older');
  // Both numbers came over the wire as decimal text of microseconds.
  if ((times.at(-1) ?? 0) > update_epoch + 1e-6) violations.push('I7: lastUpdateTime is before the last event');
  return violations;
}

const deltaOf = (event: EventRow): [string, unknown][] => Object.entries(event.payload.actions?.stateDelta ?? {});
const isShared = (key: string) => key.startsWith('user:') || key.startsWith('app:');

/** I3: the session's own state is what its events made of the first one. */
function stateViolations({ state }: SessionRow, events: EventRow[], initial: JsonObject): string[] {
  const own = events.flatMap(deltaOf).filter(([key]) => !isShared(key));
  const folded = { ...initial, ...Object.fromEntries(own) };
  return canonical(folded) === canonical(state)
    ? []
    : [`I3: state ${canonical(state)} but its events make ${canonical(folded)}`];
}

const canonical = (value: JsonObject) =>
  JSON.stringify(Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1))));

/** I4: between the first and the last event of an invocation stand only its own and those of no invocation. */
function contiguityViolations(events: EventRow[], invocations: InvocationRow[]): string[] {
  const known = new Set(invocations.map(({ id }) => id));
  const ids = events.map(({ invocation_id }) => invocation_id).filter((id) => known.has(id));
  const groups = ids.filter((id, position) => id !== ids[position - 1]);
  return groups.length === new Set(groups).size ? [] : [`I4: interleaved invocations: ${groups.join(', ')}`];
}

/**
 * I5: every function call has exactly one response in its invocation, after it; one that waits for a person may have
 * none yet. Ids are a model's own: another invocation may have the same one. What a model says of itself is no
 * response.
 */
function callViolations(events: EventRow[]): string[] {
  const violations: string[] = [];
  for (const [invocationId, own] of Map.groupBy(events, ({ invocation_id }) => invocation_id)) {
    const responses = own
      .filter(({ payload }) => payload.content?.role === 'user')
      .flatMap(({ sequence, payload }) => getFunctionResponses(payload.content).map(({ id }) => ({ id, sequence })));
    const waiting = new Set(own.flatMap(({ payload }) => payload.longRunningToolIds ?? []));
    const called = new Set<string | null | undefined>();
    for (const { sequence, payload } of own) {
      for (const { id } of getFunctionCalls(payload.content)) {
        called.add(id);
        const answers = responses.filter((response) => response.id === id);
        if (answers.length === 0 && waiting.has(id ?? '')) continue;
        if (answers.length !== 1 || (answers[0]?.sequence ?? 0) <= sequence) {
          const places = answers.map((answer) => answer.sequence).join(',');
          violations.push(`I5: call ${id} of ${invocationId} at ${sequence} has its responses at [${places}]`);
        }
      }
    }
    for (const { id } of responses)
      if (!called.has(id)) violations.push(`I5: a response to no call of ${invocationId}: ${id}`);
  }
  return violations;
}

/** I11: at rest nobody holds the session, and no invocation is said to run or to wait. */
function leaseViolations({ lease_token }: SessionRow, invocations: InvocationRow[], isSwept: boolean): string[] {
  const open = invocations.filter(
    ({ status, is_expired }) => status === 'running' || (status === 'queued' && (isSwept || !is_expired)),
  );
  return [
    ...(lease_token === null ? [] : ['I11: the session is held']),
    ...open.map(({ id, status, is_expired }) => `I11: ${id} is ${status}${is_expired ? ', its lease is over' : ''}`),
  ];
}

/**
 * I3 for the scopes that sessions share: every key was last set by some event or some session's creation, and none is
 * missing.
 */
async function sharedStateViolations(database: Pool, stored: Stored, options: CheckOptions): Promise<string[]> {
  if (options.users) return []; // other users write to the same application
  const { rows } = await database.query<{ name: string; state: string }>(
    `select 'user:' || user_id as name, state::text from user_states
     union all select 'app:', state::text from app_states`,
  );
  const states = new Map(rows.map(({ name, state }) => [name, parse(state) as JsonObject]));
  const written = new Map<string, Map<string, Set<string>>>();
  const write = (userId: string, [key, value]: [string, unknown]) => {
    if (!isShared(key)) return;
    const scope = key.startsWith('app:') ? 'app:' : `user:${userId}`;
    const values = written.get(scope) ?? new Map<string, Set<string>>();
    written.set(scope, values.set(key, (values.get(key) ?? new Set()).add(JSON.stringify(value))));
  };
  for (const session of stored.sessions) {
    const name = sessionOf(session.user_id, session.id);
    for (const pair of Object.entries(options.initialStates?.get(name) ?? {})) write(session.user_id, pair);
    for (const event of stored.events.get(name) ?? []) for (const pair of deltaOf(event)) write(session.user_id, pair);
  }
  const violations: string[] = [];
  for (const scope of new Set([...states.keys(), ...written.keys()])) {
    const state = states.get(scope) ?? {};
    const expected = written.get(scope) ?? new Map<string, Set<string>>();
    for (const key of new Set([...Object.keys(state), ...expected.keys()])) {
      if (!Object.hasOwn(state, key)) violations.push(`I3: ${scope} lost ${key}`);
      else if (!expected.get(key)?.has(JSON.stringify(state[key])))
        violations.push(`I3: nobody wrote ${key} of ${scope}`);
    }
  }
  return violations;
}

/** I1 and I12: what was told to be done is there once, and the answer is the invocation's last word. */
function ackedViolations(stored: Stored, { userId, sessionId, said, answered }: Acked): string[] {
  const name = sessionOf(userId, sessionId);
  const events = stored.events.get(name) ?? [];
  const saying = events.filter(({ payload }) => hasText(payload, said));
  if (saying.length !== 1) return [`${name}: I1: "${said}" is stored ${saying.length} times`];
  if (answered === undefined) return [];
  const own = events.filter(({ invocation_id }) => invocation_id === saying[0]?.invocation_id);
  const last = own.at(-1)?.payload;
  const status = stored.invocations.get(name)?.find(({ id }) => id === saying[0]?.invocation_id)?.status;
  return last && hasText(last, answered) && status === 'succeeded'
    ? []
    : [
        `${name}: I12: "${answered}" was answered; ` +
          `last event ${JSON.stringify(last?.content ?? last?.errorCode)}, ${status}`,
      ];
}

const hasText = ({ content }: Event, text: string) => content?.parts?.some((part) => part.text === text) === true;

/** I6: one invocation per key of a user. */
function keyViolations({ invocations }: Stored): string[] {
  const keyed = [...invocations.values()].flat().filter(({ idempotency_key }) => idempotency_key !== null);
  const byKey = Map.groupBy(keyed, ({ user_id, idempotency_key }) => `${user_id} ${idempotency_key}`);
  return [...byKey].filter(([, rows]) => rows.length > 1).map(([key]) => `I6: several invocations with the key ${key}`);
}

/** I9: versions 0, 1, 2 …, whole. The tests delete none. */
async function artifactViolations(database: Pool, users: string[] | undefined): Promise<string[]> {
  const { rows } = await database.query<{
    name: string;
    next_version: number;
    versions: number[];
    contents: Buffer[];
    sums: Buffer[];
  }>(
    `select a.user_id || '/' || a.session_id || '/' || a.name as name, a.next_version,
            array_agg(v.version order by v.version) as versions,
            array_agg(coalesce(v.content, '') order by v.version) as contents,
            array_agg(v.sha256 order by v.version) as sums
     from artifacts a
     left join artifact_versions v
        on (v.app_name, v.user_id, v.session_id, v.artifact_name) = (a.app_name, a.user_id, a.session_id, a.name)
     where ($1::text[] is null or a.user_id = any($1))
     group by a.app_name, a.user_id, a.session_id, a.name`,
    [users ?? null],
  );
  return rows.flatMap(({ name, next_version, versions, contents, sums }) => {
    const gap = versions.length !== next_version || versions.some((version, position) => version !== position);
    const broken = contents.some((content, position) => {
      const sum = createHash('sha256').update(content).digest();
      return !sums[position] || Buffer.compare(sum, sums[position]) !== 0;
    });
    return [
      ...(gap ? [`I9: ${name} has the versions ${versions.join(',')} and next_version ${next_version}`] : []),
      ...(broken ? [`I9: ${name} has a version whose content is not its sum`] : []),
    ];
  });
}

/** The same by the API: the session is there, whole, and its events are the stored ones in their order. */
async function apiViolations(stored: Stored, session: SessionRow, api: Pick<TestApp, 'get'>): Promise<string[]> {
  const name = sessionOf(session.user_id, session.id);
  const { status, body } = await api.get(`/apps/${session.app_name}/users/${session.user_id}/sessions/${session.id}`);
  if (status !== 200) return [`${name}: API: status ${status}`];
  const { events, state } = body as { events: Event[]; state: JsonObject };
  const ids = (stored.events.get(name) ?? []).map(({ id }) => id);
  const own = Object.fromEntries(Object.entries(state).filter(([key]) => !isShared(key)));
  return [
    ...(events.map(({ id }) => id).join() === ids.join() ? [] : [`${name}: API: other events than the stored ones`]),
    ...(canonical(own) === canonical(session.state) ? [] : [`${name}: API: another state than the stored one`]),
  ];
}
