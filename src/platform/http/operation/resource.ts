import { z } from 'zod';
import { NotFoundError } from '../../../core/errors.ts';
import type { Database, DatabasePool } from '../../db/database.ts';
import type { Answer, Call, Definition, Operation, OperationBase, OperationBody, Success } from './operation.ts';
import { snakeCase } from './paths.ts';
import type { Principal } from './principal.ts';

export type None = z.ZodObject<Record<string, never>>;

export interface Named {
  /** Name in texts: `webhook` gives "Get a webhook", "No such webhook.", "Webhook not found: w1". */
  noun: string;
  /** Plural of `noun`. Default: `noun` with an s. */
  plural?: string;
  /** Name in operation ids: `ScoreRule` gives `listScoreRules` and `deleteScoreRule`. Default: `noun`, capitalised. */
  id?: string;
}

/** A kind of stored object: its path, its representation, and how to find an object. */
export interface Resource<Wire extends z.ZodType, Row, Within extends z.ZodObject, Key extends z.ZodObject> {
  /** Path of the collection, and its parameters. */
  path: string;
  within?: Within;
  /** Parameters of an object's path: those of `within`, then the object's key. Absent if query or body identify it. */
  key?: Key;
  schema: Wire;
  /** An object as the API returns it; published in the OpenAPI document. */
  example: NoInfer<z.input<Wire>>;
  /**
   * Finds the object in the path if the caller may see it; else the request gets 404. It runs before the handler and
   * outside its transaction: omit it if the handler locks the row or finds it by the change itself.
   */
  find?: (db: Database, path: z.output<Key>, principal: Principal) => Promise<Row | undefined>;
  /** Makes the text of the 404 for an object, from its path. Default: derived from `noun`. */
  absent?: (path: { [Name in keyof z.output<Key>]: string }) => string;
}

/** The implementation of a verb. It receives the row that `find` found. */
type Work<Context, Sent, Row> =
  | {
      /** Returns the response's value; without a response body, false if the object does not exist (404). */
      run: (context: Context, call: Sent, row: Row) => Promise<unknown>;
      handler?: never;
    }
  | {
      /** Returns the complete response, for text that is already serialised or already sent. */
      handler: (context: Context, call: Sent, row: Row) => Promise<Answer>;
      run?: never;
    };

/** A verb's implementation, and the members of its operation that differ from the defaults. */
type Verb<
  Context,
  Path extends z.ZodObject,
  Query extends z.ZodObject,
  Headers extends z.ZodObject,
  Body extends z.ZodType,
  Result extends z.ZodType,
  Row,
> = Partial<OperationBase> &
  Pick<Definition<Context, Path, Query, Headers, Body, Result>, 'owner' | 'demands' | 'absent'> & {
    query?: Query;
    headers?: Headers;
    body?: Omit<OperationBody<Body>, 'required'> & { required?: boolean };
    success?: Partial<Success<Result>>;
  } & Work<Context, Call<z.output<Path>, z.output<Query>, z.output<Headers>, z.input<Body>>, Row>;

/**
 * The verbs: HTTP method, prefixes of operation id and summary, whether the path names an object, whether that object
 * must exist, and the kind of response.
 */
const VERBS = {
  list: { method: 'get', id: 'list', summary: 'List', isOfOne: false, finds: false, answers: 'all' },
  create: { method: 'post', id: 'create', summary: 'Create', isOfOne: false, finds: false, answers: 'new' },
  read: { method: 'get', id: 'get', summary: 'Get', isOfOne: true, finds: true, answers: 'one' },
  save: { method: 'put', id: 'save', summary: 'Save', isOfOne: true, finds: false, answers: 'nothing' },
  change: { method: 'patch', id: 'update', summary: 'Change', isOfOne: true, finds: true, answers: 'one' },
  remove: { method: 'delete', id: 'delete', summary: 'Delete', isOfOne: true, finds: true, answers: 'nothing' },
  action: { method: 'post', id: '', summary: '', isOfOne: true, finds: true, answers: 'one' },
} as const satisfies Record<string, VerbRow>;
interface VerbRow {
  method: OperationBase['method'];
  id: string;
  summary: string;
  isOfOne: boolean;
  finds: boolean;
  answers: 'all' | 'new' | 'one' | 'nothing';
}

/**
 * Returns the verbs of a resource (list, read, save …), functions that each declare one operation. The table of verbs
 * has the defaults.
 * @param defaults returns what the area says for all operations of a method: heading, scope, owner
 */
export function declareResource<
  Context,
  Wire extends z.ZodType,
  Row,
  Within extends z.ZodObject,
  Key extends z.ZodObject,
>(
  defaults: (method: string) => Pick<OperationBase, 'area' | 'scope'> & Pick<Operation, 'owner'>,
  { noun, path, within, key, schema, example, find, ...more }: Resource<Wire, Row, Within, Key> & Named,
) {
  const { plural = `${noun}s`, id = capitalize(noun) } = more;
  const keyName = key && (Object.keys(key.shape).at(-1) as string);
  const onePath = keyName === undefined ? path : `${path}/{${snakeCase(keyName)}}`;
  const absent =
    more.absent ??
    ((named: { [Name in keyof z.output<Key>]: string }) =>
      `${capitalize(noun)} not found: ${named[keyName as keyof typeof named]}`);

  /** Loads the object in the path. @throws {NotFoundError} if it does not exist, or the caller may not see it */
  async function get(db: Database, named: { path: z.output<Key>; principal: Principal }): Promise<Row> {
    const row = await find?.(db, named.path, named.principal);
    if (find && row === undefined) throw new NotFoundError(absent(named.path as never));
    return row as Row;
  }

  const words = (verb: VerbRow) => {
    const isOfAll = verb.answers === 'all';
    const { summary } = verb;
    return {
      operationId: verb.id + (isOfAll ? toPlural(id) : id),
      summary: isOfAll ? `${summary} ${plural}` : `${summary} ${article(noun)} ${noun}`,
    };
  };

  // oxlint-disable typescript/no-unnecessary-type-parameters -- a verb fixes the outer ones, a declaration infers the inner
  const declare =
    <Path extends z.ZodObject, Found, Sent extends z.ZodType, Shown extends z.ZodType>(verb: VerbRow, below = '') =>
    <
      Query extends z.ZodObject = None,
      Headers extends z.ZodObject = None,
      Body extends z.ZodType = Sent,
      Result extends z.ZodType = Shown,
    >({
      query,
      headers,
      body,
      success,
      run,
      handler,
      ...said
    }: Verb<Context, Path, Query, Headers, Body, Result, Found>): Operation<Context> => {
      // oxlint-enable typescript/no-unnecessary-type-parameters
      const method = said.method ?? verb.method;
      const inPath = verb.isOfOne && key ? key : within;
      const finds = verb.finds && key !== undefined;
      const parameters = { ...(inPath && { path: inPath }), ...(query && { query }), ...(headers && { headers }) };
      const shown = {
        ...(verb.answers === 'all' ? { schema: z.array(schema), example: [example] } : { schema, example }),
        description: `The ${verb.answers === 'all' ? plural : noun}.`,
        ...(verb.answers === 'new' && { status: 201 }),
      };
      const taken = body ?? (method === 'put' ? { schema, example } : undefined);
      return {
        ...defaults(method),
        ...words(verb),
        ...(finds && { absent }),
        ...said,
        method,
        path: said.path ?? (verb.isOfOne ? onePath : path) + below,
        ...(Object.keys(parameters).length > 0 && { parameters }),
        ...(taken && { body: { required: true, ...taken } }),
        ...((success ?? verb.answers !== 'nothing') && { success: { ...shown, ...success } }),
        ...(finds && { errors: { 404: `No such ${noun}.`, ...said.errors } }),
        handler: async (context: Context, call: Call<never, never, never, never>): Promise<Answer> => {
          // At run time the context is the whole process context, whatever part of it the feature's type names.
          const { database } = context as { database: DatabasePool };
          const row = finds ? await get(method === 'get' ? database.reads : database.db, call) : undefined;
          if (isOwned(row)) call.response.locals['about'] = row;
          if (handler) return handler(context, call, row as Found);
          const value = await run(context, call, row as Found);
          if (verb.answers === 'nothing' && value === false) throw call.notFound();
          return { kind: 'value', value: verb.answers === 'nothing' && !success ? null : (value ?? null) };
        },
      } as Operation<Context>;
    };

  return {
    onePath,
    absent,
    get,
    list: declare<Within, undefined, z.ZodUndefined, z.ZodArray<Wire>>(VERBS.list),
    create: declare<Within, undefined, z.ZodUndefined, Wire>(VERBS.create),
    read: declare<Key, Row, z.ZodUndefined, Wire>(VERBS.read),
    /** Replaces an object. */
    save: declare<Key, undefined, Wire, Wire>(VERBS.save),
    change: declare<Key, Row, z.ZodUndefined, Wire>(VERBS.change),
    remove: declare<Key, Row, z.ZodUndefined, Wire>(VERBS.remove),
    /** Declares another action on an object, at a path below the object's own, with its own id and summary. */
    action: (name: string) => declare<Key, Row, z.ZodUndefined, Wire>(VERBS.action, `/${name}`),
  };
}

const isOwned = (row: unknown): row is { appName: string; userId: string } =>
  typeof row === 'object' && row !== null && 'appName' in row && 'userId' in row;

const capitalize = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);
const article = (noun: string) => (/^[aeiou]/.test(noun) ? 'an' : 'a');
/** `Delivery` is `Deliveries`. */
const toPlural = (id: string) => `${id.replace(/y$/, 'ie')}s`;
