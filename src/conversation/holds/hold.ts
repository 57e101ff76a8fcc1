import { z } from 'zod';

/** Data that must not be deleted. */
export const holdSchema = z
  .object({
    appName: z.string().describe('Application.'),
    userId: z.string().describe('User.'),
    sessionId: z.string().nullable().describe('The session; null for all that the user has.'),
    reason: z.string().describe('Why.'),
    createTime: z.number().describe('When it was set, Unix time in seconds.'),
  })
  .describe('A legal hold.');

/** A hold as it is sent: on all that the user has, or on one session. */
export const setHoldSchema = z
  .object({
    sessionId: z.string().min(1).max(256).nullish().describe('The session [all that the user has].'),
    reason: z.string().min(1).max(2_000).describe('Why: a sentence for whoever finds it later.'),
  })
  .describe('What must not be deleted, and why.');

/** A legal hold as it is answered. */
export type Hold = z.output<typeof holdSchema>;
