import type { Request, Response } from 'express';
import { z } from 'zod';
import { safeParse } from 'zod/v4/core';
import { toErrorText } from '../../../core/errors.ts';
import { mapExactIntegers } from '../../../core/exact-json.ts';
import { identifierSchema, nameError } from '../../../core/session.ts';
import { getChildren, getDefinition, pickRefined, unwrap } from '../../../core/zod-graph.ts';
import { getBodyBytes } from '../limits/caller-limits.ts';
import { type Call, IGNORED_MEMBERS, type Operation, type OperationBody } from '../operation/operation.ts';
import { snakeCase } from '../operation/paths.ts';
import { type ValidationDetail, ValidationFailedError, valueError } from '../operation/request-errors.ts';
import { type KeyAliases, keyAliases } from './key-aliases.ts';
import { type BodyGate, openApiGate } from './openapi-gate.ts';
import { parameterReader, queryNames, type RefusedParameter } from './parameters.ts';
import { toExtraDetail, toHeaderText, unknownBody, type UnknownName } from './unknown-names.ts';
import { explain, type JsonPath, type JsonSchema, MISSING, type Mistake, ofUnreadable, toDetail } from './words.ts';

/** A request that matches its operation. The types are `never`, because only the operation's schemas know them. */
export type ValidRequest = Pick<Call<never, never, never, never>, 'path' | 'query' | 'headers' | 'body'>;

/**
 * Validates a request. Unknown names in operations of third-party protocols are accepted and listed in a header.
 * @throws ValidationFailedError with all errors, in the order path, query, headers, body
 */
export type Validate = (request: Request, response: Response) => Promise<ValidRequest>;

/**
 * Prepares validation: `parameters.ts` parses path, query and headers, express-openapi-validator checks bodies by the
 * OpenAPI document, `words.ts` writes the messages by it, and `unknown-names.ts` finds unknown names.
 * @param appAliases alias of an application → the name that handlers receive
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
    // Reads and deletions accept names that break the rules for new ones, because an object may be older than a rule.
    const isChange = method !== 'get' && method !== 'delete';
    const checkBody = body
      ? bodyChecker(body, keyAliases(body.schema, body.aliases, appAliases), gate({ method, path: template, body }))
      : async (sent: unknown) => ({
          value: undefined,
          details: [],
          unknown: sent === undefined ? [] : unknownBody(sent, queried),
        });
    return async (request, response) => {
      const { params, headers: sentHeaders } = request;
      const refused: RefusedParameter[] = [];
      const path = readPath(params, refused);
      if (isChange && refused.length === 0) refused.push(...refusedNames(params));
      // The query is read once, because Express parses it at each access.
      const { values, spellings, unknown: inQuery } = readNames(request.query);
      const query = readQuery(values, refused);
      const headers = readHeaders(sentHeaders, refused);
      const { value, details: inBody, unknown: unknownInBody } = await checkBody(request.body);
      const isUnread = !body && wire !== undefined && getBodyBytes(request) > 0;
      const unknown = [...inQuery, ...(isUnread ? [{ loc: ['body'], input: undefined, known: [] }] : unknownInBody)];
      const inParameters = refused.map((each) => toParameterDetail(inSentSpelling(each, spellings)));
      const mistakes = [...inParameters, ...inBody];
      const details = wire === undefined ? withUnknown(mistakes, unknown) : mistakes;
      if (details.length > 0) throw new ValidationFailedError(details);
      if (unknown.length > 0) {
        const ignored = toHeaderText(unknown);
        response.setHeader(IGNORED_MEMBERS, ignored);
        log?.info?.({ operation: operationId, ignored }, 'a request says what has no meaning here');
      }
      return { path, query, headers, body: value } as ValidRequest;
    };
  };
}

const namesOf = ({ schema }: OperationBody) => ({
  known: Object.keys(getChildren(unwrap(schema)).members),
  place: 'the body',
});

const singleNames = (query: z.ZodObject | undefined): ReadonlySet<string> =>
  new Set(Object.entries(query?.shape ?? {}).flatMap(([name, schema]) => (isList(schema) ? [] : [name])));
const isList = (schema: z.core.$ZodType) => getDefinition(unwrap(schema)).element !== undefined;

/** Replaces a refused parameter's name by the spelling that was sent. */
const inSentSpelling = (refused: RefusedParameter, spellings: ReadonlyMap<string, string>): RefusedParameter => {
  const [place = '', name = '', ...rest] = refused.loc;
  const sent = place === 'query' ? spellings.get(String(name)) : undefined;
  return sent === undefined ? refused : { ...refused, loc: [place, sent, ...rest] };
};

/** Appends the errors for unknown names; each replaces zod's or the validator's own error for the same name. */
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

/** Returns the path parameters whose values are not allowed as names of new objects. */
const refusedNames = (params: Request['params']): RefusedParameter[] =>
  Object.entries(params).flatMap(([name, value]) =>
    typeof value === 'string' && nameError(value) !== undefined
      ? [{ loc: ['path', name], schema: identifierSchema, text: value, value }]
      : [],
  );

function toParameterDetail({ loc, schema, text, value, refusal }: RefusedParameter): ValidationDetail {
  if (text === undefined) return toDetail(MISSING, loc, null);
  if (refusal) return toDetail(ofUnreadable(refusal), loc, text);
  const issues = safeParse(schema, value).error?.issues ?? [];
  const rule = issues.find(
    (issue) => issue.code === 'custom' || (issue.code === 'invalid_format' && issue.format !== 'regex'),
  );
  const [mistake] = rule ? [] : explain(toJsonSchema(schema), value, (each) => each, 1);
  return mistake ? toDetail(mistake.words, loc, text) : valueError(loc, (rule ?? issues[0])?.message ?? '', text);
}

const published = new WeakMap<z.core.$ZodType, JsonSchema>();

/** Returns the JSON Schema of a parameter's text; cached, because a request may have thousands of invalid texts. */
function toJsonSchema(schema: z.core.$ZodType): JsonSchema {
  const known = published.get(schema) ?? z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' });
  published.set(schema, known);
  return known;
}

/** Maximum number of validation errors in a response: 100,000 invalid values must not produce 100,000 entries. */
const MAX_DETAILS = 100;
/** Maximum length of an error's `input` in characters. pydantic repeats a body of 10 MB for every missing member. */
const MAX_ECHO_LENGTH = 4096;

/** The body with the schema's member names, its validation errors, and its unknown names. */
interface CheckedBody {
  value: unknown;
  details: ValidationDetail[];
  unknown: UnknownName[];
}

/** Stands for an integer beyond the range of a double: untyped members accept it, typed members refuse it. */
const UNTYPED = Symbol('an integer that no float holds');
const toUntyped = () => UNTYPED;

/**
 * Prepares the validation of bodies. The OpenAPI document is checked first, in microseconds. Rules between members
 * (zod's `refine`), which JSON Schema cannot express, are checked only if the document accepts the body.
 */
function bodyChecker(
  { schema, required }: OperationBody,
  aliases: KeyAliases,
  openGate: () => BodyGate,
): (sent: unknown) => Promise<CheckedBody> {
  let rules: { schema: ReturnType<typeof pickRefined> } | undefined;
  return async (sent) => {
    // `null` counts as a missing body, and a missing optional body as an empty object.
    const isMissing = sent === undefined || sent === null;
    if (isMissing && required) return { value: undefined, details: [toDetail(MISSING, ['body'], null)], unknown: [] };
    const found = { hasUnknown: false };
    const value = isMissing ? {} : aliases.toSchema(sent, found);
    const unknown = found.hasUnknown ? aliases.listUnknown(sent, MAX_DETAILS) : [];
    const judged = mapExactIntegers(value, toUntyped);
    const gate = openGate();
    const violation = await gate.check(judged);
    if (violation) {
      const details = gate.explain(judged, MAX_DETAILS).map((mistake) => ofMistake(mistake, aliases, sent));
      const isExplained = details.length > 0;
      return { value, unknown, details: isExplained ? details : [ofViolation(violation, aliases, sent)] };
    }
    rules ??= { schema: pickRefined(schema) };
    const { error } = rules.schema ? safeParse(rules.schema, value) : {};
    const broken = error ? [...brokenRules(error.issues)].slice(0, MAX_DETAILS) : [];
    return { value, unknown, details: broken.map((rule) => ofRule(rule, aliases, sent)) };
  };
}

function ofMistake({ path, words }: Mistake, aliases: KeyAliases, sent: unknown): ValidationDetail {
  const keys = aliases.toSentPath(sent, path);
  const input = words === MISSING ? (valueAt(sent, keys.slice(0, -1)) ?? null) : valueAt(sent, keys);
  return toDetail(words, toLocation(keys), echo(input));
}

/**
 * The error of a body that only express-openapi-validator refuses, e.g. for too many members, or for an error far into
 * a large body that `explain` does not reach.
 */
function ofViolation(
  { path, message }: { path: string; message: string },
  aliases: KeyAliases,
  sent: unknown,
): ValidationDetail {
  const steps = path.split('/').slice(2);
  const keys = steps.map((step) =>
    /^\d+$/.test(step) ? Number(step) : step.replaceAll('~1', '/').replaceAll('~0', '~'),
  );
  return valueError(toLocation(aliases.toSentPath(sent, keys)), message);
}

/** A violated rule in code (zod's `refine`), with its path. */
interface BrokenRule {
  path: JsonPath;
  message: string;
}

function ofRule({ path, message }: BrokenRule, aliases: KeyAliases, sent: unknown): ValidationDetail {
  const keys = aliases.toSentPath(sent, path);
  return valueError(toLocation(keys), message, echo(valueAt(sent, keys)));
}

type Issue = z.core.$ZodIssue;

/** Lists violated rules among zod's issues. Other issues are ignored: the OpenAPI document has accepted the body. */
function* brokenRules(issues: readonly Issue[], prefix: JsonPath = []): Generator<BrokenRule> {
  for (const issue of issues) {
    const path = [...prefix, ...issue.path];
    if (issue.code === 'invalid_union') yield* brokenRules(issue.errors.find(hasRulesOnly) ?? [], path);
    else if (isRule(issue)) yield { path, message: issue.message };
  }
}

/** True if a union's branch has only violated rules: the OpenAPI document accepts this branch. */
const hasRulesOnly = (issues: readonly Issue[]): boolean =>
  issues.every((issue) => (issue.code === 'invalid_union' ? issue.errors.some(hasRulesOnly) : isRule(issue)));

/** Rules on a record's keys count too, because the OpenAPI document omits them. */
const isRule = ({ code }: Issue) => code === 'custom' || code === 'invalid_key';

const toLocation = (keys: (string | number)[]) => [
  'body',
  ...keys.map((key) => (typeof key === 'string' ? toErrorText(key) : key)),
];

function valueAt(root: unknown, keys: readonly (string | number)[]): unknown {
  let value = root;
  for (const key of keys) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, key)) return undefined;
    value = (value as Record<string | number, unknown>)[key];
  }
  return value;
}

/**
 * Returns a value to repeat in an error; `undefined`, which omits `input`, if it is too large for a hundred entries.
 */
const echo = (value: unknown) => (remainingEcho(value, MAX_ECHO_LENGTH) < 0 ? undefined : value);

/** Subtracts a value's length as JSON from a budget of characters; stops at the first part that exceeds the budget. */
function remainingEcho(value: unknown, budget: number): number {
  if (typeof value === 'string') return budget - value.length;
  if (typeof value !== 'object' || value === null) return budget - 8;
  let left = budget;
  for (const key in value) {
    if (left < 0) return left;
    left = remainingEcho((value as Record<string, unknown>)[key], left - key.length);
  }
  return left;
}
