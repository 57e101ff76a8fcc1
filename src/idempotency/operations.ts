import type { z } from 'zod';
import type { DatabasePool } from '../db/database.ts';
import type { Notifications } from '../db/notifications.ts';
import type { Answer, Operation } from '../http/operation/operation.ts';
import type { Principal } from '../http/operation/principal.ts';
import { doOnce } from './do-once.ts';
import { fingerprint, idempotencyHeaders } from './key.ts';

/** What doing once needs of the process. */
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
    if (!keyOf(call)) return plain.handler(context, call);
    return {
      kind: 'json',
      text: await once(context, plain, call, async (inside) => textOf(await plain.handler(inside, call))),
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

const keyOf = ({ headers }: Pick<Sent, 'headers'>) =>
  (headers as z.output<typeof idempotencyHeaders>)['idempotency-key'];

/**
 * Does a part of a request, whose text is kept, once per `Idempotency-Key`; without a key, each time. With one, `work`
 * gets a context whose database is the transaction that holds the key.
 * @throws {KeyReusedError} when the key came with another request before.
 */
export async function once<Context extends IdempotentContext>(
  context: Context,
  { operationId }: { operationId: string },
  sent: Sent,
  work: (inside: Context) => Promise<string>,
): Promise<string> {
  const { path, query, body, principal } = sent;
  const request = fingerprint(keyOf(sent), [path, query, body]);
  if (!request) return work(context);
  const key = {
    ...subjectOf(path, principal),
    scope: `${operationId} ${toScope(principal)}`,
    key: request.idempotencyKey,
    hash: request.hash,
  };
  let topics: string[] = [];
  const text = await doOnce(context.database, key, async (database) => {
    // A transaction that is repeated begins anew.
    topics = [];
    const notifications = collecting(context.notifications, topics);
    return work({ ...context, database, notifications });
  });
  // Whoever is woken before the commit looks, finds nothing, and looks again a second later.
  for (const topic of topics) context.notifications.publish(topic);
  return text;
}

/** Notifications that keep what is published for later. */
const collecting = (notifications: Notifications, topics: string[]): Notifications => ({
  publish: (topic) => void topics.push(topic),
  subscribe: (topic, wake) => notifications.subscribe(topic, wake),
  close: () => notifications.close(),
});

/** Who shares keys: each user and each runtime key with an id has their own, those of `RUNTIME_API_KEYS` share. */
const toScope = (principal: Principal) => {
  if (principal.kind === 'user') return `user ${principal.userId}`;
  return principal.kind === 'key' && principal.id !== undefined ? `key ${principal.id}` : principal.kind;
};

/**
 * Whom a kept answer is about, so that erasing a user finds it; a user's own request without a path is about the
 * user.
 */
const subjectOf = ({ appName = '', userId }: Subject, principal: Principal) => ({
  appName,
  userId: userId ?? (principal.kind === 'user' ? principal.userId : ''),
});

/** What a path may name of it. */
interface Subject {
  appName?: string;
  userId?: string;
}

function textOf(answer: Answer): string {
  if (answer.kind === 'json') return answer.text;
  if (answer.kind === 'value') return JSON.stringify(answer.value);
  throw new TypeError('an operation with an Idempotency-Key must answer JSON');
}
