import { z } from 'zod';
import type { AuthMode } from '../access/bearer.ts';
import { AREAS, IGNORED_MEMBERS, needsHostedApp, type Operation } from '../operation/operation.ts';
import { camelCase, listRoutes, pathParameters } from '../operation/paths.ts';

/**
 * The three versions that the interface specification's "Versioning" names: that of the deployment tool and, as SemVer
 * build metadata, those of the SDK and of the agent framework.
 */
const INTERFACE_VERSION = '0.54.0+sdk-0.8.0.framework-2.2.0';

export interface DocumentOptions {
  /** Decides the document's `security`. */
  authMode: AuthMode;
  /** The URL under which clients reach the service. Default: the URL that the document was loaded from. */
  publicUrl?: string | undefined;
  components: Components;
  /**
   * True: include operations that repeat another one at a different path, which the validator of bodies needs and the
   * published document leaves out. Default: false.
   */
  hasCopies?: boolean;
}

/** Schemas and parameters that the document defines once and refers to by name. */
export interface Components {
  /** Named schemas. A recursive schema must be among them. */
  schemas: Record<string, z.ZodType>;
  /** Parameters by the name of their definition; an operation uses one by declaring this very schema. */
  parameters: Record<string, z.ZodType>;
}

interface Parts {
  schemaOf: (schema: z.ZodType, isClosed?: boolean) => JsonSchema;
  answers: NamedParts;
  parameters: NamedParts;
  /** Names of shared parameters, by the schema object that declares them. */
  parameterNames: Map<z.core.$ZodType, string>;
}

/**
 * The output is deterministic.
 * @throws Error if an unnamed schema is recursive (name it in `components`), or the operations contradict each other
 */
export function openApiDocument(operations: Operation[], options: DocumentOptions): object {
  checkOperations(operations);
  const schemas = namedSchemas(operations, options.components.schemas);
  const answers = namedParts('responses');
  const parameters = namedParts('parameters');
  const parameterNames = new Map<z.core.$ZodType, string>(
    Object.entries(options.components.parameters).map(([name, schema]) => [schema, name]),
  );
  const parts = { schemaOf: schemas.of, answers, parameters, parameterNames };
  const { schemes, secured, forKeys } = toSecurity(options.authMode);
  const paths: Record<string, Record<string, object>> = {};
  for (const operation of options.hasCopies ? operations : eachOnce(operations)) {
    const item = (paths[operation.path] ??= {});
    const isForKeys = operation.isForKeys ?? operation.isAbsentForTokens;
    item[operation.method] = operationObject(operation, parts, isForKeys ? forKeys : undefined);
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Agent Runtime HTTP Interface',
      version: INTERFACE_VERSION,
      description:
        'Hosts an agent application: sessions, ordered events, versioned artifacts, invocations, evaluation.',
      license: { name: 'Apache License 2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: options.publicUrl ?? '/', description: 'The runtime that serves this document.' }],
    tags: Object.entries(AREAS).map(([name, description]) => ({ name, description })),
    security: secured,
    paths,
    components: {
      securitySchemes: schemes,
      schemas: schemas.named,
      ...(Object.keys(parameters.named).length > 0 && { parameters: parameters.named }),
      responses: answers.named,
    },
  };
}

const bearer = (description: string, more: object = {}) => ({ type: 'http', scheme: 'bearer', ...more, description });

/**
 * The specification's scheme is `RuntimeBearer`. Where keys and tokens are taken, tokens have one of their own, and
 * operations that are for keys alone name only the scheme of keys (`forKeys`).
 */
function toSecurity(mode: AuthMode): { schemes: object; secured: object[]; forKeys?: object[] } {
  const key = { RuntimeBearer: [] };
  if (mode === 'key+jwt')
    return {
      schemes: {
        RuntimeBearer: bearer('A runtime API key.'),
        UserToken: bearer('A user-pool JWT.', { bearerFormat: 'JWT' }),
      },
      secured: [key, { UserToken: [] }],
      forKeys: [key],
    };
  const schemes = { RuntimeBearer: bearer('A runtime API key or a user-pool JWT.') };
  return { schemes, secured: mode === 'local' ? [{}, key] : [key] };
}

/** Leaves out copies of operations whose original is in the list. */
function eachOnce(operations: Operation[]): Operation[] {
  const own = new Set(operations.filter(({ isCopy }) => !isCopy).map(({ operationId }) => operationId));
  return operations.filter(({ isCopy, operationId }) => !isCopy || !own.has(operationId));
}

/** Collects components of one kind (parameters or responses) by name while the document is written. */
interface NamedParts {
  named: Record<string, object>;
  /** Adds a component and returns a reference to it. @throws Error if a different component has the name */
  refer(name: string, part: object): object;
}

function namedParts(kind: 'responses' | 'parameters'): NamedParts {
  const named: Record<string, object> = {};
  return {
    named,
    refer(name, part) {
      if (JSON.stringify((named[name] ??= part)) !== JSON.stringify(part))
        throw new Error(`Two ${kind} of the document are named ${name}.`);
      return { $ref: `#/components/${kind}/${name}` };
    },
  };
}

function operationObject(operation: Operation, parts: Parts, security: object[] | undefined): object {
  const { area, body, description, operationId, owner } = operation;
  const { schemaOf } = parts;
  return {
    tags: [area],
    operationId,
    summary: operation.summary,
    ...(description === undefined ? {} : { description }),
    ...(owner === 'open' ? { security: [] } : security && { security }),
    parameters: toParameters(operation, parts),
    ...(body && {
      requestBody: {
        required: body.required,
        content: {
          [body.isText ? 'text/plain' : 'application/json']: {
            schema: schemaOf(body.schema, operation.wire === undefined),
            example: body.example,
          },
          ...(body.json ? { 'application/json': body.json } : {}),
        },
      },
    }),
    responses: responses(operation, parts),
  };
}

const IGNORED = 'Parameters and members of the request that have no meaning here, with commas; absent without any.';
const deliberate = {
  name: 'X-Requested-With',
  in: 'header',
  required: false,
  description: 'Any value. A body of `text/plain` needs it: what a form of a foreign page can send too is a 415.',
  schema: { type: 'string' },
};

function toParameters(operation: Operation, { parameters, parameterNames }: Parts): object[] {
  const { path: inPath, query, headers } = operation.parameters ?? {};
  const described = (place: string, name: string, schema: z.core.$ZodType) => {
    const { description, ...rest } = toJsonSchema(schema);
    // `optin` is 'optional' or 'defaulted' for a parameter that may be missing.
    const required = schema._zod.optin === undefined;
    const parameter = {
      name,
      in: place,
      required,
      ...(description === undefined ? {} : { description }),
      schema: rest,
    };
    const shared = parameterNames.get(schema);
    return shared === undefined ? parameter : parameters.refer(shared, parameter);
  };
  const all = (place: string, declared: z.ZodObject | undefined) =>
    Object.entries(declared?.shape ?? {}).map(([name, schema]) => described(place, name, schema));
  return [
    ...pathParameters(operation.path).flatMap((name) => {
      const schema = inPath?.shape[camelCase(name)];
      return schema ? [described('path', name, schema)] : [];
    }),
    ...all('query', query),
    ...all('header', headers),
    ...(operation.body?.isText && operation.method === 'post' ? [parameters.refer('XRequestedWith', deliberate)] : []),
  ];
}

/** Error responses that do not depend on what an operation does: status and reason, by name in the document. */
const REFUSALS: Record<string, [status: number | 'default', reason: string]> = {
  Unauthenticated: [401, 'The credential is missing or not valid.'],
  Forbidden: [403, 'The credential does not allow it.'],
  NoSuchApplication: [404, 'No such application.'],
  BodyTooLarge: [413, 'The body is larger than allowed.'],
  NotJson: [415, 'The body is not `application/json`.'],
  TextOfForm: [415, 'The body is of a type that a form can send, and no header came that none can.'],
  SentByForm: [415, 'A form could have sent the request.'],
  Invalid: [422, 'The request does not match its schema.'],
  InvalidForDoor: [400, 'The request does not match its schema.'],
  LimitReached: [429, 'A limit of the caller is reached: `limit` and the header `X-Limit` name it.'],
  Failed: ['default', 'Any other failure.'],
};

/** Lists an operation's error responses, common ones by its kind; its own text for a status takes precedence. */
function refusalsOf(operation: Operation): [status: string, reason: string][] {
  const { body, method, owner, parameters, path, toRefusal, wire } = operation;
  const isChecked = body !== undefined || parameters !== undefined || wire === undefined;
  const applies: Record<string, boolean> = {
    Unauthenticated: owner !== 'open',
    Forbidden: owner !== 'open',
    LimitReached: owner !== 'open',
    NoSuchApplication: path.includes('{app_name}') && needsHostedApp(operation),
    BodyTooLarge: body !== undefined,
    NotJson: body !== undefined && !body.isText,
    TextOfForm: body?.isText === true,
    SentByForm: body === undefined && method === 'post',
  };
  const common = Object.entries(REFUSALS).flatMap(([name, [status, reason]]) =>
    applies[name] ? [[String(status), reason] as const] : [],
  );
  const invalid = REFUSALS[toRefusal ? 'InvalidForDoor' : 'Invalid'];
  return Object.entries({
    ...Object.fromEntries(common),
    ...operation.errors,
    ...(isChecked && invalid ? { [invalid[0]]: invalid[1] } : {}),
    default: 'Any other failure.',
  });
}

function responses(operation: Operation, { schemaOf, answers }: Parts): object {
  const json = (description: string, schema: object, mediaType = 'application/json') => ({
    description,
    content: { [mediaType]: schema },
  });
  const { refusal, success, wire = '' } = operation;
  const toAnswer = (status: string, reason: string) => {
    const schema = refusal ?? { $ref: `#/components/schemas/${status === '422' ? 'HTTPValidationError' : 'ApiError'}` };
    const answer = json(reason, { schema });
    const isNamed = ([, refused]: [string, [number | 'default', string]]) =>
      String(refused[0]) === status && refused[1] === reason;
    const [name] = Object.entries(REFUSALS).find(isNamed) ?? [];
    // Protocols with error formats of their own have separate named responses.
    return name === undefined ? answer : answers.refer(refusal ? `${wire.replaceAll(/\W/g, '')}${name}` : name, answer);
  };
  const done = success
    ? json(success.description, { schema: schemaOf(success.schema), example: success.example }, success.mediaType)
    : json('Done: the JSON value `null`.', { schema: { type: 'null' }, example: null });
  if (success?.json) Object.assign(done.content, { 'application/json': success.json });
  const described = {
    ...(operation.wire !== undefined && { [IGNORED_MEMBERS]: IGNORED }),
    ...success?.headers,
  };
  const headers = Object.entries(described).map(([name, description]) => [
    name,
    { description, schema: { type: 'string' } },
  ]);
  return {
    [success?.status ?? 200]: headers.length > 0 ? { ...done, headers: Object.fromEntries(headers) } : done,
    ...Object.fromEntries(
      Object.entries(operation.bare ?? {}).map(([status, description]) => [status, { description }]),
    ),
    ...Object.fromEntries(refusalsOf(operation).map(([status, reason]) => [status, toAnswer(status, reason)])),
  };
}

type JsonSchema = Record<string, unknown>;

const TEMPORARY = 'operation-schema-';
const refTo = (name: string) => ({ $ref: `#/components/schemas/${name}` });

/**
 * Writes all schemas of bodies and responses in one pass, so that references between them are kept. Schemas without a
 * name are written out where they are used.
 * @throws Error if an unnamed schema is recursive or is used inside another schema
 */
function namedSchemas(
  operations: Operation[],
  components: Record<string, z.ZodType>,
): { named: Record<string, JsonSchema>; of: (schema: z.ZodType) => JsonSchema } {
  const registry = z.registry<{ id: string }>();
  const names = new Map<z.ZodType, string>();
  const add = (schema: z.ZodType | undefined, id: string) => {
    if (!schema || names.has(schema)) return;
    registry.add(schema, { id });
    names.set(schema, id);
  };
  for (const [name, schema] of Object.entries(components)) add(schema, name);
  for (const [index, { body, success }] of operations.entries()) {
    add(body?.schema, `${TEMPORARY}${index}-body`);
    add(success?.schema, `${TEMPORARY}${index}-success`);
  }
  const all = convert(registry);
  const schemaNamed = (name: string): JsonSchema => {
    const schema = all[name];
    if (!schema) throw new Error(`There is no schema ${name}.`);
    return schema;
  };
  return {
    named: Object.fromEntries(Object.keys(components).map((name) => [name, schemaNamed(name)])),
    of: (schema, isClosed = false) => {
      const name = names.get(schema) ?? '';
      if (!name.startsWith(TEMPORARY)) return refTo(name);
      return isClosed ? toClosed(schemaNamed(name)) : schemaNamed(name);
    },
  };
}

/** Keywords of JSON Schema whose value contains subschemas: a single one, a list, or an object of them by name. */
const NESTED = { one: ['items', 'additionalProperties'], several: ['anyOf', 'oneOf'], named: ['properties'] };

/** Forbids additional properties in objects that have named ones; referenced schemas stay unchanged. */
function toClosed(schema: JsonSchema): JsonSchema {
  const closed: JsonSchema = { ...schema };
  const close = (value: unknown) => (isObject(value) ? toClosed(value) : value);
  for (const key of NESTED.one) if (key in closed) closed[key] = close(closed[key]);
  for (const key of NESTED.several) if (Array.isArray(closed[key])) closed[key] = closed[key].map(close);
  for (const key of NESTED.named) {
    if (!isObject(closed[key])) continue;
    closed[key] = Object.fromEntries(Object.entries(closed[key]).map(([name, value]) => [name, close(value)]));
    closed.additionalProperties ??= false;
  }
  return closed;
}
const isObject = (value: unknown): value is JsonSchema =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const OPTIONS = {
  target: 'draft-2020-12',
  // With 'output', zod would add `additionalProperties: false` to every object.
  io: 'input',
  unrepresentable: 'any',
  override: ({ jsonSchema }: { jsonSchema: JsonSchema }) => simplify(jsonSchema),
} as const;

/** Returns the JSON Schema of a parameter as sent, not as the handler receives it. */
function toJsonSchema(schema: z.core.$ZodType): JsonSchema {
  const { $schema: _, ...converted } = z.toJSONSchema(schema, OPTIONS);
  return converted;
}

function convert(registry: z.core.$ZodRegistry<{ id: string }>): Record<string, JsonSchema> {
  const { schemas } = z.toJSONSchema(registry, { ...OPTIONS, uri: (id) => refTo(id).$ref });
  for (const [name, schema] of Object.entries(schemas)) {
    delete schema.$schema;
    delete schema.$id;
    const unnamed = JSON.stringify(schema).includes(`"#/components/schemas/${TEMPORARY}`);
    if (unnamed)
      throw new Error(`The schema ${name} refers to one without a name: name it in the schemas of its feature.`);
  }
  return schemas;
}

/** Removes keywords that zod adds needlessly, and writes "or null" as a type array, which OpenAPI 3.1 allows. */
function simplify(schema: JsonSchema): void {
  delete schema.propertyNames;
  const isOpenObject = schema.properties !== undefined || schema.$ref !== undefined;
  if (isEmptySchema(schema.additionalProperties) && isOpenObject) delete schema.additionalProperties;
  joinNull(schema);
  if (![schema.type].flat().includes('integer')) return;
  if (schema.maximum === Number.MAX_SAFE_INTEGER) delete schema.maximum;
  if (schema.minimum === Number.MIN_SAFE_INTEGER) delete schema.minimum;
}

function joinNull(schema: JsonSchema): void {
  const [value, none] = Array.isArray(schema.anyOf) && schema.anyOf.length === 2 ? (schema.anyOf as JsonSchema[]) : [];
  if (value === undefined || none?.type !== 'null' || typeof value.type !== 'string' || 'enum' in value) return;
  if ('const' in value) return;
  delete schema.anyOf;
  Object.assign(schema, value, { ...schema, type: [value.type, 'null'] });
}

const isEmptySchema = (value: unknown) =>
  typeof value === 'object' && value !== null && Object.keys(value).length === 0;

/**
 * Checks the operations at every start.
 * @throws Error for a duplicate id or route, a path template that differs from its parameters, a user in a path who is
 *   no owner, or a missing area or scope
 */
export function checkOperations(operations: Operation[]): void {
  const taken = new Set<string>();
  const take = (what: string, by: string) => {
    if (taken.has(what)) throw new Error(`${by}: ${what} is taken.`);
    taken.add(what);
  };
  for (const { isCopy, operationId } of operations) if (!isCopy) take(operationId, operationId);
  for (const { path, operation } of listRoutes(operations)) {
    const { method, operationId, owner, parameters, scope } = operation;
    if (operation.area === undefined) throw new Error(`${operationId}: it is in no area.`);
    if ((scope === 'none') !== (owner === 'open') || scope === undefined)
      throw new Error(`${operationId}: it names no scope, which only open operations may leave out.`);
    take(`${method} ${path}`, operationId);
    const named = pathParameters(path);
    const declared = Object.keys(parameters?.path?.shape ?? {});
    if (named.map(camelCase).toSorted().join() !== declared.toSorted().join())
      throw new Error(`${operationId}: ${path} and its parameters (${declared.join(', ')}) differ.`);
    if (named.includes('user_id') !== (owner === 'path'))
      throw new Error(`${operationId}: the owner of ${path} is the user in the path, and of no other path.`);
  }
}
