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

/** The maximum number of details of a body: 100,000 invalid places must not cost 100,000 entries. */
export const MAX_DETAILS = 100;
/** Longer inputs are left out of the answer: pydantic would send a body of 10 MB back once for every missing member. */
const MAX_ECHO_LENGTH = 4096;

/** A body in the schema's spelling, its mistakes and its unknown names. */
interface CheckedBody {
  value: unknown;
  details: ValidationDetail[];
  unknown: UnknownName[];
}

/** Takes the place of an exact integer for the document: free-form members accept it, and none with a type does. */
const UNTYPED = Symbol('an integer that no float holds');
const toUntyped = () => UNTYPED;

/**
 * Prepares the check of one operation's bodies. The document judges first and costs microseconds; the rules between
 * members that JSON Schema cannot express (`refine`) judge only what the document accepts.
 */
export function bodyChecker(
  { schema, required }: OperationBody,
  aliases: KeyAliases,
  gate: BodyGate,
): (sent: unknown) => Promise<CheckedBody> {
  let rules: { schema: ReturnType<typeof pickRefined> } | undefined;
  return async (sent) => {
    // `null` counts as no body, and an optional body that is not there is an empty one.
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

/** What the package alone refuses, for instance too many members, or a mistake far behind in a large body. */
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

/** A rule of code that a body breaks, and the place. */
interface BrokenRule {
  path: JsonPath;
  message: string;
}

function ofRule({ path, message }: BrokenRule, aliases: KeyAliases, sent: unknown): ValidationDetail {
  const keys = aliases.toSentPath(sent, path);
  return valueError(toLocation(keys), message, echo(valueAt(sent, keys)));
}

type Issue = z.core.$ZodIssue;

/** Lists the broken rules among zod's issues. Whatever else zod finds is the document's part, which has accepted it. */
function* brokenRules(issues: readonly Issue[], prefix: JsonPath = []): Generator<BrokenRule> {
  for (const issue of issues) {
    const path = [...prefix, ...issue.path];
    if (issue.code === 'invalid_union') yield* brokenRules(issue.errors.find(hasRulesOnly) ?? [], path);
    else if (isRule(issue)) yield { path, message: issue.message };
  }
}

/** True for the issues of the branch of a union that the document accepts. */
const hasRulesOnly = (issues: readonly Issue[]): boolean =>
  issues.every((issue) => (issue.code === 'invalid_union' ? issue.errors.some(hasRulesOnly) : isRule(issue)));

/** The document leaves out the rules of a record's keys. */
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

/** Returns `undefined`, which leaves `input` out, for a value that is too large to send back a hundred times. */
export const echo = (value: unknown) => (remainingEcho(value, MAX_ECHO_LENGTH) < 0 ? undefined : value);

/** Returns the rest of a budget of characters after writing a value; stops at the first value that does not fit. */
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
