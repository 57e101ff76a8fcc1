import type { z } from 'zod';
import { AREAS, isPlainRead, needsHostedApp, type Operation, READ_POSITION } from '../operation/operation.ts';
import { camelCase, pathParameters, type Route, listRoutes } from '../operation/paths.ts';
import { checkOperations } from './check-operations.ts';
import { type JsonSchema, namedSchemas, toJsonSchema } from './json-schemas.ts';

/** How callers prove who they are; decides the document's `security` (see `bearer.ts`). */
export type AuthMode = 'local' | 'key' | 'jwt';

/**
 * The version label joins the three parts that the specification's "Versioning" names: the deployment tool's version,
 * and as SemVer build metadata those of the SDK and of the agent framework.
 */
const INTERFACE_VERSION = '0.54.0+sdk-0.8.0.framework-2.2.0';

/** The parts of a document beside its operations. */
export interface DocumentOptions {
  authMode: AuthMode;
  /** The schemas that have a name; others are written out wherever they are used. A recursive one must be here. */
  components: Record<string, z.ZodType>;
}

type SchemaOf = (schema: z.ZodType) => JsonSchema;

/**
 * The OpenAPI 3.1.0 document of these operations, the same for the same ones, key for key. @throws Error when an
 * unnamed schema contains itself (name it in `components`) or the operations contradict each other
 */
export function openApiDocument(operations: Operation[], options: DocumentOptions): object {
  checkOperations(operations);
  const schemas = namedSchemas(operations, options.components);
  const secured = options.authMode === 'local' ? [{}, { RuntimeBearer: [] }] : [{ RuntimeBearer: [] }];
  const paths: Record<string, Record<string, object>> = {};
  for (const route of listRoutes(operations)) {
    const item = (paths[route.path] ??= {});
    item[route.operation.method] = operationObject(route, schemas.of);
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
    servers: [{ url: '/', description: 'The runtime that serves this document.' }],
    tags: Object.entries(AREAS).map(([name, description]) => ({ name, description })),
    security: secured,
    paths,
    components: {
      securitySchemes: {
        RuntimeBearer: { type: 'http', scheme: 'bearer', description: 'A runtime API key or a user-pool JWT.' },
      },
      schemas: schemas.named,
    },
  };
}

function operationObject({ path, operation }: Route, schemaOf: SchemaOf): object {
  const { body, description, owner } = operation;
  return {
    ...labels(operation, path),
    summary: operation.summary,
    ...(description === undefined ? {} : { description }),
    ...(owner === 'open' ? { security: [] } : {}),
    parameters: toParameters(operation, path),
    ...(body && {
      requestBody: {
        required: body.required,
        content: {
          [body.isText ? 'text/plain' : 'application/json']: { schema: schemaOf(body.schema), example: body.example },
          ...(body.json ? { 'application/json': body.json } : {}),
        },
      },
    }),
    responses: responses(operation, schemaOf),
  };
}

/** An alias is an operation of its own to readers: deprecated, and its id is that of the operation with a number. */
function labels({ area, operationId, aliases = [], path: main }: Operation, path: string): object {
  if (path === main) return { tags: [area], operationId };
  const id = `${operationId}Alias${aliases.indexOf(path) + 1}`;
  return { tags: ['Compatibility endpoints'], operationId: id, deprecated: true };
}

const readPosition = {
  name: READ_POSITION,
  in: 'header',
  required: false,
  description:
    'That of the last change that the answer must have: the header of its answer. Without it: of all changes.',
  schema: { type: 'string' },
};
const changePosition = {
  description: 'The place of the change in the log of the database. Only where plain reads go to a replica.',
  schema: { type: 'string' },
};

function toParameters(operation: Operation, path: string): object[] {
  const { path: inPath, query, headers } = operation.parameters ?? {};
  const described = (place: string, name: string, schema: z.core.$ZodType) => {
    const { description, ...rest } = toJsonSchema(schema);
    // 'optional' or 'defaulted'.
    const required = schema._zod.optin === undefined;
    return { name, in: place, required, ...(description === undefined ? {} : { description }), schema: rest };
  };
  const all = (place: string, declared: z.ZodObject | undefined) =>
    Object.entries(declared?.shape ?? {}).map(([name, schema]) => described(place, name, schema));
  return [
    ...pathParameters(path).flatMap((name) => {
      const schema = inPath?.shape[camelCase(name)];
      return schema ? [described('path', name, schema)] : [];
    }),
    ...all('query', query),
    ...all('header', headers),
    ...(operation.owner !== 'open' && isPlainRead(operation) ? [readPosition] : []),
  ];
}

function responses(operation: Operation, schemaOf: SchemaOf): object {
  const json = (description: string, schema: object, mediaType = 'application/json') => ({
    description,
    content: { [mediaType]: schema },
  });
  const refusal = (description: string, name = 'ApiError') =>
    json(description, { schema: { $ref: `#/components/schemas/${name}` } });
  const { method, success, body, owner, parameters } = operation;
  const refusals: Record<number, string> = {
    ...(owner === 'open'
      ? {}
      : {
          401: 'The credential is missing or not valid.',
          403: 'The credential does not allow it.',
          429: 'A limit of the caller is reached: `limit` and the header `X-Limit` name it.',
        }),
    ...(operation.path.includes('{app_name}') && needsHostedApp(operation) ? { 404: 'No such application.' } : {}),
    ...(body ? { 413: 'The body is larger than allowed.' } : {}),
    ...(body && !body.isText ? { 415: 'The body is not `application/json`.' } : {}),
    ...(body?.isText ? { 415: 'The body is of a type that a form can send, and no header came that none can.' } : {}),
    ...(!body && method === 'post' ? { 415: 'A form could have sent the request.' } : {}),
    ...operation.errors,
  };
  const done = success
    ? json(success.description, { schema: schemaOf(success.schema), example: success.example }, success.mediaType)
    : json('Done: the JSON value `null`.', { schema: { type: 'null' }, example: null });
  const isChange = owner !== 'open' && method !== 'get';
  return {
    [success?.status ?? 200]: isChange ? { ...done, headers: { [READ_POSITION]: changePosition } } : done,
    ...Object.fromEntries(
      Object.entries(operation.bare ?? {}).map(([status, description]) => [status, { description }]),
    ),
    ...Object.fromEntries(Object.entries(refusals).map(([status, reason]) => [status, refusal(reason)])),
    ...(body || parameters ? { 422: refusal('The request does not match its schema.', 'HTTPValidationError') } : {}),
    default: refusal('Any other failure.'),
  };
}
