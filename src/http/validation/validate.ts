import { prepareBody } from './validate-body.ts';
import { openApiCheck } from './openapi-gate.ts';
import type { Operation } from '../operation/operation.ts';
import { readParameters } from './parameters.ts';
import { ValidationFailedError, valueError } from '../operation/request-errors.ts';

/** A request whose path, query and body match its operation. */
interface ValidRequest {
  path: Record<string, string>;
  integers: Record<string, number | undefined>;
  query: Record<string, unknown>;
  body: unknown;
}

/**
 * Checks one request of an operation.
 * @throws ValidationFailedError with all that is wrong: path first, then query, then body
 */
export type Validate = (
  operation: Operation,
  sent: { path: Record<string, unknown>; query: Record<string, unknown>; body: unknown },
) => Promise<ValidRequest>;

/**
 * Prepares the checks of all operations against the published document: `parameters.ts` reads path and query,
 * express-openapi-validator decides by the document, zod words the refusal of a body.
 * @throws Error when the document is not valid OpenAPI or one of its schemas does not compile: the process must not start
 */
export async function createValidator(document: object, operations: Operation[]): Promise<Validate> {
  const check = await openApiCheck(document, operations);
  const bodies = new Map(operations.map((operation) => [operation, prepareBody(operation.body)]));
  return async (operation, sent) => {
    const read = readParameters(operation, sent.path, sent.query);
    const body = bodies.get(operation)?.(sent.body);
    const complaints = await check(operation, {
      params: shownPath(operation, read.path, read.integers),
      query: { ...read.query },
      body: body?.value,
    });
    const details = [...read.details, ...(body?.details(complaints) ?? [])];
    // Paths and queries are judged by `parameters.ts`; should only the document refuse one, it is refused all the same.
    const [other] = complaints;
    if (details.length === 0 && other) details.push(valueError(other.path.split('/').slice(1), other.message));
    if (details.length > 0) throw new ValidationFailedError(details);
    return { path: read.path, integers: read.integers, query: read.query, body: body?.value };
  };
}

/** Integers go to the validator as numbers; one that is malformed or too large was judged already and shows as 0. */
function shownPath(
  operation: Operation,
  path: Record<string, string>,
  integers: Record<string, number | undefined>,
): Record<string, unknown> {
  const names = operation.integerPath ?? [];
  return { ...path, ...Object.fromEntries(names.map((name) => [name, integers[name] ?? 0])) };
}
