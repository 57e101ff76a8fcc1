import type { Request, RequestHandler, Response } from 'express';
import { BODY_CHARACTERS, BODY_VALUES } from '../../../core/members.ts';
import { type FindError, TEXT_FORMATS } from '../../../core/text-format.ts';
import type { Operation, OperationBody } from '../operation/operation.ts';
import { runHandler } from './json-body.ts';
import { explain, type JsonSchema, type Mistake } from './words.ts';

/** A validation error of express-openapi-validator; `path` is `/body` or begins with `/body/`. */
interface Violation {
  path: string;
  message: string;
}

export interface BodyGate {
  /** Returns the first error in a body; `undefined` if the OpenAPI document accepts it. */
  check: (body: unknown) => Promise<Violation | undefined>;
  /** Returns at most `most` errors of a refused body, with pydantic's messages; see {@link explain}. */
  explain: (body: unknown, most: number) => Mistake[];
}

interface OpenApiDocument {
  openapi: string;
  info: object;
  paths: Record<string, Record<string, OperationObject>>;
  components?: { schemas?: Record<string, JsonSchema>; parameters?: Record<string, object> };
}

interface OperationObject {
  requestBody?: { content: Record<string, { schema: JsonSchema }> };
}

/**
 * Validates every body by the published OpenAPI document, using express-openapi-validator.
 *
 * The package receives a synthetic request with eight fixed members and the body, because the client's own request
 * would cost too much or be validated differently:
 * - It compiles and keeps a validator for each distinct `Content-Type`: 232 MB for 300 requests.
 * - It routes again by `originalUrl`, which may contain raw slashes in an artifact name.
 * - It redefines `query` on the request, parses JSON in elements of arrays and refuses reserved characters with 400.
 * - Ajv coerces text by rules of its own: it accepts `1e2`, but neither `yes` nor `1_000`. So `parameters.ts` parses
 *   text.
 * - The published pattern of a path parameter is stricter than the check: a name that violates it must give 404.
 * - It treats a wrong token as anonymous. So `bearer.ts` checks credentials.
 *
 * Its document contains a single operation, because the middleware builds the pattern of every route for each request:
 * 0.5 ms for the whole document. Even the one is looked for once, because that is half of the time of a check. The
 * package is loaded, and a validator compiled, with the first body; at the start they took two thirds of its CPU time.
 */
export function openApiGate(document: () => object): (operation: GatedOperation) => () => BodyGate {
  let bodies: OpenApiDocument | undefined;
  return ({ method, path, body }) => {
    const name = `${method} ${path}`;
    const ofBody = gates.get(body) ?? new Map<string, BodyGate>();
    gates.set(body, ofBody);
    return () => {
      const known = ofBody.get(name);
      if (known) return known;
      bodies ??= onlyBodies(document() as OpenApiDocument);
      const gate = createGate(bodies, method, path);
      ofBody.set(name, gate);
      return gate;
    };
  };
}

type GatedOperation = Pick<Operation, 'method' | 'path'> & { body: OperationBody };

/**
 * Validators by the declaration of a body, then by method and path. The runtimes of a process share them, because the
 * document and a validator take 0.15 s of CPU.
 */
const gates = new WeakMap<OperationBody, Map<string, BodyGate>>();

function createGate(document: OpenApiDocument, method: string, path: string): BodyGate {
  const single = bounded(withPaths(document, { [path]: { [method]: document.paths[path]?.[method] ?? {} } }));
  return {
    check: createCheck(single, method, path),
    explain: (body, most) => explain(bodySchema(single, method, path), body, (each) => resolveIn(single, each), most),
  };
}

const bodySchema = ({ paths }: OpenApiDocument, method: string, path: string) =>
  paths[path]?.[method]?.requestBody?.content['application/json']?.schema ?? {};

const resolveIn = ({ components }: OpenApiDocument, schema: JsonSchema) => {
  const { $ref: reference } = schema;
  return typeof reference === 'string' ? (components?.schemas?.[reference.slice(REFERENCE.length)] ?? {}) : schema;
};
const REFERENCE = '#/components/schemas/';

/**
 * Limits integers to those that a double holds exactly, which also fit a PostgreSQL column. zod has this limit too, but
 * the published document does not.
 */
const bounded = (document: OpenApiDocument): OpenApiDocument =>
  JSON.parse(JSON.stringify(document), (_name, value: { type?: unknown } | null) => {
    const isInteger = typeof value === 'object' && value !== null && [value.type].flat().includes('integer');
    return isInteger ? { minimum: Number.MIN_SAFE_INTEGER, maximum: Number.MAX_SAFE_INTEGER, ...value } : value;
  }) as OpenApiDocument;

/** @param document contains only the operation to check */
function createCheck(
  document: OpenApiDocument,
  method: string,
  path: string,
  mediaType = 'application/json',
): BodyGate['check'] {
  const loading = loadValidator(document, false);
  let validating: Promise<(body: unknown) => Promise<void>> | undefined;
  return async (body) => {
    try {
      validating ??= findOperation(await loading, toProbe(method, path, body, mediaType));
      await (await validating)(body);
      return undefined;
    } catch (error) {
      const { status, errors } = error as { status?: number; errors?: Violation[] };
      if (status === 400 && errors !== undefined) return errors[0];
      throw error;
    }
  };
}

/** Returns the check of bodies. All handlers but the last look for the operation, which is the same for each body. */
async function findOperation(handlers: RequestHandler[], probe: Request): Promise<(body: unknown) => Promise<void>> {
  for (const handler of handlers.slice(0, -1)) await runHandler(handler, probe, NO_RESPONSE);
  const [validate] = handlers.slice(-1) as [RequestHandler];
  return (body) => runHandler(validate, { ...probe, body } as Request, NO_RESPONSE);
}

/**
 * Compiles every schema of a document, for tests and the command `openapi`.
 * @throws Error if the document is not valid OpenAPI, or one of its schemas does not compile
 */
export async function compileDocument(document: object): Promise<void> {
  const whole = document as OpenApiDocument;
  const [load] = await loadValidator(whole, true);
  // If the document cannot be loaded, the first handler reports it.
  if (load) await runHandler(load, toProbe('get', '/', undefined, ''), NO_RESPONSE);
  for (const [path, item] of Object.entries(whole.paths)) {
    for (const [method, operation] of Object.entries(item)) {
      // Operations are compiled without responses: Ajv would traverse everything in the document.
      const single = withPaths(whole, { [path]: { [method]: { ...operation, responses: {} } } as never });
      const [mediaType] = Object.keys(operation.requestBody?.content ?? {});
      await createCheck(single, method, path, mediaType)(operation.requestBody && {});
    }
  }
}

async function loadValidator(document: object, validateApiSpec: boolean): Promise<RequestHandler[]> {
  const { middleware } = await import('express-openapi-validator');
  return middleware({
    apiSpec: withoutDefaults(document) as never,
    validateApiSpec,
    formats: Object.fromEntries([...TEXT_FORMATS].map(([name, findError]) => [name, toFormat(findError)])),
    validateSecurity: false,
    validateResponses: false,
    fileUploader: false,
    // `allErrors` is off, because its time is quadratic in the number of errors: 20 s for a body of 200 KB.
    validateRequests: { allErrors: false, coerceTypes: false, allowUnknownQueryParameters: true },
  }) as RequestHandler[];
}

const toFormat = (findError: FindError) => ({
  type: 'string' as const,
  validate: (text: string) => findError(text) === undefined,
});

/** Returns a synthetic request with the members that the validator reads. */
function toProbe(method: string, path: string, body: unknown, mediaType: string): Request {
  const url = path.replaceAll(/\{\w+\}/g, '0');
  return {
    method: method.toUpperCase(),
    path: url,
    originalUrl: url,
    baseUrl: '',
    headers: body === undefined ? {} : { 'content-type': mediaType },
    app: { enabled: () => false, param: () => {} },
    params: {},
    query: {},
    body,
  } as unknown as Request;
}

/** The validator neither reads nor changes the response. */
const NO_RESPONSE = {} as Response;

/** Reduces a document to what validates JSON bodies: no parameters, no responses. */
function onlyBodies(document: OpenApiDocument): OpenApiDocument {
  const paths = Object.entries(document.paths).map(([path, item]) => {
    const operations = Object.entries(item).flatMap(([method, { requestBody }]) => {
      const [media] = Object.values(requestBody?.content ?? {});
      const content = { 'application/json': { schema: media?.schema } };
      return media ? [[method, { requestBody: { content }, responses: {} }]] : [];
    });
    return [path, Object.fromEntries(operations)];
  });
  return withPaths(
    { ...document, components: { schemas: document.components?.schemas ?? {} } },
    Object.fromEntries(paths),
  );
}

/** Returns a document with only the given paths and the schemas that they refer to, directly or indirectly. */
function withPaths({ openapi, info, components }: OpenApiDocument, paths: OpenApiDocument['paths']): OpenApiDocument {
  const all = components?.schemas ?? {};
  const schemas: Record<string, JsonSchema> = {};
  const take = (value: object) => {
    for (const [, name = ''] of JSON.stringify(value).matchAll(/"#\/components\/schemas\/([^"]+)"/g)) {
      const schema = all[name];
      if (!schema || name in schemas) continue;
      schemas[name] = schema;
      take(schema);
    }
  };
  take(paths);
  return { openapi, info, paths, components: { schemas, parameters: components?.parameters ?? {} } };
}

/** True for a length limit that the body's size limit implies: checking it costs as much as parsing the body. */
const isOfBody = (key: string, value: unknown) =>
  (key === 'maxLength' && value === BODY_CHARACTERS) || (/^max(Items|Properties)$/.test(key) && value === BODY_VALUES);

/** Removes `default` values, because the validator would write them into bodies, and handlers expect bodies as sent. */
function withoutDefaults(value: unknown, parentKey = ''): unknown {
  if (Array.isArray(value)) return value.map((element) => withoutDefaults(element));
  if (typeof value !== 'object' || value === null) return value;
  const isName = parentKey === 'properties' || parentKey === 'responses';
  const members = Object.entries(value).filter(
    ([key, member]) => isName || (key !== 'default' && !isOfBody(key, member)),
  );
  return Object.fromEntries(members.map(([key, member]) => [key, withoutDefaults(member, key)]));
}
