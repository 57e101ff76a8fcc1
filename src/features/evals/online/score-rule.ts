import { z } from 'zod';
import { looseObject, optional } from '../../../core/members.ts';
import { identifierSchema, storedIdentifierSchema } from '../../../core/session.ts';
import { evalMetricSchema } from '../metrics/criteria.ts';
import { sessionFilter } from '../scoring/routes.ts';

/** Maximum number of score rules of an application. Each end of an invocation checks all rules. */
export const MAX_RULES = 20;
/** Maximum of `quietMinutes`: a month. */
const MAX_QUIET_MINUTES = 43_200;

const { tool, hasError, labels } = sessionFilter;

export const scoreRuleSchema = looseObject('Which sessions are scored as users have them, by what, and how many.', {
  evalMetrics: z.array(evalMetricSchema).min(1).max(20).describe('What the turns are scored by.'),
  share: z
    .number()
    .min(0)
    .max(1)
    .default(1)
    .describe('Share of the invocations or sessions that is scored, by a hash of the ids [1]; 0 pauses the rule.'),
  quietMinutes: optional(
    z.int().min(1).max(MAX_QUIET_MINUTES),
    'A whole session is scored once no invocation of it has ended for so long; without, each invocation by itself.',
  ),
  tool,
  hasError,
  labels,
  agentVersion: optional(storedIdentifierSchema, 'Only what this version answered, a `version` of `listVersions`.'),
  maxPerDay: z.int().min(1).max(1_000_000).default(1_000).describe('Scores of a day in UTC at most [1000].'),
  maxTokensPerDay: z
    .int()
    .min(1)
    .max(1e15)
    .default(1_000_000)
    .describe('Tokens of judges on a day in UTC at most [1000000].'),
  maxCostPerDay: optional(z.number().min(0).max(1e15), 'Cost of judges on a day, by the prices of models [no limit].'),
  webhookId: optional(identifierSchema, 'Webhook of the application that is sent `score.low` for what failed.'),
});

export type ScoreRule = z.output<typeof scoreRuleSchema>;

export const ruleViewSchema = scoreRuleSchema.extend({
  ruleId: z.string().describe('The rule.'),
  today: looseObject('Since midnight in UTC.', {
    scored: z.int().describe('Scores begun.'),
    tokens: z.number().describe('Tokens of judges.'),
    cost: z.number().describe('Their cost.'),
  }),
  skipped: z.int().describe('Scores that were left out since a day had as many as it may, since the rule was made.'),
});

/** User id that pays a rule's costs. No user has it, because identifiers contain no control characters. */
export const toPayer = (ruleId: string): string => `\u0001rule ${ruleId}`;
