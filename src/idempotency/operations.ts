import { IDEMPOTENCY_HEADER, readKeyedRequest } from './key.ts';
import type { DatabasePool } from '../db/database.ts';
import type { Answer, Operation, Principal } from '../http/operation/operation.ts';
import { doOnce } from './do-once.ts';

/**
 * The operations of a feature, those that change something (POST, PATCH) done once per `Idempotency-Key`. `list` makes the
 * operations on a database: with a key they are made anew on the transaction that holds the key, so no handler knows of keys.
 * Not for operations that run an agent: no transaction may last as long as a model call; they keep the key with the invocation.
 */
export function idempotentRoutes<Context extends { database: DatabasePool }>(
  context: Context,
  list: (context: Context) => Operation[],
): Operation[] {
  return list(context).map((plain, position) => {
    if (plain.method !== 'post' && plain.method !== 'patch') return plain;
    const headers = [...(plain.headers ?? []), IDEMPOTENCY_HEADER];
    const handler: Operation['handler'] = async (call) => {
      const { request, path, query, body, principal } = call;
      const keyed = readKeyedRequest(request, [path, query, body]);
      if (!keyed) return plain.handler(call);
      const scope = `${plain.operationId} ${nameOf(principal)}`;
      const text = await doOnce(
        context.database,
        { ...subjectOf(path, principal), scope, key: keyed.idempotencyKey, hash: keyed.hash },
        async (inside) => {
          const operation = list({ ...context, database: inside })[position] ?? plain;
          return textOf(await operation.handler(call));
        },
      );
      return { kind: 'json', text };
    };
    return { ...plain, headers, handler };
  });
}

/** Whose keys are told apart: each user has their own, all holders of a runtime key share theirs. */
const nameOf = (principal: Principal) => (principal.kind === 'user' ? `user ${principal.userId}` : principal.kind);

/** Whom a kept answer is about, so that erasing a user finds it; a user's own request without a path is about the user. */
const subjectOf = (path: Record<string, string>, principal: Principal) => ({
  appName: path['app_name'] ?? '',
  userId: path['user_id'] ?? (principal.kind === 'user' ? principal.userId : ''),
});

function textOf(answer: Answer): string {
  if (answer.kind === 'json') return answer.text;
  if (answer.kind === 'value') return JSON.stringify(answer.value);
  throw new TypeError('an operation with an Idempotency-Key must answer JSON');
}
