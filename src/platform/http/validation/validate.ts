import type { Request } from 'express';
import type { Call, Operation } from '../operation/operation.ts';
import { snakeCase } from '../operation/paths.ts';
import { ValidationFailedError } from '../operation/request-errors.ts';
import { openApiGate } from './openapi-gate.ts';
import { parameterReader } from './parameters.ts';
import { bodyChecker } from './validate-body.ts';

/**
 * A request whose path, query, headers and body match its operation. `never`, because only the schemas of the
 * operation say what they are: its handler takes them as that.
 */
type ValidRequest = Pick<Call<never, never, never, never>, 'path' | 'query' | 'headers' | 'body'>;

/**
 * Checks one request of an operation.
 * @throws ValidationFailedError with all that is wrong: path first, then query, then headers, then body
 */
export type Validate = (request: Request) => Promise<ValidRequest>;

/**
 * Makes the check of each operation: `parameters.ts` reads path, query and headers, express-openapi-validator judges
 * bodies by the published document, zod words what it refuses.
 */
export function createValidation(document: () => object): (operation: Operation) => Validate {
  const gate = openApiGate(document);
  return (operation) => {
    const {
      method,
      path: template,
      parameters: { path: inPath, query: inQuery, headers: inHeaders } = {},
      body,
    } = operation;
    const readPath = parameterReader('path', inPath, snakeCase);
    const readQuery = parameterReader('query', inQuery, (name) => name);
    const readHeaders = parameterReader('header', inHeaders, (name) => name);
    const checkBody = body && bodyChecker(body, (value) => gate({ method, path: template }, value));
    return async (request) => {
      // Express parses the query at each look at it.
      const { params, query: sentQuery, headers: sentHeaders } = request;
      const fromPath = readPath((name) => params[name]);
      const fromQuery = readQuery((name) => sentQuery[name]);
      const fromHeaders = readHeaders((name) => sentHeaders[name]);
      const checked = await checkBody?.(request.body);
      const details = [...fromPath.details, ...fromQuery.details, ...fromHeaders.details, ...(checked?.details ?? [])];
      if (details.length > 0) throw new ValidationFailedError(details);
      const [path, query, headers] = [fromPath.values, fromQuery.values, fromHeaders.values];
      return { path, query, headers, body: checked?.value } as ValidRequest;
    };
  };
}
