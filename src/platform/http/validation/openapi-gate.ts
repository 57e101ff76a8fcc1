import { hash } from 'node:crypto';
import type { Request, RequestHandler, Response } from 'express';
import { base64Error } from '../../../core/base64.ts';
import { BODY_CHARACTERS, BODY_VALUES } from '../../../core/members.ts';

/** A mistake that express-openapi-validator found in a body: `path` is `/body` or begins with `/body/`. */
export interface OpenApiViolation {
  path: string;
  message: string;
}

/** Checks the body of one request; `[]` when the document accepts it. */
export type CheckBody = (body: unknown) => Promise<OpenApiViolation[]>;

interface OpenApiDocument {
  openapi: string;
  info: object;
  paths: Record<string, Record<string, OperationObject>>;
  components?: { schemas?: Record<string, object> };
}

interface OperationObject {
  requestBody?: { content: Record<string, { schema: object }> };
}

/**
 * express-openapi-validator as the gate of every body, by the published document.
 *
 * The validator never sees a client's request but one built from it: nothing but the body, as JSON. So an operation has
 * one validator, and not one per distinct `Content-Type` (232 MB for 300 requests), and nothing changes that a handler
 * sees. Its document holds that operation alone: to find one of all costs more than the check. Parameters are
 * `parameters.ts`'s part, credentials `bearer.ts`'s, because the validator takes a wrong token for anonymous.
 *
 * The package is loaded with the first body, and an operation's validator compiled with its first one: together they
 * were two thirds of the CPU time of a start.
 */
export function openApiGate(document: () => object): (method: string, path: string) => CheckBody {
  let bodies: OpenApiDocument | undefined;
  return (method, path) => {
    let check: CheckBody | undefined;
    return (body) => {
      bodies ??= onlyBodies(document() as OpenApiDocument);
      return (check ??= checkFor(bodies, method, path))(body);
    };
  };
}

/** The checks of this process by their document: its runtimes share them, because one costs 0.1 s of CPU. */
const checks = new Map<string, CheckBody>();

function checkFor(document: OpenApiDocument, method: string, path: string): CheckBody {
  const single = bounded(withPaths(document, { [path]: { [method]: document.paths[path]?.[method] ?? {} } }));
  const key = hash('sha256', JSON.stringify(single), 'base64');
  const check = checks.get(key) ?? createCheck(single, method, path);
  checks.set(key, check);
  return check;
}

/**
 * Bounds integers as zod does, which the published document leaves out: to those that a 64-bit float holds exactly, and
 * a column of PostgreSQL too.
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
): CheckBody {
  const loading = loadValidator(document, false);
  return async (body) => {
    try {
      await runHandlers(await loading, toProbe(method, path, body, mediaType));
      return [];
    } catch (error) {
      const { status, errors } = error as { status?: number; errors?: OpenApiViolation[] };
      if (status === 400 && errors !== undefined) return errors;
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
    formats: { byte: { type: 'string', validate: (text: string) => base64Error(text) === undefined } },
    validateSecurity: false,
    validateResponses: false,
    fileUploader: false,
    // allErrors is quadratic in the number of errors: 20 s for a body of 200 KB.
    validateRequests: { allErrors: false, coerceTypes: false, allowUnknownQueryParameters: true },
  }) as RequestHandler[];
}

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

/** The part of a document that the gate needs: schemas of bodies, as JSON; no parameters, no answers. */
function onlyBodies(document: OpenApiDocument): OpenApiDocument {
  const paths = Object.entries(document.paths).map(([path, item]) => {
    const operations = Object.entries(item).flatMap(([method, { requestBody }]) => {
      const [media] = Object.values(requestBody?.content ?? {});
      const content = { 'application/json': { schema: media?.schema } };
      return media ? [[method, { requestBody: { content }, responses: {} }]] : [];
    });
    return [path, Object.fromEntries(operations)];
  });
  return withPaths(document, Object.fromEntries(paths));
}

/** A document of certain paths, with the schemas that they name, and that those name. */
function withPaths({ openapi, info, components }: OpenApiDocument, paths: OpenApiDocument['paths']): OpenApiDocument {
  const all = components?.schemas ?? {};
  const schemas: Record<string, object> = {};
  const take = (value: object) => {
    for (const [, name = ''] of JSON.stringify(value).matchAll(/"#\/components\/schemas\/([^"]+)"/g)) {
      const schema = all[name];
      if (!schema || name in schemas) continue;
      schemas[name] = schema;
      take(schema);
    }
  };
  take(paths);
  return { openapi, info, paths, components: { schemas } };
}

/** A bound of the document that the body as a whole keeps: to count characters again would cost as much as parsing. */
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
