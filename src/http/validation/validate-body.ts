import type { ValidationDetail } from '../operation/error-bodies.ts';
import type { Complaint } from './openapi-gate.ts';
import type { OperationBody } from '../operation/operation.ts';
import { typeWords } from './pydantic-messages.ts';
import { valueError } from '../operation/request-errors.ts';
import { type BodySpelling, bodySpelling } from './key-aliases.ts';
import { zodDetails } from './zod-to-pydantic.ts';
import { hasRefinement } from './zod-graph.ts';

/**
 * zod finds every mistake and cannot be told to stop: five million wrong items in a body of 10 MB would take it seconds and
 * gigabytes. A refused body with more values than this gets the one mistake that Ajv found.
 */
const MAX_EXPLAINED_VALUES = 20_000;

/** A body on its way through the checks. */
export interface CheckedBody {
  /** The body in the schema's spelling; what handlers get. */
  value: unknown;
  /** What is wrong with it, given what the validator says of `value`. */
  details(complaints: Complaint[]): ValidationDetail[];
}

/**
 * Prepares the checks of one operation's bodies.
 *
 * Ajv decides, by the published document, and costs microseconds; zod runs on a refused body only, for its words. Both come
 * from one schema, so they agree but for rules that JSON Schema cannot say (`refine`): where a schema has such rules, zod
 * runs on every body.
 */
export function prepareBody(definition: OperationBody | undefined): ((sent: unknown) => CheckedBody) | undefined {
  if (!definition) return undefined;
  const { schema, required } = definition;
  const spelling = bodySpelling(schema, definition.aliases);
  const hasOwnRules = hasRefinement(schema);
  return (sent) => {
    // `null` counts as no body, and an optional body that is not there is an empty one.
    const isMissing = sent === undefined || sent === null;
    const value = isMissing ? {} : spelling.toSchema(sent);
    const explain = () => zodDetails(schema, spelling, { sent, renamed: value });
    const details = (complaints: Complaint[]): ValidationDetail[] => {
      if (isMissing && required) return [{ type: 'missing', loc: ['body'], msg: 'Field required', input: null }];
      const complaint = deepest(complaints.filter(({ path }) => /^\/body(?:\/|$)/.test(path)));
      if (!complaint) return hasOwnRules ? explain() : [];
      const explained = countValues(value, MAX_EXPLAINED_VALUES) <= MAX_EXPLAINED_VALUES ? explain() : [];
      // Ajv alone refuses, for instance, a length that it counts in code points and zod in UTF-16 units.
      return explained.length > 0 ? explained : [complaintDetail(complaint, spelling, { sent, renamed: value })];
    };
    return { value, details };
  };
}

/** Of the branches of a union, the complaint that got furthest; "must be null" is never what was meant. */
function deepest(complaints: Complaint[]): Complaint | undefined {
  const meant = complaints.filter(({ message }) => message !== 'must be null');
  return (meant.length > 0 ? meant : complaints).toSorted((a, b) => depthOf(b) - depthOf(a))[0];
}

const depthOf = ({ path }: Complaint) => path.split('/').length;

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

const EXPECTED: Record<string, string> = { integer: 'int' };

/** A complaint of Ajv in pydantic's words: type and presence have theirs, other rules are told in Ajv's. */
function complaintDetail(
  { path, message, errorCode }: Complaint,
  spelling: BodySpelling,
  body: { sent: unknown; renamed: unknown },
): ValidationDetail {
  const keys = path
    .split('/')
    .slice(2)
    .map((key) => key.replaceAll('~1', '/').replaceAll('~0', '~'));
  const steps: (string | number)[] = [];
  let value: unknown = body.renamed;
  for (const key of keys) {
    steps.push(Array.isArray(value) ? Number(key) : key);
    value =
      typeof value === 'object' && value !== null && Object.hasOwn(value, key) ? Reflect.get(value, key) : undefined;
  }
  const loc = ['body', ...spelling.asSent(body.sent, steps)];
  if (errorCode?.startsWith('required.')) return { type: 'missing', loc, msg: 'Field required' };
  if (!errorCode?.startsWith('type.')) return valueError(loc, message);
  const [expected = ''] = message.replace('must be ', '').split(',');
  const { type, msg, ctx } = typeWords(EXPECTED[expected] ?? expected, value);
  return { type, loc, msg, ...(ctx ? { ctx } : {}) };
}
