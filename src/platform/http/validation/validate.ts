import type { Request } from 'express';
import { safeParse } from 'zod/v4/core';
import { mapExactIntegers } from '../../../core/exact-json.ts';
import { identifierSchema, nameError } from '../../../core/session.ts';
import { pickRefined } from '../../../core/zod-graph.ts';
import type { Call, Operation, OperationBody } from '../operation/operation.ts';
import { snakeCase } from '../operation/paths.ts';
import { type ValidationDetail, ValidationFailedError, valueError } from '../operation/request-errors.ts';
import { type KeyAliases, keyAliases } from './key-aliases.ts';
import { type CheckBody, openApiGate, type OpenApiViolation } from './openapi-gate.ts';
import { parameterReader, type RefusedParameter } from './parameters.ts';
import { nameRefusingType, toBodyDetails, toParameterDetails } from './zod-to-pydantic.ts';

/**
 * zod finds every mistake and cannot be told to stop: five million wrong items in a body of 10 MB would take it
 * seconds and gigabytes. A refused body with more values than this gets the one mistake that Ajv found.
 */
const MAX_EXPLAINED_VALUES = 20_000;

/**
 * A request whose path, query, headers and body match its operation. `never`, because only the schemas of the
 * operation say what they are: its handler takes them as that.
 */
export type ValidRequest = Pick<Call<never, never, never, never>, 'path' | 'query' | 'headers' | 'body'>;

/**
 * Checks one request of an operation.
 * @throws ValidationFailedError with all that is wrong: path first, then query, then headers, then body
 */
export type Validate = (request: Request) => Promise<ValidRequest>;

/**
 * Prepares the check of each operation: `parameters.ts` reads path, query and headers, express-openapi-validator judges
 * bodies by the published document, zod words what it refuses.
 * @param appAliases further names of applications → the names that handlers get
 */
export function createValidation(
  document: () => object,
  appAliases: ReadonlyMap<string, string>,
): (operation: Operation) => Validate {
  const gate = openApiGate(document);
  return ({ method, path: template, parameters = {}, body }) => {
    const readPath = parameterReader('path', parameters.path, snakeCase, appAliases);
    const readQuery = parameterReader('query', parameters.query, (name) => name, appAliases);
    const readHeaders = parameterReader('header', parameters.headers, (name) => name, appAliases);
    // What has a name of before the rule can still be deleted.
    const isChange = method !== 'get' && method !== 'delete';
    const checkBody =
      body && bodyChecker(body, keyAliases(body.schema, body.aliases, appAliases), gate(method, template));
    return async (request) => {
      // Express parses the query each time it is read.
      const { params, query: sentQuery, headers: sentHeaders } = request;
      const refused: RefusedParameter[] = [];
      const path = readPath((name) => params[name], refused);
      if (isChange && refused.length === 0) refused.push(...refusedNames(params));
      const query = readQuery((name) => sentQuery[name], refused);
      const headers = readHeaders((name) => sentHeaders[name], refused);
      const checked = await checkBody?.(request.body);
      if (refused.length > 0 || checked?.details)
        throw new ValidationFailedError([...refused.flatMap(toParameterDetails), ...(checked?.details ?? [])]);
      return { path, query, headers, body: checked?.value } as ValidRequest;
    };
  };
}

/** Returns the parameters of a path that could name nothing new. */
const refusedNames = (params: Request['params']): RefusedParameter[] =>
  Object.entries(params).flatMap(([name, value]) =>
    typeof value === 'string' && nameError(value) !== undefined
      ? [{ loc: ['path', name], schema: identifierSchema, text: value, value }]
      : [],
  );

/** A body in the schema's spelling, and what is wrong with it. */
interface CheckedBody {
  value: unknown;
  details?: ValidationDetail[];
}

/** What stands for an exact integer before Ajv: free-form members take it, and none with a type. */
const UNTYPED = Symbol('an integer that no float holds');
const toUntyped = () => UNTYPED;

/**
 * Prepares the checks of one operation's bodies. Ajv decides, by the published document, and costs microseconds; zod
 * words what is refused. They agree but for rules that JSON Schema cannot say (`refine`): zod always checks the members
 * with those.
 */
function bodyChecker(
  { schema, required }: OperationBody,
  aliases: KeyAliases,
  gate: CheckBody,
): (sent: unknown) => Promise<CheckedBody> {
  let refined: { schema: ReturnType<typeof pickRefined> } | undefined;
  return async (sent) => {
    // `null` counts as no body, and an optional body that is not there is an empty one.
    const isMissing = sent === undefined || sent === null;
    if (isMissing && required)
      return { value: undefined, details: [{ type: 'missing', loc: ['body'], msg: 'Field required', input: null }] };
    const value = isMissing ? {} : aliases.toSchema(sent);
    const [violation] = await gate(mapExactIntegers(value, toUntyped));
    refined ??= { schema: pickRefined(schema) };
    if (!violation && (!refined.schema || safeParse(refined.schema, value).success)) return { value };
    const isExplained = !violation || countValues(value, MAX_EXPLAINED_VALUES) <= MAX_EXPLAINED_VALUES;
    const { error } = isExplained ? schema.safeParse(value, { error: nameRefusingType }) : {};
    if (error) return { value, details: toBodyDetails(error.issues, aliases, sent) };
    return violation ? { value, details: [toViolationDetail(violation, aliases, sent)] } : { value };
  };
}

/** Ajv alone refuses, for instance, a length that it counts in code points and zod in UTF-16 units. */
function toViolationDetail({ path, message }: OpenApiViolation, aliases: KeyAliases, sent: unknown): ValidationDetail {
  const steps = path.split('/').slice(2);
  const keys = steps.map((step) =>
    /^\d+$/.test(step) ? Number(step) : step.replaceAll('~1', '/').replaceAll('~0', '~'),
  );
  return valueError(['body', ...aliases.toSentPath(sent, keys)], message);
}

/** Counts values until there are more than `limit`. */
function countValues(value: unknown, limit: number): number {
  if (typeof value !== 'object' || value === null) return 1;
  let count = 1;
  for (const key in value) {
    count += countValues((value as Record<string, unknown>)[key], limit - count);
    if (count > limit) break;
  }
  return count;
}
