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
 * the database, the transaction that holds the key. Other operations come back as they are. Not for operations that
 * run an agent: no transaction may last as long as a model call; they keep the key with the invocation.
 */
export function idempotent<Context extends IdempotentContext>(plain: Operation<Context>): Operation<Context> {
  if (plain.method !== 'post' && plain.method !== 'patch') return plain;
  const headers = idempotencyHeaders.extend(plain.parameters?.headers?.shape ?? {});
  const handler: Operation<Context>['handler'] = async (context, call) => {
    const { query, body, principal } = call;
    const path: Subject = call.path;
    const sent: z.output<typeof idempotencyHeaders> = call.headers;
    const request = fingerprint(sent['idempotency-key'], [path, query, body]);
    if (!request) return plain.handler(context, call);
    const key = {
      ...subjectOf(path, principal),
      scope: `${plain.operationId} ${toScope(principal)}`,
      key: request.idempotencyKey,
      hash: request.hash,
    };
    let topics: string[] = [];
    const text = await doOnce(context.database, key, async (database) => {
      // A transaction that is repeated begins anew.
      topics = [];
      const notifications = collecting(context.notifications, topics);
      return textOf(await plain.handler({ ...context, database, notifications }, call));
    });
    // Whoever is woken before the commit looks, finds nothing, and looks again a second later.
    for (const topic of topics) context.notifications.publish(topic);
    return { kind: 'json', text };
  };
  return { ...plain, parameters: { ...plain.parameters, headers }, handler };
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
