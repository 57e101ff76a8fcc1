import { hash } from 'node:crypto';
import type { Request, RequestHandler, Response } from 'express';
import { BODY_CHARACTERS, BODY_VALUES } from '../../../core/members.ts';
import { type FindError, TEXT_FORMATS } from '../../../core/text-format.ts';
import { explain, type JsonSchema, type Mistake } from './words.ts';

/** A mistake that express-openapi-validator found in a body: `path` is `/body` or begins with `/body/`. */
interface Violation {
  path: string;
  message: string;
}

/** The judge of one operation's bodies, by the published document. */
export interface BodyGate {
  /** Returns what the document refuses of a body, the first mistake alone; `undefined` if it accepts the body. */
  check: (body: unknown) => Promise<Violation | undefined>;
  /** Returns the mistakes of a refused body in pydantic's words, `most` at most; see {@link explain}. */
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
 * express-openapi-validator as the judge of every body, by the published document.
 *
 * The package gets a request made for it, with eight fixed members and the body, and judges nothing else, because the
 * client's own request costs too much or is judged otherwise:
 * - It compiles a validator for each distinct `Content-Type` and keeps it: 232 MB for 300 requests.
 * - It routes again by `originalUrl`, where a name of an artifact may have raw slashes.
 * - It redefines `query` on the request, parses JSON in elements of arrays and refuses reserved characters with 400.
 * - Ajv coerces text by rules of its own: it reads `1e2`, and neither `yes` nor `1_000`. So `parameters.ts` reads text.
 * - The published pattern of a path parameter is narrower than the rule, because a name that breaks it is a 404.
 * - It takes a wrong token for anonymous. So `bearer.ts` checks credentials.
 *
 * Its document has one operation, because finding one of all costs more than the check: the whole document as one
 * middleware rebuilds the pattern of each route with each request, 0.5 ms.
 *
 * The package is loaded with the first body, and an operation's validator compiled with its first one: together they
 * were two thirds of the CPU time of a start.
 */
export function openApiGate(document: () => object): (method: string, path: string) => BodyGate {
  let bodies: OpenApiDocument | undefined;
  return (method, path) => {
    let gate: BodyGate | undefined;
    const prepared = () => {
      bodies ??= onlyBodies(document() as OpenApiDocument);
      return (gate ??= gateFor(bodies, method, path));
    };
    return { check: (body) => prepared().check(body), explain: (body, most) => prepared().explain(body, most) };
  };
}

/** The gates of this process by their document: its runtimes share them, because one costs 0.1 s of CPU. */
const gates = new Map<string, BodyGate>();

function gateFor(document: OpenApiDocument, method: string, path: string): BodyGate {
  const single = bounded(withPaths(document, { [path]: { [method]: document.paths[path]?.[method] ?? {} } }));
  const key = hash('sha256', JSON.stringify(single), 'base64');
  const gate = gates.get(key) ?? {
    check: createCheck(single, method, path),
    explain: (body, most) => explain(bodySchema(single, method, path), body, (each) => resolveIn(single, each), most),
  };
  gates.set(key, gate);
  return gate;
}

const bodySchema = ({ paths }: OpenApiDocument, method: string, path: string) =>
  paths[path]?.[method]?.requestBody?.content['application/json']?.schema ?? {};

const resolveIn = ({ components }: OpenApiDocument, schema: JsonSchema) => {
  const { $ref: reference } = schema;
  return typeof reference === 'string' ? (components?.schemas?.[reference.slice(REFERENCE.length)] ?? {}) : schema;
};
const REFERENCE = '#/components/schemas/';

/**
 * Bounds integers as zod does and the published document does not: to those that a 64-bit float holds exactly, and a
 * column of PostgreSQL too.
 */
const bounded = (document: OpenApiDocument): OpenApiDocument =>
  JSON.parse(JSON.stringify(document), (_name, value: { type?: unknown } | null) => {
    const isInteger = typeof value === 'object' && value !== null && [value.type].flat().includes('integer');
    return isInteger ? { minimum: Number.MIN_SAFE_INTEGER, maximum: Number.MAX_SAFE_INTEGER, ...value } : value;
  }) as OpenApiDocument;

/** @param document that of one operation */
function createCheck(
  document: OpenApiDocument,
  method: string,
  path: string,
  mediaType = 'application/json',
): BodyGate['check'] {
  const loading = loadValidator(document, false);
  return async (body) => {
    try {
      await runHandlers(await loading, toProbe(method, path, body, mediaType));
      return undefined;
    } catch (error) {
      const { status, errors } = error as { status?: number; errors?: Violation[] };
      if (status === 400 && errors !== undefined) return errors[0];
      throw error;
    }
  };
}

/**
 * Compiles every schema of a document, as only tests and `openapi` do.
 * @throws Error when the document is not valid OpenAPI or one of its schemas does not compile
 */
export async function compileDocument(document: object): Promise<void> {
  const whole = document as OpenApiDocument;
  const [load] = await loadValidator(whole, true);
  // The first handler reports a document that could not be loaded.
  if (load) await runHandlers([load], toProbe('get', '/', undefined, ''));
  for (const [path, item] of Object.entries(whole.paths)) {
    for (const [method, operation] of Object.entries(item)) {
      // Without its answers, which are not checked: Ajv goes through all that a document has.
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
    // allErrors is quadratic in the number of errors: 20 s for a body of 200 KB.
    validateRequests: { allErrors: false, coerceTypes: false, allowUnknownQueryParameters: true },
  }) as RequestHandler[];
}

const toFormat = (findError: FindError) => ({
  type: 'string' as const,
  validate: (text: string) => findError(text) === undefined,
});

/** Returns a request with all that the validator reads of one. */
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

async function runHandlers(handlers: RequestHandler[], probe: Request): Promise<void> {
  for (const handler of handlers) {
    await new Promise<void>((resolve, reject) => {
      const done = (error?: unknown) => (error === undefined ? resolve() : reject(error));
      void handler(probe, {} as Response, done);
    });
  }
}

/** The part of a document that judges bodies: their schemas, as JSON; no parameters, no answers. */
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

/** A document of some paths, with the schemas that they name and that those name in turn. */
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

/** True for a bound that the body as a whole keeps: counting its characters again would cost as much as parsing it. */
const isOfBody = (key: string, value: unknown) =>
  (key === 'maxLength' && value === BODY_CHARACTERS) || (/^max(Items|Properties)$/.test(key) && value === BODY_VALUES);

/** The validator would write `default` values into bodies; handlers see bodies as they were sent. */
function withoutDefaults(value: unknown, parentKey = ''): unknown {
  if (Array.isArray(value)) return value.map((element) => withoutDefaults(element));
  if (typeof value !== 'object' || value === null) return value;
  const isName = parentKey === 'properties' || parentKey === 'responses';
  const members = Object.entries(value).filter(
    ([key, member]) => isName || (key !== 'default' && !isOfBody(key, member)),
  );
  return Object.fromEntries(members.map(([key, member]) => [key, withoutDefaults(member, key)]));
}
