import { createHash } from 'node:crypto';
import type { Request, RequestHandler, Response } from 'express';
import { base64Error } from '../../../core/base64.ts';

/** What express-openapi-validator says against a body: `path` is `/body` or begins with `/body/`. */
export interface OpenApiViolation {
  path: string;
  message: string;
}

/** The operation that a body is for. */
interface Target {
  method: string;
  /** Its template in the document. */
  path: string;
  /** Of its body; `application/json` unless given. */
  mediaType?: string | undefined;
}

/** Checks the body of one request; `[]` when the document accepts it. */
export type OpenApiGate = (target: Target, body: unknown) => Promise<OpenApiViolation[]>;

interface OpenApiDocument {
  openapi: string;
  info: object;
  paths: Record<
    string,
    Record<string, { requestBody?: { content: Record<string, { schema: object }> }; deprecated?: boolean }>
  >;
  components?: { schemas?: Record<string, object> };
}

/**
 * express-openapi-validator as the gate of every body, by the published document.
 *
 * The validator never sees a client's request but one built from it: nothing but the body, of one media type. So one
 * validator per operation is compiled, and not one per distinct `Content-Type` (232 MB for 300 requests); no route
 * expressions are built again for each request (130 µs on a late route); and nothing changes that a handler sees.
 * Parameters are `parameters.ts`'s part, credentials `bearer.ts`'s, because the validator takes a wrong token for
 * anonymous.
 *
 * The package is loaded with the first body, and an operation's validator compiled with its first one: together they
 * were two thirds of the CPU time of a start. `compileDocument` compiles all of a document.
 */
export function openApiGate(document: () => object): OpenApiGate {
  let gate: OpenApiGate | undefined;
  return (target, body) => (gate ??= gateOf(onlyBodies(document() as OpenApiDocument)))(target, body);
}

/** Gates of this process, by the digest of what they check: as many as there are documents, one for each mode. */
const gates = new Map<string, OpenApiGate>();

/** One gate for all runtimes of a process that check the same: one more costs 0.4 s of CPU with its first body. */
function gateOf(bodies: object): OpenApiGate {
  const digest = createHash('sha256').update(JSON.stringify(bodies)).digest('base64');
  const gate = gates.get(digest) ?? newGate(bodies);
  gates.set(digest, gate);
  return gate;
}

function newGate(bodies: object): OpenApiGate {
  const loading = loadValidator(bodies, false);
  const matched = new Map<string, Promise<object>>();
  return async ({ method, path }, body) => {
    const validator = await loading;
    const name = `${method} ${path}`;
    const found = matched.get(name) ?? validator.match({ method, path });
    matched.set(name, found);
    return violationsOf(validator.validate, shownRequest({ method, path }, body, await found));
  };
}

/**
 * Compiles every schema of a document, as only tests and `openapi` do.
 * @throws Error when the document is not valid OpenAPI or one of its schemas does not compile
 */
export async function compileDocument(document: object): Promise<void> {
  const { match } = await loadValidator(document, true);
  // Ajv goes twice through all that a document has for each operation.
  const { validate } = await loadValidator(withoutAnswers(document as OpenApiDocument), false);
  for (const [path, item] of Object.entries((document as OpenApiDocument).paths)) {
    for (const [method, { requestBody }] of Object.entries(item)) {
      const target = { method, path, mediaType: Object.keys(requestBody?.content ?? {})[0] };
      const body = requestBody && {};
      await violationsOf(validate, shownRequest(target, body, await match(target)));
    }
  }
}

interface Validator {
  /** What the validator knows of an operation. @throws Error when another one hides it in the document. */
  match: (target: Target) => Promise<object>;
  validate: RequestHandler;
}

async function loadValidator(document: object, validateApiSpec: boolean): Promise<Validator> {
  const { middleware } = await import('express-openapi-validator');
  const handlers = middleware({
    apiSpec: withoutDefaults(document) as never,
    validateApiSpec,
    formats: { byte: { type: 'string', validate: (text: string) => base64Error(text) === undefined } },
    validateSecurity: false,
    validateResponses: false,
    fileUploader: false,
    // allErrors is quadratic in the number of errors: 20 s for a body of 200 KB.
    validateRequests: { allErrors: false, coerceTypes: false, allowUnknownQueryParameters: true },
  }) as RequestHandler[];
  const named = (name: string): RequestHandler => {
    const handler = handlers.find((candidate) => candidate.name === name);
    if (!handler) throw new Error(`express-openapi-validator has no ${name} any more: its version is pinned for this.`);
    return handler;
  };
  const [load, match] = [named('pathParamsMiddleware'), named('metadataMiddleware')];
  return {
    validate: named('requestMiddleware'),
    match: async (target) => {
      const probe = shownRequest(target, undefined);
      // The first of them reports a document that could not be loaded.
      await pass(load, probe);
      await pass(match, probe);
      if (probe.openapi?.openApiRoute === target.path) return probe.openapi;
      throw new Error(`${target.method} ${target.path} is hidden by ${probe.openapi?.openApiRoute} in the document.`);
    },
  };
}

/**
 * The part of a document that the gate needs: schemas of bodies, as JSON and at their main path; no parameters, no
 * answers.
 */
function onlyBodies(document: OpenApiDocument): object {
  const paths = Object.entries(document.paths).flatMap(([path, item]) => {
    const operations = Object.entries(item).flatMap(([method, { requestBody, deprecated }]) => {
      const [media] = Object.values(requestBody?.content ?? {});
      if (!media || deprecated) return [];
      const content = { 'application/json': { schema: media.schema } };
      return [[method, { requestBody: { content }, responses: {} }]];
    });
    return operations.length > 0 ? [[path, Object.fromEntries(operations)]] : [];
  });
  return withPaths(document, Object.fromEntries(paths));
}

function withoutAnswers(document: OpenApiDocument): object {
  const paths = Object.entries(document.paths).map(([path, item]) => {
    const operations = Object.entries(item).map(([method, operation]) => [method, { ...operation, responses: {} }]);
    return [path, Object.fromEntries(operations)] as const;
  });
  return withPaths(document, Object.fromEntries(paths));
}

/** A document of certain paths, with the schemas that they name, and that those name. */
function withPaths({ openapi, info, components }: OpenApiDocument, paths: object): object {
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

interface ProbeRequest {
  method: string;
  path: string;
  originalUrl: string;
  baseUrl: string;
  headers: Record<string, string>;
  app: { enabled: () => boolean; param: () => void };
  params: object;
  query: object;
  body: unknown;
  openapi?: { openApiRoute?: string; pathParams?: object } | undefined;
}

function shownRequest(
  { method, path, mediaType = 'application/json' }: Target,
  body: unknown,
  openapi?: object,
): ProbeRequest {
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
    openapi: openapi && { ...openapi, pathParams: {} },
  };
}

/** Runs one handler of the validator to its end. */
function pass(handler: RequestHandler, shown: ProbeRequest): Promise<void> {
  return new Promise((resolve, reject) => {
    const done = (error?: unknown) => (error === undefined ? resolve() : reject(error));
    void handler(shown as unknown as Request, {} as Response, done);
  });
}

async function violationsOf(handler: RequestHandler, shown: ProbeRequest): Promise<OpenApiViolation[]> {
  try {
    await pass(handler, shown);
    return [];
  } catch (error) {
    const { status, errors } = error as { status?: number; errors?: OpenApiViolation[] };
    if (status === 400 && errors !== undefined) return errors;
    throw error;
  }
}

/** The validator would write `default` values into bodies; handlers see bodies as they were sent. */
function withoutDefaults(value: unknown, parentKey = ''): unknown {
  if (Array.isArray(value)) return value.map((element) => withoutDefaults(element));
  if (typeof value !== 'object' || value === null) return value;
  const isName = parentKey === 'properties' || parentKey === 'responses';
  const members = Object.entries(value).filter(([key]) => isName || key !== 'default');
  return Object.fromEntries(members.map(([key, member]) => [key, withoutDefaults(member, key)]));
}
