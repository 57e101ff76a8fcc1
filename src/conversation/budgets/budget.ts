import { z } from 'zod';
import { LimitError } from '../../core/errors.ts';
import { identifierSchema } from '../../core/session.ts';
import { optional, saysOneOf } from '../../core/members.ts';

const maximum = (what: string) => z.int().min(0).nullish().describe(`Maximum number of ${what}; null: no limit.`);
const price = (what: string) => z.number().min(0).max(1_000_000_000).describe(`Price of a million ${what} tokens.`);

export const budgetKey = {
  appliesTo: z
    .enum(['app', 'users', 'user'])
    .describe('All users together, each user without a budget of their own, or one user.'),
  forUser: identifierSchema.nullish().describe('The user, where `appliesTo` is `user`.'),
  period: z.enum(['day', 'month']).describe('Calendar day or month of UTC.'),
};

/** Limits on the usage of an application's users per day or month, in UTC. */
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

const used = (what: string) => z.number().describe(`Number of ${what}.`);
export const usedBudgetSchema = z
  .object({
    ...budgetSchema.shape,
    used: z
      .object({
        invocations: used('invocations'),
        tokens: used('tokens, prompts and answers'),
        cost: z.number().describe('Cost by the prices of the models.'),
      })
      .optional()
      .describe('What was used in the current period; of a budget of each user that of `ofUser`, else absent.'),
    isUsedUp: z
      .boolean()
      .optional()
      .describe('Whether a maximum is reached, so that nothing begins before the next period; absent where `used` is.'),
  })
  .describe('A budget and its use.');
export type UsedBudget = z.infer<typeof usedBudgetSchema>;

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

export interface ModelUse {
  /** The model's name in the agent's request to the provider. */
  model: string;
  /** The model's name in the provider's response (`modelVersion` of the event). Old evaluation results lack it. */
  answeredAs?: string;
  promptTokens: number;
  outputTokens: number;
  /** Id of the reservation that is released when this use is counted. */
  reservation?: string;
}

/** An exhausted budget, in the format of the SQL functions. */
export interface OverBudget {
  appliesTo: Budget['appliesTo'];
  period: Budget['period'];
  what: 'invocations' | 'tokens' | 'cost';
  /** True if the budget is not used up, but has less left than the next model call may use. */
  isShort: boolean;
  /** Seconds until the next period starts. */
  seconds: number;
  /** Time at which the next period starts, ISO 8601 in UTC. */
  opens: string;
}

const WHOSE = { app: 'all users of the application', users: 'this user', user: 'this user' };

const budgetName = ({ appliesTo, period, what }: OverBudget): string => `budget.${appliesTo}.${period}.${what}`;

export const budgetText = (over: OverBudget): string =>
  `The ${over.what} of ${WHOSE[over.appliesTo]} for this ${over.period} ${over.what === 'cost' ? 'is' : 'are'} ` +
  `${over.isShort ? 'less than the next model call may use' : 'used up'}: ${budgetName(over)}. ` +
  `It opens again at ${over.opens}.`;

export class OverBudgetError extends LimitError {
  readonly over: OverBudget;
  constructor(over: OverBudget) {
    super(budgetName(over), budgetText(over), over.seconds);
    this.over = over;
  }
}
