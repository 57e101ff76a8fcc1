import type { z } from 'zod';
import { HARNESS_APP } from '../../core/names.ts';
import { getChildren, unwrap } from '../../core/zod-graph.ts';
import type { Call, Operation } from '../../platform/http/operation/operation.ts';

/** The names that mean `harness_agent` in a request: `harness`, unless a hosted application has that name. */
export const toAliases = (hosted: ReadonlyMap<string, unknown>): ReadonlySet<string> =>
  new Set(['harness'].filter((name) => !hosted.has(name)));

/**
 * An operation that takes the aliases of `harness_agent` wherever its schemas name an application, in bodies at any
 * depth: the command line of AgentKit has `harness` built in. Handlers, and so answers and what is stored, know
 * `harness_agent` only.
 */
export function withAliases<Context>(operation: Operation<Context>, aliases: ReadonlySet<string>): Operation<Context> {
  const { path, query } = operation.parameters ?? {};
  const body = operation.body?.schema;
  const inPath = path && 'appName' in path.shape;
  const inQuery = query && 'app_name' in query.shape;
  const inBody = body && namesApps(body);
  if (aliases.size === 0 || !(inPath || inQuery || inBody)) return operation;
  const named = <Part>(part: Part, name: string): Part => {
    const sent = (part as Record<string, unknown>)[name];
    return typeof sent === 'string' && aliases.has(sent) ? { ...part, [name]: HARNESS_APP } : part;
  };
  const handler = (context: Context, call: Call<never, never, never, never>) =>
    operation.handler(context, {
      ...call,
      ...(inPath ? { path: named(call.path, 'appName') } : {}),
      ...(inQuery ? { query: named(call.query, 'app_name') } : {}),
      ...(inBody ? { body: renamed(body, call.body, (value) => named(value, 'appName')) as never } : {}),
    });
  return { ...operation, handler };
}

/** Results of {@link namesApps}: schemas never change, and walking one took 4 % of an invocation. */
const known = new WeakMap<z.core.$ZodType, boolean>();

/** True for a schema with a member `appName` somewhere inside; members of free form are data. */
function namesApps(schema: z.core.$ZodType): boolean {
  const found = known.get(schema) ?? hasAppName(schema, new Set());
  known.set(schema, found);
  return found;
}

function hasAppName(schema: z.core.$ZodType, seen: Set<z.core.$ZodType>): boolean {
  const inner = unwrap(schema);
  if (seen.has(inner)) return false;
  seen.add(inner);
  const { members, elements, branches } = getChildren(inner);
  return (
    'appName' in members || [...Object.values(members), ...elements, ...branches].some((each) => hasAppName(each, seen))
  );
}

/** A value with `name` done to all that its schema gives a member `appName`; the rest of it is not looked at. */
function renamed(schema: z.core.$ZodType, value: unknown, name: (value: object) => object): unknown {
  const inner = unwrap(schema);
  if (typeof value !== 'object' || value === null || !namesApps(inner)) return value;
  const { members, elements, branches } = getChildren(inner);
  if (Array.isArray(value))
    return elements.reduce((all, each) => all.map((item) => renamed(each, item, name)), value as unknown[]);
  const given = value as Record<string, unknown>;
  const changed = Object.entries(members).flatMap(([member, each]) =>
    Object.hasOwn(given, member) && namesApps(each) ? [[member, renamed(each, given[member], name)]] : [],
  );
  const whole = branches.reduce((kept, each) => renamed(each, kept, name) as object, {
    ...value,
    ...Object.fromEntries(changed),
  });
  return 'appName' in members ? name(whole) : whole;
}
