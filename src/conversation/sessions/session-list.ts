import { and, eq, isNull, not, type SQL, sql } from 'drizzle-orm';
import type { AnyPgColumn } from 'drizzle-orm/pg-core';
import { z } from 'zod';
import { callsTool, hasErrorEvent } from './event-store.ts';
import { exampleListedSession, session } from './session-context.ts';
import { type LabelChoice, labelCondition, MAX_LABELS, toLabelChoice } from './labels.ts';
import { clampedSeconds } from './session-store.ts';
import { estimatedBytes, s, sessionTexts } from './session-text.ts';
import type { Database } from '../../platform/db/database.ts';
import { appStates, sessions, userStates } from '../../platform/db/schema/schema.ts';
import { exactTime } from '../../platform/db/sql.ts';
import { statement, value } from '../../platform/db/statement.ts';
import {
  cursorSchema,
  type ListPlace,
  NEXT_CURSOR_HEADER,
  toCursor,
  toPlace,
} from '../../platform/http/operation/cursor.ts';
import { filterText, pageSize } from '../../platform/http/operation/parameters.ts';
import { escapeJson, unescapeJson } from '../../platform/json-escape.ts';
import type { JsonStream } from '../../platform/json-stream.ts';

/** Sort order of a session list; ties are broken by id. */
interface SessionOrder {
  sort: 'updated' | 'created';
  order: 'desc' | 'asc';
}

/** Selects a part of a user's session list. Default: all sessions. Times are Unix seconds. */
export interface SessionPage extends Partial<SessionOrder> {
  limit?: number | undefined;
  /** The list starts after this session (keyset pagination). */
  after?: ListPlace | undefined;
  updatedAfter?: number | undefined;
  updatedBefore?: number | undefined;
  createdAfter?: number | undefined;
  createdBefore?: number | undefined;
  /** Only sessions that have all of these labels. */
  labels?: LabelChoice | undefined;
  /** Only the child sessions of this session. */
  parentSessionId?: string | undefined;
  /** Only sessions whose first text contains this text, ignoring case. */
  text?: string | undefined;
  /** True: include the optional members of the type Session. */
  withDetails?: boolean | undefined;
}

/** Limits of a statement that lists all sessions: their number, and bytes of their states (the first may exceed it). */
const MAX_SESSIONS = 1_000;
const MAX_STATE_BYTES = 4_194_304;
/** Maximum sessions examined for a filtered page. Text and labels have no index: each append would update it. */
const MAX_LOOKED_AT = 250;

const USER = { appName: value('appName'), userId: value('userId') };
const SIZE = sql`${value('size')}::int`;

/** SQL: the state shared by all listed sessions; computed once, because joining it to each would be slow. */
const SHARED = sql`shared as materialized (
  select nullif(merged.state, '{}') as state, octet_length(merged.state::text) as bytes from (select
    coalesce((select ${appStates.state} from ${appStates} where ${appStates.appName} = ${USER.appName}), '{}') ||
    coalesce((select ${userStates.state} from ${userStates}
              where ${userStates.appName} = ${USER.appName} and ${userStates.userId} = ${USER.userId}), '{}') as state
    offset 0) merged)`;

/**
 * SQL query: the JSON of the first sessions `s` of `from`: at most `SIZE`, and as many as fit into `MAX_STATE_BYTES`
 * with the shared state. `n` is `count` over these, `is_more` true if `from` has more. One pass in the order of `from`.
 * Nothing is sorted if an index has that order, except before PostgreSQL 16, which sorts for `string_agg`; the sessions
 * examined for a filtered page, and those of a list of ids, are sorted.
 */
function pageOf(from: SQL, inOrder: SQL, count: SQL, withDetails: boolean): SQL {
  const owner = sql`${value('owner')}::text`;
  const texts = sessionTexts({ withDetails, owner, state: sql`coalesce(${s.state} || shared_state, ${s.state})` });
  return sql`
    select string_agg(case when is_taken then concat(${texts[0]}, ${texts[1]}) end, ',' ${inOrder}) as text,
           (${count} filter (where is_taken))::int as n, not bool_and(is_taken) as is_more
    from (
      select ${s}.*, shared.state as shared_state,
             place <= ${SIZE} and (place = 1 or ${s}.bytes + place * shared.bytes <= ${MAX_STATE_BYTES}) as is_taken
      from (
        select ${s}.*, row_number() over listed as place, sum(${estimatedBytes(s.state)}) over listed as bytes
        ${from} window listed as (${inOrder} rows unbounded preceding) ${inOrder} limit ${SIZE} + 1) ${s}, shared) ${s}`;
}

/**
 * Lists a user's sessions as a JSON array, newest first by default, with empty `events`; sessions of evaluation runs
 * are left out, and child sessions unless their parent is named. Usually one statement. A very long list is read by several statements in the order that the first one
 * found. `next` is the position of the last examined session, if more sessions follow.
 */
export async function listSessions(
  db: Database,
  appName: string,
  userId: string,
  {
    after,
    limit,
    withDetails = false,
    sort = 'updated',
    order = 'desc',
    labels,
    text = '',
    parentSessionId,
    ...filter
  }: SessionPage = {},
): Promise<JsonStream & { next?: ListPlace }> {
  const { updatedAfter, updatedBefore, createdAfter, createdBefore } = filter;
  const others = sort === 'updated' ? [createdAfter, createdBefore] : [updatedAfter, updatedBefore];
  const isFiltered = text !== '' || [...others, labels].some((each) => each !== undefined);
  const isPage = limit !== undefined;
  const isOfParent = parentSessionId !== undefined;
  const [row] = await selectSessions({ sort, order, isPage, isFiltered, isOfParent, withDetails })(db, {
    ...(isOfParent && { parentSessionId }),
    updatedAfter: clampedSeconds(updatedAfter ?? -Infinity),
    updatedBefore: clampedSeconds(updatedBefore ?? Infinity),
    createdAfter: clampedSeconds(createdAfter ?? -Infinity),
    createdBefore: clampedSeconds(createdBefore ?? Infinity),
    ...toValues({ appName, userId }),
    labelValues: labels?.values.map(escapeJson) ?? [],
    labelNames: labels?.names ?? [],
    text,
    size: limit ?? MAX_SESSIONS,
    afterTime: after?.time ?? (order === 'desc' ? 'infinity' : '-infinity'),
    afterId: after?.id ?? '',
  });
  const { text: listed, further = [], last } = row ?? {};
  const first = ['[', unescapeJson(listed ?? ''), ']'];
  if (isPage) return { first, ...(last && { next: last }) };
  return further.length === 0
    ? { first }
    : { first: first.slice(0, -1), rest: readFurtherSessions(db, { appName, userId, withDetails }, further) };
}

/** The parameters of a statement that the user has; `owner` has the same in JSON, as stored. */
const toValues = (user: { appName: string; userId: string }) => ({ ...user, owner: escapeJson(user).slice(1, -1) });

interface ListRow {
  text: string | null;
  further: string[];
  last: ListPlace | null;
}

/**
 * Selects one of the 64 texts of the statement. All other filters are parameters of the text, because each set of
 * filters as a text would need a plan of its own.
 */
interface ListShape extends SessionOrder {
  isPage: boolean;
  /** True: has a filter that is evaluated on the session's row, after the index has found the row. */
  isFiltered: boolean;
  /** True: lists the child sessions of one session, false: those that are no children. */
  isOfParent: boolean;
  withDetails: boolean;
}

/**
 * SQL condition: a time is between two in Unix seconds. No bound has a COALESCE, because PostgreSQL counts it as leaky,
 * and a condition that is leaky does not narrow the range of an index behind a row-level security policy.
 */
const isBetween = (time: AnyPgColumn, after: string, before: string): SQL =>
  sql`${time} > to_timestamp(${value(after)}::float8) and ${time} < to_timestamp(${value(before)}::float8)`;
const TIMES = {
  updated: { column: s.updateTime, isWanted: isBetween(s.updateTime, 'updatedAfter', 'updatedBefore') },
  created: { column: s.createTime, isWanted: isBetween(s.createTime, 'createdAfter', 'createdBefore') },
};
const TEXT = sql.param(value('text'), s.firstText);
const HAS_TEXTS = sql`${s.labels} @> all(${value('labelValues')}::jsonb[])
  and ${s.labels} ?& ${value('labelNames')}::text[] and position(lower(${TEXT}) in lower(${s.firstText})) > 0`;

const lists = new Map<string, ReturnType<typeof statement<ListRow>>>();

function selectSessions(shape: ListShape): ReturnType<typeof statement<ListRow>> {
  const name = JSON.stringify(shape);
  const select = lists.get(name) ?? statement<ListRow>(() => listText(shape));
  lists.set(name, select);
  return select;
}

function listText({ sort, order, isPage, isFiltered, isOfParent, withDetails }: ListShape): SQL {
  const { column: time, isWanted } = TIMES[sort];
  const [direction, beyond] = order === 'desc' ? [sql`desc`, sql`<`] : [sql`asc`, sql`>`];
  const position = sql`(${time}, ${s.id}) ${beyond} (${value('afterTime')}::timestamptz, ${value('afterId')}::text)`;
  const fits = and(TIMES[sort === 'updated' ? 'created' : 'updated'].isWanted, HAS_TEXTS);
  const isBounded = isPage && isFiltered;
  // The conditions on the time by which the list is sorted narrow the range of the index.
  const isListed = and(
    eq(s.appName, USER.appName),
    eq(s.userId, USER.userId),
    not(s.isEval),
    isOfParent ? eq(s.parentSessionId, sql`${value('parentSessionId')}::text`) : isNull(s.parentSessionId),
    position,
    isWanted,
    isFiltered && !isPage ? fits : undefined,
  );
  const inOrder = sql`order by ${time} ${direction}, ${s.id} ${direction}`;
  const place = sql`json_build_object('id', ${s.id}, 'time', ${exactTime(time)})`;
  const listed = sql`from ${sessions} ${s} where ${isListed}`;
  const most = sql.raw(`${MAX_LOOKED_AT}`);
  // Keeps the matches among the examined sessions, and the position of the last examined session for the next page.
  const looked = sql`looked as materialized (
    select * from (
      select ${s}.*, row_number() over () as nth, ${fits} as fits
      from (select ${s}.* ${listed} ${inOrder} limit ${most}) ${s}) ${s}
    where fits or nth = ${most}), `;
  const matches = isBounded ? sql`from looked ${s} where fits` : listed;
  // If too few matches were found, unexamined sessions may remain: the next page starts after the last examined.
  const bound = isBounded ? sql`(select ${place} from looked ${s} where nth = ${most})` : sql`null`;
  const more = isPage
    ? sql`'{}'::text[] as further,
      case when is_more then (select ${place} ${matches} ${inOrder} limit 1 offset n - 1) else ${bound} end as last`
    : sql`case when is_more then array(select ${s.id} ${listed} ${inOrder} offset n)::text[]
          else '{}' end as further, null as last`;
  return sql`
    with ${isBounded ? looked : sql``}${SHARED},
    page as materialized (${pageOf(matches, inOrder, sql`count(*)`, withDetails)})
    select text, ${more} from page`;
}

async function* readFurtherSessions(
  db: Database,
  { appName, userId, withDetails }: { appName: string; userId: string; withDetails: boolean },
  ids: string[],
): AsyncGenerator<string[]> {
  for (let from = 0; from < ids.length; ) {
    const pageIds = ids.slice(from, from + MAX_SESSIONS);
    const select = withDetails ? selectDetailed : selectPlain;
    const [page] = await select(db, { ...toValues({ appName, userId }), wanted: pageIds, size: MAX_SESSIONS });
    // Sessions that were deleted meanwhile have no row, so the number of rows does not tell how many ids were handled.
    from += page?.n ?? MAX_SESSIONS;
    const text = page?.text;
    if (text) yield [',', unescapeJson(text)];
  }
  yield [']'];
}

/** SQL: reads the next sessions of a list of ids; `n` is the position of the last one that was read. */
const selectWanted = (withDetails: boolean) =>
  statement<{ text: string | null; n: number | null }>(() => {
    const from = sql`
      from (select ${s}.*, wanted.ordinal
            from unnest(${value('wanted')}::text[]) with ordinality as wanted(id, ordinal), ${sessions} ${s}
            where ${s.appName} = ${USER.appName} and ${s.userId} = ${USER.userId} and ${s.id} = wanted.id) ${s}`;
    return sql`with ${SHARED} ${pageOf(from, sql`order by ${s}.ordinal`, sql`max(${s}.ordinal)`, withDetails)}`;
  });
const [selectPlain, selectDetailed] = [selectWanted(false), selectWanted(true)];

/** Filters on sessions: a session must match all that are set. Sessions of evaluation runs never match. */
interface SessionChoice {
  appName: string;
  userIds?: string[] | undefined;
  keys?: { userId: string; sessionId: string }[] | null | undefined;
  /** Time of the last update in Unix seconds: `updatedFrom` is inclusive, `updatedBefore` exclusive. */
  updatedFrom?: number | null | undefined;
  updatedBefore?: number | null | undefined;
  /** Name of a tool: only sessions in which an agent called it. */
  tool?: string | null | undefined;
  /** True: only sessions with an error event; false: only sessions without one. */
  hasError?: boolean | null | undefined;
  /** Label conditions as in requests (`name=value` or `name`); a session must match all. */
  labels?: string[] | null | undefined;
  /** Conditions of other features on a session, as SQL about the row `s`. */
  also?: (SQL | undefined)[];
  limit: number;
}

export interface ChosenSession {
  userId: string;
  sessionId: string;
  lastSequence: number;
}

/** Lists matching sessions that have events, last updated first, in a single statement. */
export async function listChosenSessions(db: Database, choice: SessionChoice): Promise<ChosenSession[]> {
  const { userIds, keys, updatedFrom, updatedBefore, tool, hasError, labels } = choice;
  const column = (name: 'userId' | 'sessionId') => sql`${sql.param((keys ?? []).map((key) => key[name]))}::text[]`;
  const conditions = [
    eq(s.appName, choice.appName),
    not(s.isEval),
    isNull(s.parentSessionId),
    sql`${s.lastSequence} > 0`,
    userIds && sql`${s.userId} = any(${sql.param(userIds)}::text[])`,
    keys
      ? sql`(${s.userId}, ${s.id}) in (select * from unnest(${column('userId')}, ${column('sessionId')}))`
      : undefined,
    updatedFrom == null ? undefined : sql`${s.updateTime} >= to_timestamp(${updatedFrom}::float8)`,
    updatedBefore == null ? undefined : sql`${s.updateTime} < to_timestamp(${updatedBefore}::float8)`,
    tool == null ? undefined : callsTool(tool),
    hasError == null ? undefined : hasError ? hasErrorEvent : not(hasErrorEvent),
    labels ? hasLabels(labels) : undefined,
    ...(choice.also ?? []),
  ];
  const { rows } = await db.execute<{ userId: string; sessionId: string; lastSequence: number }>(sql`
    select ${s.userId} as "userId", ${s.id} as "sessionId", ${s.lastSequence} as "lastSequence"
    from ${sessions} ${s} where ${and(...conditions)}
    order by ${s.updateTime} desc, ${s.userId}, ${s.id} limit ${choice.limit}`);
  return rows;
}

function hasLabels(conditions: string[]): SQL {
  const { values, names } = toLabelChoice(conditions);
  return sql`(${s.labels} @> all(${sql.param(values.map(escapeJson))}::jsonb[])
    and ${s.labels} ?& ${sql.param(names)}::text[])`;
}

const seconds = (which: string) => z.number().optional().describe(`Only sessions ${which} this Unix time in seconds.`);

const listQuery = z.object({
  sort: z.enum(['updated', 'created']).default('updated').describe('The time that they are sorted by.'),
  order: z.enum(['desc', 'asc']).default('desc').describe('`desc`: newest first; `asc`: oldest first.'),
  limit: pageSize('Maximum number of sessions of a page [all].').optional(),
  cursor: cursorSchema,
  updatedAfter: seconds('updated after'),
  updatedBefore: seconds('updated before'),
  createdAfter: seconds('created after'),
  createdBefore: seconds('created before'),
  label: z
    .array(labelCondition)
    .max(MAX_LABELS)
    .optional()
    .describe('Only sessions with this label, `name=value`, or `name` for whatever value; several: with all of them.'),
  text: z
    .string()
    .min(1)
    .max(256)
    .optional()
    .describe('Only sessions whose first text of the user has this in it, in its first 200 characters, in any case.'),
  parentSessionId: filterText(
    'Only those in which agents work that others of this session called like tools; without it those are left out.',
  ),
  withDetails: z
    .boolean()
    .default(false)
    .describe("True: with the members of `Session` that ADK's own clients do not know."),
});

/** The name of a sort order in cursors; the default order has none. */
const toName = ({ sort, order }: SessionOrder) =>
  sort === 'updated' && order === 'desc' ? undefined : `${sort} ${order}`;

export const listSessionsOperation = session.list({
  wire: 'ADK',
  load: 'heavy',
  description:
    'Newest first unless `order` says otherwise, then by id. Sessions made by evaluation runs are left out, and those of agents that others called like tools; ' +
    '`events` is always `[]`. All of them, or with `limit` a page: shorter where states are large, with conditions ' +
    `only of the next 250 sessions, so also empty. Where there may be more, the header \`${NEXT_CURSOR_HEADER}\` is ` +
    'the `cursor` of the next one.',
  query: listQuery,
  success: { example: [exampleListedSession] },
  handler: async ({ database }, { path: { appName, userId }, query, response }) => {
    const { cursor, label, ...filter } = query;
    const sort = toName(filter);
    const page = { ...filter, after: toPlace(cursor, sort), labels: label && toLabelChoice(label) };
    const { next, ...text } = await listSessions(database.reads, appName, userId, page);
    if (next) response.setHeader(NEXT_CURSOR_HEADER, toCursor({ ...next, sort }));
    return { kind: 'stream', text: text };
  },
});
