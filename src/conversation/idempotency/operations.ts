import { createHash } from 'node:crypto';
import { z } from 'zod';
import { KeyReusedError } from '../../core/errors.ts';
import type { DatabasePool } from '../../platform/db/database.ts';
import type { Notifications } from '../../platform/db/notifications.ts';
import type { Answer, Operation } from '../../platform/http/operation/operation.ts';
import type { Principal } from '../../platform/http/operation/principal.ts';
import { type IdempotencyKey, keepAnswer, reserveKey } from './key-store.ts';

const MAX_KEY_CHARACTERS = 255;

/** The header of every operation that changes something. */
export const idempotencyHeaders = z.object({
  'idempotency-key': z
    .string()
    .min(1)
    .max(MAX_KEY_CHARACTERS)
    .optional()
    .describe('The same key and request give the same answer and are done once, for 24 hours.'),
});

/** The `Idempotency-Key` of a request and the SHA-256 of what it asks for. */
export interface IdempotentRequest {
  idempotencyKey: string;
  hash: string;
}

/** A request with its key; `undefined` without one. `requested` is all that makes two requests the same. */
export function fingerprint(idempotencyKey: string | undefined, requested: unknown): IdempotentRequest | undefined {
  if (idempotencyKey === undefined) return undefined;
  return { idempotencyKey, hash: createHash('sha256').update(JSON.stringify(requested)).digest('hex') };
}

/** Dependencies of idempotent operations. */
interface IdempotentContext {
  database: DatabasePool;
  notifications: Notifications;
}

/**
 * An operation that changes something (POST, PATCH), done once per `Idempotency-Key`: with a key its handler gets, as
 * the database, the transaction that holds the key. Other operations come back as they are, and so do those that
 * declare the header themselves: no transaction may last as long as a model call, so they say which part is done once.
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

/** A request as {@link once} looks at it. */
interface Sent {
  path: Subject;
  query: unknown;
  headers: unknown;
  body: unknown;
  principal: Principal;
}

const getKey = ({ headers }: Pick<Sent, 'headers'>) =>
  (headers as z.output<typeof idempotencyHeaders>)['idempotency-key'];

/**
 * Does a part of a request, whose text is kept, once per `Idempotency-Key`; without a key, each time. With one, `work`
 * gets a context whose database is the transaction that holds the key.
 * @throws {KeyReusedError} when the key came with another request before.
 */
export async function once<Context extends IdempotentContext>(
  context: Context,
  { operationId, errors }: Pick<Operation<Context>, 'operationId' | 'errors'>,
  sent: Sent,
  work: (inside: Context) => Promise<string>,
): Promise<string> {
  const { path, query, body, principal } = sent;
  const request = fingerprint(getKey(sent), [path, query, body]);
  if (!request) return work(context);
  const key = {
    ...toSubject(path, body, principal),
    scope: `${operationId} ${toScope(principal)}`,
    key: request.idempotencyKey,
    hash: request.hash,
  };
  let topics: string[] = [];
  // What does not need its session outlives it: an artifact does, with the answer that says what it is.
  const findSession = (answer: string) => (errors?.[404] ? findSessionId(path, body, answer) : undefined);
  const text = await doOnce(context.database, key, findSession, async (database) => {
    // A transaction that is repeated begins anew.
    topics = [];
    const notifications = collectTopics(context.notifications, topics);
    return work({ ...context, database, notifications });
  });
  // Published after the commit: a reader that is woken before it would find nothing, and poll again a second later.
  for (const topic of topics) context.notifications.publish(topic);
  return text;
}

/** Notifications that keep what is published for later. */
const collectTopics = (notifications: Notifications, topics: string[]): Notifications => ({
  publish: (topic) => void topics.push(topic),
  subscribe: (topic, wake) => notifications.subscribe(topic, wake),
  close: () => notifications.close(),
});

/** The namespace of a caller's keys: one per user and per runtime key with an id; `RUNTIME_API_KEYS` share one. */
const toScope = (principal: Principal) => {
  if (principal.kind === 'user') return `user ${principal.userId}`;
  return principal.kind === 'key' && principal.id !== undefined ? `key ${principal.id}` : principal.kind;
};

/** The user whom a kept answer is about, so that erasing a user finds it. */
const toSubject = ({ appName = '', userId }: Subject, body: unknown, principal: Principal) => ({
  appName,
  userId: userId ?? namedIn(body, 'userId') ?? (principal.kind === 'user' ? principal.userId : ''),
});

/** The session that an answer is about: the one that path or body names beside its user, or the one that was made. */
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

/** The parts of the subject that a path may name. */
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
 * Does a request once per key: the work, its key and its answer are one transaction, so that a retry finds all of it
 * or nothing. The work gets the transaction in place of the pool. A request that fails leaves the key free.
 * `findSession` says which session an answer is about: it is forgotten with that.
 * @throws {KeyReusedError} when the key came with another request before.
 */
function doOnce(
  database: DatabasePool,
  key: IdempotencyKey,
  findSession: (answer: string) => string | undefined,
  work: (inside: DatabasePool) => Promise<string>,
): Promise<string> {
  return database.transaction(async (tx) => {
    const kept = await reserveKey(tx, key);
    if (kept && kept.hash !== key.hash) throw new KeyReusedError('the Idempotency-Key was used for another request');
    if (kept) return kept.answer;
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
