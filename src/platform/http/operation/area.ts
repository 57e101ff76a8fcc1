import type { z } from 'zod';
import { type Area, type Definition, type Load, type Operation, operation, type Wire } from './operation.ts';
import type { Scope } from './principal.ts';
import { declareResource, type Named, type None, type Resource } from './resource.ts';

/** The scopes that a feature's operations require; an operation's own `scope` takes precedence. */
export interface Access {
  /** The scope for GET, and the scope for every other method. */
  read: Scope;
  write: Scope;
  owner: 'service' | 'caller' | 'path';
  isForKeys?: true;
  servesBoundKeys?: true;
  load?: Load;
  wire?: Wire;
  isIdempotent?: true;
}

/** Members that operations take from their feature's area. */
type Shared = 'scope' | 'area';

/**
 * Declares a feature's operations, under the heading `name` of the OpenAPI document, with the scopes of `access`.
 * `Context`, the part of the process that their handlers use, is fixed here, because TypeScript cannot infer some type
 * arguments of a call while others are given.
 */
export function area<Context>(name: Area, access: Access) {
  const { read, write, ...shared } = access;
  const defaults = (method: string) => ({ area: name, scope: method === 'get' ? read : write, ...shared });
  return {
    /** Declares an operation that does not fit a resource, e.g. because it stores nothing or answers with a stream. */
    operation: <
      Path extends z.ZodObject = None,
      Query extends z.ZodObject = None,
      Headers extends z.ZodObject = None,
      Body extends z.ZodType = z.ZodUndefined,
      Result extends z.ZodType = z.ZodNull,
    >(
      definition: Omit<Definition<Context, Path, Query, Headers, Body, Result>, Shared> &
        Partial<Pick<Definition<Context, Path, Query, Headers, Body, Result>, Shared>>,
    ): Operation<Context> =>
      operation<Context, Path, Query, Headers, Body, Result>({ ...defaults(definition.method), ...definition }),

    /** Declares a kind of stored object. @returns its verbs, functions that each declare an operation */
    resource: <
      Shown extends z.ZodType,
      Row = undefined,
      Within extends z.ZodObject = None,
      Key extends z.ZodObject = Within,
    >(
      resource: Resource<Shown, Row, Within, Key> & Named,
    ) => declareResource<Context, Shown, Row, Within, Key>(defaults, resource),
  };
}
