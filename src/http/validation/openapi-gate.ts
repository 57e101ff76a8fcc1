import type { Request, RequestHandler, Response } from 'express';
import { middleware } from 'express-openapi-validator';
import type { Operation } from '../operation/operation.ts';

/** One complaint of express-openapi-validator: `path` is `/body/...`, `/params/...` or `/query/...`. */
export interface Complaint {
  path: string;
  message: string;
  errorCode?: string;
}

/** What the validator is shown of a request. */
interface ShownRequest {
  params: Record<string, unknown>;
  query: Record<string, unknown>;
  body: unknown;
}

/** Checks one request of an operation; `[]` when the document accepts it. */
export type OpenApiCheck = (operation: Operation, shown: ShownRequest) => Promise<Complaint[]>;

/**
 * Starts express-openapi-validator on a document and sends one probe through every operation.
 *
 * The validator never sees a client's request but one built from it: parameters already read, one media type. So one pair of
 * validators per operation is compiled, at the start, and not one per distinct `Content-Type` (232 MB for 300 requests); no
 * route expressions are built again for each request (130 µs on a late route); HEAD is not refused; and nothing changes
 * that a handler sees. Credentials are `bearer.ts`'s part, because the validator takes a wrong token for anonymous.
 * @throws Error when the document is not valid OpenAPI or one of its schemas does not compile
 */
export async function openApiCheck(document: object, operations: Operation[]): Promise<OpenApiCheck> {
  const handlers = middleware({
    apiSpec: withoutDefaults(document) as never,
    validateSecurity: false,
    validateResponses: false,
    fileUploader: false,
    // allErrors is quadratic in the number of errors: 20 s for a body of 200 KB.
    validateRequests: { allErrors: false, coerceTypes: false, allowUnknownQueryParameters: true },
  }) as RequestHandler[];
  // The first of them reports a document that could not be loaded.
  const [load, match, validate] = ['pathParamsMiddleware', 'metadataMiddleware', 'requestMiddleware'].map((name) => {
    const handler = handlers.find((candidate) => candidate.name === name);
    if (!handler) throw new Error(`express-openapi-validator has no ${name} any more: its version is pinned for this.`);
    return handler;
  }) as [RequestHandler, RequestHandler, RequestHandler];
  const matched = new Map<Operation, object>();
  for (const operation of operations) {
    const probe = shownRequest(operation, NOTHING);
    await pass(load, probe);
    await pass(match, probe);
    if (probe.openapi?.openApiRoute !== operation.path) {
      throw new Error(
        `${operation.method} ${operation.path} is hidden by ${probe.openapi?.openApiRoute} in the document.`,
      );
    }
    matched.set(operation, probe.openapi);
    await complaintsOf(validate, shownRequest(operation, { ...NOTHING, body: operation.body && {} }, probe.openapi));
  }
  return (operation, shown) => complaintsOf(validate, shownRequest(operation, shown, matched.get(operation)));
}

const NOTHING: ShownRequest = { params: {}, query: {}, body: undefined };

interface ProbeRequest extends ShownRequest {
  method: string;
  path: string;
  originalUrl: string;
  baseUrl: string;
  headers: Record<string, string>;
  app: { enabled: () => boolean; param: () => void };
  openapi?: { openApiRoute?: string; pathParams?: object } | undefined;
}

function shownRequest(operation: Operation, shown: ShownRequest, openapi?: object): ProbeRequest {
  const path = operation.path.replaceAll(/\{\w+\}/g, '0');
  return {
    ...shown,
    method: operation.method.toUpperCase(),
    path,
    originalUrl: path,
    baseUrl: '',
    headers: shown.body === undefined ? {} : { 'content-type': 'application/json' },
    app: { enabled: () => false, param: () => {} },
    openapi: openapi && { ...openapi, pathParams: shown.params },
  };
}

/** Runs one handler of the validator to its end. */
function pass(handler: RequestHandler, shown: ProbeRequest): Promise<void> {
  return new Promise((resolve, reject) => {
    const done = (error?: unknown) => (error === undefined ? resolve() : reject(error));
    void handler(shown as unknown as Request, {} as Response, done);
  });
}

async function complaintsOf(handler: RequestHandler, shown: ProbeRequest): Promise<Complaint[]> {
  try {
    await pass(handler, shown);
    return [];
  } catch (error) {
    const { status, errors } = error as { status?: number; errors?: Complaint[] };
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
