import type { Request, Response } from 'express';
import type { z } from 'zod';
import { safeParse } from 'zod/v4/core';
import { mapExactIntegers } from '../../../core/exact-json.ts';
import { identifierSchema, nameError } from '../../../core/session.ts';
import { getChildren, getDefinition, pickRefined, unwrap } from '../../../core/zod-graph.ts';
import { type Call, IGNORED_MEMBERS, type Operation, type OperationBody } from '../operation/operation.ts';
import { snakeCase } from '../operation/paths.ts';
import { type ValidationDetail, ValidationFailedError, valueError } from '../operation/request-errors.ts';
import { hasBody } from './json-body.ts';
import { type KeyAliases, keyAliases } from './key-aliases.ts';
import { type CheckBody, openApiGate, type OpenApiViolation } from './openapi-gate.ts';
import { parameterReader, type RefusedParameter } from './parameters.ts';
import { queryNames, toExtraDetail, toHeaderText, unknownBody, type UnknownName } from './unknown-names.ts';
import { echo, MAX_DETAILS, nameRefusingType, toBodyDetails, toParameterDetails } from './zod-to-pydantic.ts';

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
 * Checks one request of an operation; of one with a protocol of others it names in a header of the answer what it did
 * not know.
 * @throws ValidationFailedError with all that is wrong: path first, then query, then headers, then body
 */
export type Validate = (request: Request, response: Response) => Promise<ValidRequest>;

/**
 * Prepares the check of each operation: `parameters.ts` reads path, query and headers, express-openapi-validator judges
 * bodies by the published document, zod words what it refuses, `unknown-names.ts` what an operation does not know.
 * @param appAliases further names of applications → the names that handlers get
 */
export function createValidation(
  document: () => object,
  appAliases: ReadonlyMap<string, string>,
  log?: { info?: (fields: Record<string, unknown>, message: string) => void },
): (operation: Operation) => Validate {
  const gate = openApiGate(document);
  return ({ operationId, wire, method, path: template, parameters = {}, body }) => {
    const readPath = parameterReader('path', parameters.path, snakeCase, appAliases);
    const readQuery = parameterReader('query', parameters.query, (name) => name, appAliases);
    const readHeaders = parameterReader('header', parameters.headers, (name) => name, appAliases);
    const queried = Object.keys(parameters.query?.shape ?? {});
    const readNames = queryNames(queried, singleNames(parameters.query), body && namesOf(body));
    // What has a name of before the rule can still be deleted.
    const isChange = method !== 'get' && method !== 'delete';
    const checkBody = body
      ? bodyChecker(body, keyAliases(body.schema, body.aliases, appAliases), gate(method, template), wire === undefined)
      : async (sent: unknown): Promise<CheckedBody> => ({ value: undefined, unknown: unknownBody(sent, queried) });
    return async (request, response) => {
      const { params, headers: sentHeaders } = request;
      const refused: RefusedParameter[] = [];
      const path = readPath((name) => params[name], refused);
      if (isChange && refused.length === 0) refused.push(...refusedNames(params));
      // Express parses the query each time it is read.
      const { values, spellings, unknown: inQuery } = readNames(request.query);
      const query = readQuery((name) => values[name], refused);
      const headers = readHeaders((name) => sentHeaders[name], refused);
      const { value, details = [], unknown: inBody = [] } = await checkBody(request.body);
      const isUnread = !body && wire !== undefined && hasBody(request);
      const unknown = [...inQuery, ...(isUnread ? [{ loc: ['body'], input: undefined, known: [] }] : inBody)];
      const isRefused = refused.length > 0 || details.length > 0 || (wire === undefined && unknown.length > 0);
      if (isRefused) {
        const inParameters = refused.map((each) => inSentSpelling(each, spellings)).flatMap(toParameterDetails);
        throw new ValidationFailedError(
          wire === undefined ? withUnknown([...inParameters, ...details], unknown) : [...inParameters, ...details],
        );
      }
      if (unknown.length > 0) {
        const ignored = toHeaderText(unknown);
        response.setHeader(IGNORED_MEMBERS, ignored);
        log?.info?.({ operation: operationId, ignored }, 'a request says what has no meaning here');
      }
      return { path, query, headers, body: value } as ValidRequest;
    };
  };
}

/** The names of the members of a body. */
const namesOf = ({ schema }: OperationBody) => ({
  known: Object.keys(getChildren(unwrap(schema)).members),
  place: 'the body',
});

/** The parameters that have one value. */
const singleNames = (query: z.ZodObject | undefined): ReadonlySet<string> =>
  new Set(Object.entries(query?.shape ?? {}).flatMap(([name, schema]) => (isList(schema) ? [] : [name])));
const isList = (schema: z.core.$ZodType) => getDefinition(unwrap(schema)).element !== undefined;

/** A refused parameter at the place where its request has it. */
const inSentSpelling = (refused: RefusedParameter, spellings: ReadonlyMap<string, string>): RefusedParameter => {
  const [place = '', name = '', ...rest] = refused.loc;
  const sent = place === 'query' ? spellings.get(String(name)) : undefined;
  return sent === undefined ? refused : { ...refused, loc: [place, sent, ...rest] };
};

/** Adds what is not known, each in the place of the detail that says less about it. */
function withUnknown(details: ValidationDetail[], unknown: UnknownName[]): ValidationDetail[] {
  const toKey = (loc: (string | number)[]) => JSON.stringify(loc);
  const extras = new Map(
    unknown.map((each) => {
      const detail = toExtraDetail({ ...each, input: echo(each.input) });
      return [toKey(detail.loc), detail] as const;
    }),
  );
  const kept = details.map((detail) => {
    const extra = detail.type === 'extra_forbidden' ? extras.get(toKey(detail.loc)) : undefined;
    if (extra) extras.delete(toKey(detail.loc));
    return extra ?? detail;
  });
  return [...kept, ...extras.values()].slice(0, MAX_DETAILS);
}

/** Returns the parameters of a path that could name nothing new. */
const refusedNames = (params: Request['params']): RefusedParameter[] =>
  Object.entries(params).flatMap(([name, value]) =>
    typeof value === 'string' && nameError(value) !== undefined
      ? [{ loc: ['path', name], schema: identifierSchema, text: value, value }]
      : [],
  );

/** A body in the schema's spelling, what is wrong with it, and what in it is not known. */
interface CheckedBody {
  value: unknown;
  details?: ValidationDetail[];
  unknown?: UnknownName[];
}

/** What stands for an exact integer before Ajv: free-form members take it, and none with a type. */
const UNTYPED = Symbol('an integer that no float holds');
const toUntyped = () => UNTYPED;

/**
 * Prepares the checks of one operation's bodies. Ajv decides, by the published document, and costs microseconds; zod
 * words what is refused. They agree but for rules that JSON Schema cannot say (`refine`): zod always checks the members
 * with those.
 * @param isOwn false where what is not known is no mistake
 */
function bodyChecker(
  { schema, required }: OperationBody,
  aliases: KeyAliases,
  gate: CheckBody,
  isOwn: boolean,
): (sent: unknown) => Promise<CheckedBody> {
  let refined: { schema: ReturnType<typeof pickRefined> } | undefined;
  return async (sent) => {
    // `null` counts as no body, and an optional body that is not there is an empty one.
    const isMissing = sent === undefined || sent === null;
    if (isMissing && required)
      return { value: undefined, details: [{ type: 'missing', loc: ['body'], msg: 'Field required', input: null }] };
    const found = { hasUnknown: false };
    const value = isMissing ? {} : aliases.toSchema(sent, found);
    const unknown = found.hasUnknown ? aliases.listUnknown(sent, MAX_DETAILS) : [];
    const [violation] = await gate(mapExactIntegers(value, toUntyped));
    refined ??= { schema: pickRefined(schema) };
    const isRefused = violation !== undefined || (isOwn && unknown.length > 0);
    if (!isRefused && (!refined.schema || safeParse(refined.schema, value).success)) return { value, unknown };
    const isExplained = !isRefused || countValues(value, MAX_EXPLAINED_VALUES) <= MAX_EXPLAINED_VALUES;
    const { error } = isExplained ? schema.safeParse(value, { error: nameRefusingType }) : {};
    if (error) return { value, unknown, details: toBodyDetails(error.issues, aliases, sent) };
    // What the document closes is said by name already.
    const isSaid = !violation || (isOwn && unknown.length > 0);
    return isSaid ? { value, unknown } : { value, unknown, details: [toViolationDetail(violation, aliases, sent)] };
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
