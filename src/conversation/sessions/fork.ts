import { type SQL, sql } from 'drizzle-orm';
import { z } from 'zod';
import { newLabelsSchema } from './labels.ts';
import { type ForkPoint, session, type SessionContext } from './session-context.ts';
import { isSession, type SessionRef } from './session-row.ts';
import { checkReached } from './session-store.ts';
import { firstTextAt, ownStateAt, s } from './session-text.ts';
import { limitedBytes } from '../storage/storage-store.ts';
import { SessionExistsError } from '../../core/errors.ts';
import { looseObject, optional } from '../../core/members.ts';
import { chosenIdentifierSchema, isEvalSession, type SessionKey } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { events, sessions } from '../../platform/db/schema/schema.ts';
import { exactTime, insertSelect } from '../../platform/db/sql.ts';
import { INT32_MAX } from '../../platform/http/operation/parameters.ts';

/** Finds the fork point after event `atSequence`, by default after the last event. */
export async function findForkPoint(
  db: Database,
  key: SessionKey,
  atSequence: number | undefined,
): Promise<ForkPoint | undefined> {
  const n = sql`moment.n`;
  const { rows } = await db.execute<ForkPoint & Record<string, unknown>>(sql`
    select ${s.lastSequence} as reached, ${n} as "atSequence", ${nextTimeAfter(key, n)} as "nextTime",
           ${versionsSaved(key, 'until', n)} as saved,
           ${versionsSaved(key, 'after', n)} as "savedLater"
    from ${sessions} ${s}
      cross join lateral (select coalesce(${atSequence ?? null}::int, ${s.lastSequence}) as n offset 0) moment
    where ${isSession(key, s)}`);
  return rows[0];
}

interface NewFork {
  sessionId: string;
  atSequence: number;
  labels: Record<string, string>;
  /** Maximum bytes of the new session's events. Default: the limit of every session. */
  maxBytes?: number;
}

/**
 * Creates a session from the first events of another session, with the state at that point, in a single statement.
 * Afterwards both sessions are independent. Invocations stay with the source session.
 * @returns false if the new id is taken or the source session was deleted
 */
export async function insertFork(db: Database, source: SessionKey, fork: NewFork): Promise<boolean> {
  const n = sql`${fork.atSequence}::int`;
  const forked = insertSelect(sessions, {
    appName: s.appName,
    userId: s.userId,
    id: fork.sessionId,
    state: sql`own.state`,
    initialState: s.initialState,
    firstText: sql`coalesce(${firstTextAt(source, n)}, '')`,
    lastSequence: n,
    eventBytes: sql`own.bytes`,
    isEval: sql`${isEvalSession(fork.sessionId)}::boolean`,
    labels: fork.labels,
    forkedFromId: s.id,
    forkedFromSequence: n,
  });
  const { rows } = await db.execute(sql`
    with own as materialized (
      select ${ownStateAt(source, n)} as state, assert_session_size(
        ${bytesUpTo(source, n)}::bigint, ${fork.maxBytes ?? db.limits.maxSessionBytes}::bigint) as bytes
      from ${sessions} ${s} where ${isSession(source, s)}),
    made as (
      ${forked} from own, ${sessions} ${s} where ${isSession(source, s)} and ${limitedBytes(
        db,
        source,
        sql`own.bytes + state_size(own.state, ${s.initialState})`,
        true,
      )} is not null on conflict do nothing returning 1),
    copied as (${insertedCopies(source, n, fork.sessionId, sql`exists (select from made)`)})
    select from made`);
  return rows.length > 0;
}

/** SQL: ISO 8601 time of the event after `n`, or null. `bigint`, because `n` may be the largest integer. */
const nextTimeAfter = (key: SessionRef, n: SQL): SQL => sql`(
  select ${exactTime(events.eventTime)} from ${events}
  where ${isSession(key, events)} and ${events.sequence} = ${n}::bigint + 1)`;

const artifactDelta = sql`case jsonb_typeof(${events.payload} #> '{actions,artifactDelta}')
  when 'object' then ${events.payload} #> '{actions,artifactDelta}' else '{}' end`;

/** SQL: by artifact name, the highest version saved up to sequence `n`, or the lowest version saved after it. */
function versionsSaved(key: SessionRef, which: 'until' | 'after', n: SQL): SQL {
  const [pick, isWanted] = which === 'until' ? [sql`max`, sql`<=`] : [sql`min`, sql`>`];
  return sql`coalesce((
    select jsonb_object_agg(key, version) from (
      select saved.key, ${pick}(saved.value::numeric) as version
      from ${events} cross join lateral jsonb_each(${artifactDelta}) saved
      where ${isSession(key, events)} and ${events.sequence} ${isWanted} ${n} and jsonb_typeof(saved.value) = 'number'
      group by saved.key) of_name), '{}')`;
}

const bytesUpTo = (key: SessionRef, n: SQL): SQL => sql`(
  select coalesce(sum(${events.bytes}), 0)
  from ${events} where ${isSession(key, events)} and ${events.sequence} <= ${n})`;

/** SQL: if `condition` holds, copies a session's events up to sequence `n` into another session of the user. */
function insertedCopies(source: SessionKey, n: SQL, sessionId: string, condition: SQL): SQL {
  const copies = insertSelect(events, {
    appName: events.appName,
    userId: events.userId,
    sessionId,
    sequence: events.sequence,
    id: events.id,
    invocationId: events.invocationId,
    author: events.author,
    eventTime: events.eventTime,
    isFromRuntime: events.isFromRuntime,
    payload: events.payload,
    bytes: events.bytes,
  });
  return sql`${copies} from ${events}
    where ${isSession(source, events)} and ${events.sequence} <= ${n} and ${condition}`;
}

const forkRequestSchema = looseObject('Where a session is forked.', {
  sessionId: chosenIdentifierSchema.nullish().describe('Chosen id of the new session; else the server makes it.'),
  atSequence: optional(
    z.int().min(0).max(INT32_MAX),
    'Number of events that are taken over; 0 is none of them, and without it all are.',
  ),
  labels: newLabelsSchema.nullish().describe('Labels of the new session; those of the other one stay there.'),
});

const forkSchema = looseObject('A session that was made from another one.', {
  id: z.string().describe('The new session.'),
  appName: z.string().describe('The application.'),
  userId: z.string().describe('The user.'),
  forkedFrom: looseObject('Where it comes from.', {
    sessionId: z.string().describe('The session that it was made from.'),
    atSequence: z.int().describe('Number of events that were taken over.'),
  }),
  artifactVersions: z.int().describe('Number of versions of artifacts that were copied.'),
});

const example = {
  id: 's2',
  appName: 'harness_agent',
  userId: 'u1',
  forkedFrom: { sessionId: 's1', atSequence: 2 },
  artifactVersions: 0,
};

interface ForkRequest {
  sessionId: string;
  /** Number of events to copy. Default: all. */
  atSequence?: number | null | undefined;
  labels?: Record<string, string> | null | undefined;
}

/**
 * Creates a session from the first events of another session, with the state and the artifacts at that point.
 * @returns what was copied; `undefined` if the source session does not exist
 * @throws {ConflictError} if the new session's id is taken
 * @throws {InvalidError} if the source session has fewer events
 */
export async function forkAt(
  { database, copyArtifacts }: Pick<SessionContext, 'database' | 'copyArtifacts'>,
  key: SessionKey,
  { sessionId, labels, ...from }: ForkRequest,
): Promise<{ atSequence: number; artifactVersions: number } | undefined> {
  const point = await findForkPoint(database.db, key, from.atSequence ?? undefined);
  if (!point) return undefined;
  const { reached, atSequence } = point;
  checkReached(reached, atSequence);
  const artifactVersions = await copyArtifacts(key, point, (insertArtifacts) =>
    database.transaction(async (tx) => {
      if (await insertFork(tx, key, { sessionId, atSequence, labels: labels ?? {} }))
        return insertArtifacts(tx, sessionId);
      if (!(await findForkPoint(tx, key, 0))) return undefined;
      throw new SessionExistsError(sessionId);
    }),
  );
  return artifactVersions === undefined ? undefined : { atSequence, artifactVersions };
}

export const forkSession = session.action('fork')({
  operationId: 'forkSession',
  load: 'heavy',
  summary: 'Fork a session',
  description:
    'Makes a session of the same user with the first events of this one, the state and the artifacts of then. The ' +
    'two share nothing afterwards but the `user:` and `app:` state, which have no history. Artifacts of then are ' +
    'the versions that these events saved, and those that were saved before the next event and that no later one ' +
    'names. What is known of the invocations beside their events (status, tape, tasks) stays with the first session: an ' +
    'open question is answered there, and here with 409.',
  body: { schema: forkRequestSchema, required: false, example: { sessionId: 's2', atSequence: 2 } },
  success: { schema: forkSchema, description: 'What was made.', example },
  errors: {
    400: 'The session has not reached `atSequence`.',
    404: 'No such session or application.',
    409: 'The id is taken, by a session or by artifacts of a deleted one.',
    413: 'The artifacts are too many or too large to copy, the user would keep too much, or the body is too large.',
  },
  run: async (context, { path, body, notFound }) => {
    const { appName, userId } = path;
    const sessionId = body?.sessionId?.trim() || context.newId();
    const fork = await forkAt(context, path, { sessionId, atSequence: body?.atSequence, labels: body?.labels });
    if (!fork) throw notFound();
    const { atSequence, artifactVersions } = fork;
    const forkedFrom = { sessionId: path.sessionId, atSequence };
    return { id: sessionId, appName, userId, forkedFrom, artifactVersions };
  },
});
