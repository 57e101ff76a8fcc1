import type { Operation } from './operation.ts';

/** The path parameter that may contain `/` and `:`. ADK's Web UI sends them raw, other clients percent-encode them. */
const NAME_WITH_SLASHES = '{artifact_name}';

export interface Route<Context = never> {
  path: string;
  operation: Operation<Context>;
}

/** Path template → ids of the operations that are also served there. */
export type Aliases = Readonly<Record<string, readonly string[]>>;

/** Adds the alias paths of a table to operations; copies get none. */
export const withAliases = <Context>(operations: Operation<Context>[], table: Aliases): Operation<Context>[] => {
  const pathsOf = (id: string) => Object.keys(table).filter((path) => table[path]?.includes(id));
  return operations.map((each) => (each.isCopy ? each : { ...each, aliases: pathsOf(each.operationId) }));
};

/** Aliases follow the primary path. */
export const listRoutes = <Context>(operations: Operation<Context>[]): Route<Context>[] =>
  operations.flatMap((operation) =>
    [operation.path, ...(operation.aliases ?? [])].map((path) => ({ path, operation })),
  );

export const pathParameters = (path: string): string[] =>
  [...path.matchAll(/\{(\w+)\}/g)].map((match) => match[1] as string);

/** `app_name` → `appName`: a template's parameter as schemas and handlers call it. */
export const camelCase = (name: string): string =>
  name.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());

export const snakeCase = (name: string): string => name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

const segmentPattern = (template: string) =>
  template.replaceAll(/[.*+?^$()|[\]\\]/g, String.raw`\$&`).replaceAll(/\{\w+\}/g, '[^/]+');

/** Returns a pattern for the raw paths of a template, with or without a trailing slash. */
export const pathPattern = (template: string): RegExp => new RegExp(`^${segmentPattern(template)}/?$`);

/** Converts a template to Express syntax: `{user_id}` becomes `:user_id`, and a literal colon is escaped. */
export const expressPath = (template: string): string =>
  template.replaceAll(':', String.raw`\:`).replaceAll(/\{(\w+)\}/g, ':$1');

/**
 * Sorts paths so that, segment by segment, fixed text comes before parameters: `/versions/metadata` is tried before
 * `/versions/{version_id}`, and `{task_id}:subscribe` before `{task_id}`.
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
 * Returns patterns that split a path before and after the raw artifact name. The part of the templates after the name
 * (`/versions/{version_id}/metadata`, …) is split off from the end first.
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
