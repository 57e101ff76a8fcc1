import { and, eq, inArray, lt, sql } from 'drizzle-orm';
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { isAmong } from '../sessions/session-row.ts';
import { KeyReusedError, NotFoundError } from '../../core/errors.ts';
import { type SessionKey, sessionNotFound } from '../../core/session.ts';
import { inBatches, isInBatch } from '../../platform/db/batches.ts';
import type { Database, DatabasePool } from '../../platform/db/database.ts';
import type { Notifications } from '../../platform/db/notifications.ts';
import { idempotencyKeys } from '../../platform/db/schema/schema.ts';
import type { Feature } from '../../platform/feature/feature.ts';
import type { Answer, Operation } from '../../platform/http/operation/operation.ts';
import type { Principal } from '../../platform/http/operation/principal.ts';

interface IdempotencyKey {
  /** The application and the user that the request concerns; empty if there is none. */
  appName: string;
  userId: string;
  scope: string;
  key: string;
  hash: string;
}

const isKey = ({ appName, userId, scope, key }: Omit<IdempotencyKey, 'hash'>) =>
  and(
    eq(idempotencyKeys.appName, appName),
    eq(idempotencyKeys.userId, userId),
    eq(idempotencyKeys.scope, scope),
    eq(idempotencyKeys.key, key),
  );

/**
 * Reserves an idempotency key until the transaction ends; a concurrent request with the same key waits here.
 * @returns the stored response, or `undefined` for a new key
 * @throws {NotFoundError} if the session of the stored response was deleted
 */
async function reserveKey(tx: Database, key: IdempotencyKey): Promise<{ hash: string; answer: string } | undefined> {
  const { hash: requestHash, ...columns } = key;
  const reserved = await tx
    .insert(idempotencyKeys)
    .values({ ...columns, requestHash, responseBody: '' })
    .onConflictDoNothing()
    .returning({ key: idempotencyKeys.key });
  if (reserved.length === 1) return undefined;
  const [row] = await tx
    .select({
      hash: idempotencyKeys.requestHash,
      answer: idempotencyKeys.responseBody,
      sessionId: idempotencyKeys.sessionId,
    })
    .from(idempotencyKeys)
    .where(isKey(key));
  // The response was cleared with its session; a stored response is JSON and never empty.
  if (row?.answer === '') throw new NotFoundError(sessionNotFound(row.sessionId ?? ''));
  return row && { hash: row.hash, answer: row.answer };
}

/** Stores the response for a reserved key. It is cleared when session `sessionId` is deleted. */
async function keepAnswer(
  tx: Database,
  key: IdempotencyKey,
  answer: string,
  sessionId: string | undefined,
): Promise<void> {
  await tx
    .update(idempotencyKeys)
    .set({ responseBody: answer, sessionId: sessionId ?? null })
    .where(isKey(key));
}

/** Clears responses about deleted sessions; the keys stay, so that a late retry cannot re-create a session. */
async function forgetAnswers(tx: Database, keys: readonly SessionKey[]): Promise<void> {
  await tx.update(idempotencyKeys).set({ responseBody: '' }).where(isAmong(keys, idempotencyKeys));
}

/**
 * Scope of the idempotency keys of deleted invocations. A trigger inserts a key when an invocation's row is deleted.
 */
const OF_INVOCATIONS = 'invocation';

/** Refuses an idempotency key of a deleted invocation. @throws {NotFoundError} if there was one with this key */
export async function refuseForgottenKey(
  db: Database,
  { appName, userId }: Omit<SessionKey, 'sessionId'>,
  idempotencyKey: string,
): Promise<void> {
  const [row] = await db
    .select({ sessionId: idempotencyKeys.sessionId })
    .from(idempotencyKeys)
    .where(isKey({ appName, userId, scope: OF_INVOCATIONS, key: idempotencyKey }));
  if (row) throw new NotFoundError(sessionNotFound(row.sessionId ?? ''));
}

async function deleteOldKeys(db: Database, hours: number, signal?: AbortSignal): Promise<void> {
  const isOld = lt(idempotencyKeys.createTime, sql`statement_timestamp() - ${hours} * interval '1 hour'`);
  const isNext = isInBatch(idempotencyKeys, isOld, idempotencyKeys.createTime);
  await inBatches(() => db.delete(idempotencyKeys).where(isNext), signal);
}

/** Deletes stored responses to requests that name the user in the body, not in the path. @returns their number */
async function deleteAnswersNaming(
  db: Database,
  { appName, userId }: Pick<SessionKey, 'appName' | 'userId'>,
): Promise<number> {
  const { rowCount } = await db.delete(idempotencyKeys).where(namesUser(appName, userId));
  return rowCount ?? 0;
}

const countAnswersNaming = (db: Database, user: Pick<SessionKey, 'appName' | 'userId'>): Promise<number> =>
  db.$count(idempotencyKeys, namesUser(user.appName, user.userId));

const namesUser = (appName: string, userId: string) =>
  and(
    inArray(idempotencyKeys.appName, [appName, '']),
    eq(idempotencyKeys.userId, ''),
    sql`strpos(${idempotencyKeys.responseBody}, ${sql.param(JSON.stringify(userId), idempotencyKeys.responseBody)}) > 0`,
  );

const MAX_KEY_CHARACTERS = 255;

export const idempotencyHeaders = z.object({
  'idempotency-key': z
    .string()
    .min(1)
    .max(MAX_KEY_CHARACTERS)
    .optional()
    .describe('The same key and request give the same answer and are done once, for 24 hours.'),
});

/** An idempotency key with the SHA-256 of its request. */
export interface IdempotentRequest {
  idempotencyKey: string;
  hash: string;
}

/** Hashes everything that distinguishes two requests, so that the reuse of a key for another request is detected. */
export function fingerprint(idempotencyKey: string | undefined, requested: unknown): IdempotentRequest | undefined {
  if (idempotencyKey === undefined) return undefined;
  return { idempotencyKey, hash: createHash('sha256').update(JSON.stringify(requested)).digest('hex') };
}

interface IdempotentContext {
  database: DatabasePool;
  notifications: Notifications;
}

/**
 * Makes a POST or PATCH idempotent by `Idempotency-Key`: its handler runs inside the transaction that reserves the key.
 * Other operations are returned unchanged. So are operations that declare the header themselves: they call models,
 * which takes too long for a transaction, so they choose which part runs once.
 */
export function idempotent<Context extends IdempotentContext>(plain: Operation<Context>): Operation<Context> {
  if (plain.method !== 'post' && plain.method !== 'patch') return plain;
  const declared = plain.parameters?.headers?.shape ?? {};
  if ('idempotency-key' in declared) return plain;
  const handler: Operation<Context>['handler'] = async (context, call) => {
    if (!getKey(call)) return plain.handler(context, call);
    return {
      kind: 'json',
      text: await once(context, plain, call, async (inside) => toText(await plain.handler(inside, call))),
    };
  };
  const headers = idempotencyHeaders.extend(declared);
  return { ...plain, parameters: { ...plain.parameters, headers }, handler };
}

interface RequestParts {
  path: Subject;
  query: unknown;
  headers: unknown;
  body: unknown;
  principal: Principal;
}

const getKey = ({ headers }: Pick<RequestParts, 'headers'>) =>
  (headers as z.output<typeof idempotencyHeaders>)['idempotency-key'];

/**
 * Runs `work` once per `Idempotency-Key` and stores its text; without a key, runs it each time. With a key, the
 * context's database is the transaction that has reserved the key.
 * @throws {KeyReusedError} if the key was used for another request
 */
export async function once<Context extends IdempotentContext>(
  context: Context,
  { operationId, errors }: Pick<Operation<Context>, 'operationId' | 'errors'>,
  parts: RequestParts,
  work: (inside: Context) => Promise<string>,
): Promise<string> {
  const { path, query, body, principal } = parts;
  const request = fingerprint(getKey(parts), [path, query, body]);
  if (!request) return work(context);
  const key = {
    ...toSubject(path, body, principal),
    scope: `${operationId} ${toScope(principal)}`,
    key: request.idempotencyKey,
    hash: request.hash,
  };
  let topics: string[] = [];
  // The response of an operation without 404, such as saving an artifact, is kept when the session is deleted.
  const findSession = (answer: string) => (errors?.[404] ? findSessionId(path, body, answer) : undefined);
  const text = await doOnce(context.database, key, findSession, async (database) => {
    // If the transaction is retried, topics of the failed attempt must not be published.
    topics = [];
    const notifications = collectTopics(context.notifications, topics);
    return work({ ...context, database, notifications });
  });
  // Publish after the commit. A reader woken earlier would find nothing and poll again only a second later.
  for (const topic of topics) context.notifications.publish(topic);
  return text;
}

const collectTopics = (notifications: Notifications, topics: string[]): Notifications => ({
  publish: (topic) => void topics.push(topic),
  subscribe: (topic, wake) => notifications.subscribe(topic, wake),
  close: () => notifications.close(),
});

/** Namespace of idempotency keys: per user, or per API key with an id. Keys of `RUNTIME_API_KEYS` share one. */
const toScope = (principal: Principal) => {
  if (principal.kind === 'user') return `user ${principal.userId}`;
  return principal.kind === 'key' && principal.id !== undefined ? `key ${principal.id}` : principal.kind;
};

/** The user whom a stored response concerns, so that erasing the user deletes the response. */
const toSubject = ({ appName = '', userId }: Subject, body: unknown, principal: Principal) => ({
  appName,
  userId: userId ?? namedIn(body, 'userId') ?? (principal.kind === 'user' ? principal.userId : ''),
});

/** The session that a response concerns: named by the path or the body, or just created. */
function findSessionId({ userId, sessionId }: Subject, body: unknown, answer: string): string | undefined {
  if (sessionId !== undefined) return sessionId;
  if (userId === undefined && namedIn(body, 'userId') === undefined) return undefined;
  return namedIn(body, 'sessionId') ?? namedIn(JSON.parse(answer), 'id');
}

function namedIn(value: unknown, name: string): string | undefined {
  const member: unknown =
    typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[name] : undefined;
  return typeof member === 'string' ? member : undefined;
}

interface Subject {
  appName?: string;
  userId?: string;
  sessionId?: string;
}

function toText(answer: Answer | void): string {
  if (!answer) return 'null';
  if (answer.kind === 'json') return answer.text;
  if (answer.kind === 'value') return JSON.stringify(answer.value);
  throw new TypeError('an operation with an Idempotency-Key must answer JSON');
}

/**
 * The writes of `work`, the key and the response commit together, so a retry finds all or nothing. A failed request
 * leaves the key unused.
 * @param findSession - returns the session that a response concerns; the response is deleted with it
 */
function doOnce(
  database: DatabasePool,
  key: IdempotencyKey,
  findSession: (answer: string) => string | undefined,
  work: (inside: DatabasePool) => Promise<string>,
): Promise<string> {
  return database.transaction(async (tx) => {
    const earlier = await reserveKey(tx, key);
    if (earlier && earlier.hash !== key.hash)
      throw new KeyReusedError('the Idempotency-Key was used for another request');
    if (earlier) return earlier.answer;
    const inside = {
      ...database,
      db: tx,
      reads: tx,
      transaction: <T>(more: (db: typeof tx) => Promise<T>) => more(tx),
    };
    const answer = await work(inside);
    await keepAnswer(tx, key, answer, findSession(answer));
    return answer;
  });
}

export const IDEMPOTENCY_HOURS = 24;

export const idempotencyFeature = {
  name: 'idempotency',
  parameters: { IdempotencyKey: idempotencyHeaders.shape['idempotency-key'] },
  sweeps: [
    {
      group: 'minutely',
      name: 'deleting old idempotency keys',
      run: ({ database, signal }) => deleteOldKeys(database.db, IDEMPOTENCY_HOURS, signal),
    },
  ],
  userTables: [{ table: idempotencyKeys, exported: 'no' }],
  userCopies: [
    {
      count: async (db, user) => ({ idempotency_keys: await countAnswersNaming(db, user) }),
      erase: async ({ database }, user) => ({ idempotency_keys: await deleteAnswersNaming(database.db, user) }),
    },
  ],
  forgetSessions: (_context, tx, keys) => forgetAnswers(tx, keys),
} satisfies Feature<{ database: DatabasePool }>;
