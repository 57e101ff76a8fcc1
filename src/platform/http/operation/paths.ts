import type { Operation } from './operation.ts';

/** The path parameter that may hold `/` (and `:`), sent raw by ADK's Web UI and percent-encoded by others. */
const NAME_WITH_SLASHES = '{artifact_name}';

/** An operation at one of its paths. */
export interface Route<Context = never> {
  path: string;
  operation: Operation<Context>;
}

/** Path templates → the ids of the operations that are served there too. */
export type Aliases = Readonly<Record<string, readonly string[]>>;

/** Gives operations the further paths that a table has for them; a copy has none. */
export const withAliases = <Context>(operations: Operation<Context>[], table: Aliases): Operation<Context>[] => {
  const pathsOf = (id: string) => Object.keys(table).filter((path) => table[path]?.includes(id));
  return operations.map((each) => (each.isCopy ? each : { ...each, aliases: pathsOf(each.operationId) }));
};

/** Every path of every operation, aliases after the path that they are another spelling of. */
export const listRoutes = <Context>(operations: Operation<Context>[]): Route<Context>[] =>
  operations.flatMap((operation) =>
    [operation.path, ...(operation.aliases ?? [])].map((path) => ({ path, operation })),
  );

/** Parameter names of a path template, in order. */
export const pathParameters = (path: string): string[] =>
  [...path.matchAll(/\{(\w+)\}/g)].map((match) => match[1] as string);

/** `app_name` → `appName`: a parameter of a template as schemas and handlers name it. */
export const camelCase = (name: string): string =>
  name.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());

/** `appName` → `app_name`. */
export const snakeCase = (name: string): string => name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

const segmentPattern = (template: string) =>
  template.replaceAll(/[.*+?^$()|[\]\\]/g, String.raw`\$&`).replaceAll(/\{\w+\}/g, '[^/]+');

/** A pattern that the raw paths of a template match, with or without a slash at the end. */
export const pathPattern = (template: string): RegExp => new RegExp(`^${segmentPattern(template)}/?$`);

/** A template as Express writes it: `{user_id}` becomes `:user_id`, and a colon of its own is escaped. */
export const expressPath = (template: string): string =>
  template.replaceAll(':', String.raw`\:`).replaceAll(/\{(\w+)\}/g, ':$1');

/**
 * Fixed segments before parameters, one by one: `/versions/metadata` is tried before `/versions/{version_id}`, and
 * `{task_id}:subscribe` before `{task_id}`.
 */
export function byFixedSegmentsFirst(one: { path: string }, other: { path: string }): number {
  const key = ({ path }: { path: string }) =>
    path
      .split('/')
      .map((segment) => (!segment.startsWith('{') ? '0' : segment.endsWith('}') ? '2' : '1'))
      .join('');
  return key(one).localeCompare(key(other));
}

/**
 * Patterns that split a path before and after the raw text of an artifact name. What the templates say after the name
 * (`/versions/{version_id}/metadata`, …) is cut off the end first.
 */
export function artifactNamePatterns(paths: string[]): RegExp[] {
  const templates = paths.map((path) => path.split(NAME_WITH_SLASHES)).filter(({ length }) => length === 2);
  const prefixes = new Set(templates.map(([prefix]) => prefix as string));
  return [...prefixes].map((prefix) => {
    const suffixes = templates.filter(([before]) => before === prefix).map(([, suffix]) => suffix as string);
    const longestFirst = suffixes.toSorted((a, b) => b.length - a.length).map(segmentPattern);
    return new RegExp(`^(${segmentPattern(prefix)})(.+?)((?:${longestFirst.join('|')})/?)$`);
  });
}
