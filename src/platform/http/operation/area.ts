import type { z } from 'zod';
import { type Area, type Definition, type Load, type Operation, operation, type Wire } from './operation.ts';
import type { Scope } from './principal.ts';
import { declareResource, type Named, type None, type Resource } from './resource.ts';

/** Who may call the operations of a room. One that says otherwise for itself keeps that. */
export interface Access {
  /** The scope that a GET needs, and the scope that every other method needs. */
  read: Scope;
  write: Scope;
  owner: 'service' | 'caller' | 'path';
  isForKeys?: true;
  load?: Load;
  wire?: Wire;
  isIdempotent?: true;
}

/** The members of an operation that its room says for it. */
type Shared = 'scope' | 'area';

/**
 * Opens a room: `Context` is what its handlers use of the process, `name` its heading in the document, `access` who may
 * call. TypeScript cannot infer some type arguments of a call and take others, so the context is fixed here.
 */
export function area<Context>(name: Area, access: Access) {
  const { read, write, ...shared } = access;
  const defaults = (method: string) => ({ area: name, scope: method === 'get' ? read : write, ...shared });
  return {
    /** Declares an operation that is no verb of a resource: nothing is stored, or the answer is a stream. */
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

    /** Declares one kind of stored object. @returns its verbs, each of which makes an operation */
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
