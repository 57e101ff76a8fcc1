import { z } from 'zod';
import { LimitError } from '../../core/errors.ts';
import { identifierSchema } from '../../core/session.ts';
import { optional, saysOneOf } from '../../core/members.ts';

const maximum = (what: string) => z.int().min(0).nullish().describe(`Maximum number of ${what}; null: no limit.`);
const price = (what: string) => z.number().min(0).max(1_000_000_000).describe(`Price of a million ${what} tokens.`);

/** The members that say which budget it is. */
export const budgetKey = {
  appliesTo: z
    .enum(['app', 'users', 'user'])
    .describe('All users together, each user without a budget of their own, or one user.'),
  forUser: identifierSchema.nullish().describe('The user, where it applies to one.'),
  period: z.enum(['day', 'month']).describe('Calendar day or month of UTC.'),
};

/** The allowance of an application's users for a period, in UTC. */
export const budgetSchema = z
  .strictObject({
    ...budgetKey,
    maxInvocations: maximum('invocations'),
    maxTokens: maximum('tokens, prompts and answers'),
    maxCost: optional(z.number().min(0).max(1e15), 'Maximum cost by the prices of the models; null: no limit.'),
    webhookId: optional(
      identifierSchema,
      'Webhook of the application that is sent `budget.reached` when 50, 80 and 100 % are used.',
    ),
  })
  .refine(
    saysOneOf('maxInvocations', 'maxTokens', 'maxCost'),
    'one of maxInvocations, maxTokens and maxCost has to be given; null in each, or DELETE, removes the budget',
  )
  .describe('What may be used. A budget whose three maxima are null does not exist.');
export type Budget = z.infer<typeof budgetSchema>;

/** The price of a model. */
export const modelPriceSchema = z
  .strictObject({
    model: identifierSchema.describe(
      'What the name of the model begins with, first as the provider answers by it, else as the agent calls it; the ' +
        'longest one counts. `*` for all that have no price.',
    ),
    promptPrice: price('prompt'),
    outputPrice: price('answer and thought'),
  })
  .describe('Prices in the currency of the operator.');
export type ModelPrice = z.infer<typeof modelPriceSchema>;

/** The tokens that one model used. */
export interface ModelUse {
  /** Its name as the agent calls it. */
  model: string;
  /** Its name as the provider answered, the `modelVersion` of the event; older versions stored none with scores. */
  answeredAs?: string;
  promptTokens: number;
  outputTokens: number;
  /** Reservation of it, given back where it is counted. */
  reservation?: string;
}

/** A budget with nothing left, as the database says it. */
export interface OverBudget {
  appliesTo: Budget['appliesTo'];
  period: Budget['period'];
  what: 'invocations' | 'tokens' | 'cost';
  /** True where something is left, but less than the next model call may use. */
  isShort: boolean;
  /** Seconds until it opens again. */
  seconds: number;
  /** When that is, ISO 8601 in UTC. */
  opens: string;
}

const WHOSE = { app: 'all users of the application', users: 'this user', user: 'this user' };

/** The name of the limit that a budget is. */
const budgetName = ({ appliesTo, period, what }: OverBudget): string => `budget.${appliesTo}.${period}.${what}`;

/** Why nothing can be used any more, and when it can again. */
export const budgetText = (over: OverBudget): string =>
  `The ${over.what} of ${WHOSE[over.appliesTo]} for this ${over.period} ${over.what === 'cost' ? 'is' : 'are'} ` +
  `${over.isShort ? 'less than the next model call may use' : 'used up'}: ${budgetName(over)}. ` +
  `It opens again at ${over.opens}.`;

/** The refusal of what would use more. */
export class OverBudgetError extends LimitError {
  readonly over: OverBudget;
  constructor(over: OverBudget) {
    super(budgetName(over), budgetText(over), over.seconds);
    this.over = over;
  }
}
