import type { ValidationDetail } from './error-bodies.ts';
import { type Complaint, openApiCheck } from './openapi-check.ts';
import type { Operation, OperationBody } from './operation.ts';
import { readParameters } from './parameters.ts';
import { ValidationFailedError, valueError } from './request-errors.ts';
import { type BodySpelling, bodySpelling } from './spelling.ts';
import { zodDetails } from './zod-details.ts';
import { hasRefinement } from './zod-graph.ts';

/** A request whose path, query and body match its operation. */
export interface ValidRequest {
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
    const details = body ? [...read.details, ...bodyDetails(body, complaints)] : read.details;
    const [other] = complaints;
    if (details.length === 0 && other) details.push(asValueError(other));
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

/** A body on its way through the checks: as it was sent, in the schema's spelling, and how to word a refusal. */
interface PreparedBody {
  value: unknown;
  missing: boolean;
  /** True where the schema has rules that JSON Schema cannot say. */
  hasOwnRules: boolean;
  explain(): ValidationDetail[];
}

/**
 * Ajv decides, by the published document, and costs microseconds; zod runs on a refused body only, for its words. Both come
 * from one schema, so they agree but for rules that JSON Schema cannot say (`refine`): where a schema has such rules, zod
 * runs on every body.
 */
function prepareBody(definition: OperationBody | undefined): ((sent: unknown) => PreparedBody) | undefined {
  if (!definition) return undefined;
  const { schema, required } = definition;
  const spelling: BodySpelling = bodySpelling(schema, definition.aliases);
  const hasOwnRules = hasRefinement(schema);
  return (sent) => {
    // FastAPI takes `null` for no body; an optional body that is not there is an empty one.
    const missing = sent === undefined || sent === null;
    const value = missing ? {} : spelling.toSchema(sent);
    return {
      value,
      missing: missing && required,
      hasOwnRules,
      explain: () => zodDetails(schema, spelling, { sent, renamed: value }),
    };
  };
}

function bodyDetails(body: PreparedBody, complaints: Complaint[]): ValidationDetail[] {
  if (body.missing) return [{ type: 'missing', loc: ['body'], msg: 'Field required', input: null }];
  return body.hasOwnRules || complaints.some(({ path }) => path.startsWith('/body')) ? body.explain() : [];
}

/** For what only the validator refuses, such as a length that it counts in code points and zod in UTF-16 units. */
function asValueError({ path, message }: Complaint): ValidationDetail {
  return valueError(path.replace('/params/', '/path/').split('/').slice(1), message);
}
