import { HARNESS_APP } from '../core/session.ts';
import type { Call, Operation } from '../http/operation/operation.ts';

/** The names that mean `harness_agent` in a request: those configured, without those of hosted applications. */
export const toAliases = (names: string[], hosted: ReadonlyMap<string, unknown>): ReadonlySet<string> =>
  new Set(names.filter((name) => !hosted.has(name)));

/**
 * An operation that takes the aliases of `harness_agent` wherever its schemas name an application: the command line of
 * AgentKit has `harness` built in. Handlers, and so answers and what is stored, know `harness_agent` only.
 */
export function withAliases<Context>(operation: Operation<Context>, aliases: ReadonlySet<string>): Operation<Context> {
  const { path, query } = operation.parameters ?? {};
  const body = operation.body?.schema;
  const inPath = path && 'appName' in path.shape;
  const inQuery = query && 'app_name' in query.shape;
  const inBody = body && 'shape' in body && 'appName' in (body.shape as object);
  if (aliases.size === 0 || !(inPath || inQuery || inBody)) return operation;
  const named = <Part>(part: Part, name = 'appName'): Part => {
    const sent = (part as Record<string, unknown>)[name];
    return typeof sent === 'string' && aliases.has(sent) ? { ...part, [name]: HARNESS_APP } : part;
  };
  const handler = (context: Context, call: Call<never, never, never, never>) =>
    operation.handler(context, {
      ...call,
      ...(inPath ? { path: named(call.path) } : {}),
      ...(inQuery ? { query: named(call.query, 'app_name') } : {}),
      ...(inBody ? { body: named(call.body) } : {}),
    });
  return { ...operation, handler };
}
