import { hasRefinement } from '../../../core/zod-graph.ts';
import type { ValidationDetail } from '../operation/error-bodies.ts';
import type { OperationBody } from '../operation/operation.ts';
import { valueError } from '../operation/request-errors.ts';
import { keyAliases } from './key-aliases.ts';
import type { OpenApiViolation } from './openapi-gate.ts';
import { bodyDetails } from './zod-to-pydantic.ts';

/**
 * zod finds every mistake and cannot be told to stop: five million wrong items in a body of 10 MB would take it
 * seconds and gigabytes. A refused body with more values than this gets the one mistake that Ajv found.
 */
const MAX_EXPLAINED_VALUES = 20_000;

/** A body on its way through the checks. */
export interface CheckedBody {
  /** The body in the schema's spelling; what handlers get. */
  value: unknown;
  details: ValidationDetail[];
}

/** Checks a body with the validator that decides by the published document; `[]` when it accepts the body. */
type Gate = (body: unknown) => Promise<OpenApiViolation[]>;

/**
 * Prepares the checks of one operation's bodies.
 *
 * Ajv decides, by the published document, and costs microseconds; zod runs on a refused body only, for its words.
 * Both come from one schema, so they agree but for rules that JSON Schema cannot say (`refine`): where a schema has
 * such rules, zod runs on every body.
 */
export function bodyChecker(definition: OperationBody, gate: Gate): (sent: unknown) => Promise<CheckedBody> {
  const { schema, required } = definition;
  const aliases = keyAliases(schema, definition.aliases);
  const hasOwnRules = hasRefinement(schema);
  return async (sent) => {
    // `null` counts as no body, and an optional body that is not there is an empty one.
    const isMissing = sent === undefined || sent === null;
    if (isMissing && required) {
      return { value: undefined, details: [{ type: 'missing', loc: ['body'], msg: 'Field required', input: null }] };
    }
    const value = isMissing ? {} : aliases.toSchema(sent);
    const explain = () => bodyDetails(schema, aliases, { sent, renamed: value });
    const [violation] = await gate(value);
    if (!violation) return { value, details: hasOwnRules ? explain() : [] };
    const details = countValues(value, MAX_EXPLAINED_VALUES) <= MAX_EXPLAINED_VALUES ? explain() : [];
    if (details.length > 0) return { value, details };
    // Ajv alone refuses, for instance, a length that it counts in code points and zod in UTF-16 units.
    const loc = ['body', ...aliases.toSentPath(sent, stepsOf(violation.path))];
    return { value, details: [valueError(loc, violation.message)] };
  };
}

/** Keys and indexes of a path like `/body/parts/0/a~1b`. */
const stepsOf = (path: string): (string | number)[] =>
  path
    .split('/')
    .slice(2)
    .map((step) => (/^\d+$/.test(step) ? Number(step) : step.replaceAll('~1', '/').replaceAll('~0', '~')));

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
