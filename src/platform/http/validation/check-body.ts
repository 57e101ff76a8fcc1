import type { z } from 'zod';
import { safeParse } from 'zod/v4/core';
import { toErrorText } from '../../../core/errors.ts';
import { mapExactIntegers } from '../../../core/exact-json.ts';
import { pickRefined } from '../../../core/zod-graph.ts';
import type { OperationBody } from '../operation/operation.ts';
import { type ValidationDetail, valueError } from '../operation/request-errors.ts';
import type { KeyAliases } from './key-aliases.ts';
import type { BodyGate } from './openapi-gate.ts';
import type { UnknownName } from './unknown-names.ts';
import { type JsonPath, MISSING, type Mistake, toDetail } from './words.ts';

/** Maximum number of validation errors in a response: 100,000 invalid values must not produce 100,000 entries. */
export const MAX_DETAILS = 100;
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
export function bodyChecker(
  { schema, required }: OperationBody,
  aliases: KeyAliases,
  gate: BodyGate,
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
    const violation = await gate.check(judged);
    if (violation) {
      const details = gate.explain(judged, MAX_DETAILS).map((mistake) => ofMistake(mistake, aliases, sent));
      const isExplained = details.length > 0;
      return { value, unknown, details: isExplained ? details : [ofViolation(violation, aliases, sent)] };
    }
    rules ??= { schema: pickRefined(schema) };
    const { error } = rules.schema ? safeParse(rules.schema, value) : {};
    const broken = [...brokenRules(error?.issues ?? [])].slice(0, MAX_DETAILS);
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
export const echo = (value: unknown) => (remainingEcho(value, MAX_ECHO_LENGTH) < 0 ? undefined : value);

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
