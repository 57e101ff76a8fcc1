import { z } from 'zod';
import { messageSchema } from '../../../agent/a2a/wire.ts';

const historyLength = z.int().min(0).max(2_147_483_647).nullish().describe('Most messages of the history [all].');

/** The parameters of methods that name a task. */
export const taskParams = z.looseObject({ id: z.string().min(1).max(4_096) });
/** Those of a look at a task. */
export const getParams = taskParams.extend({ historyLength });

/** The parameters of methods that send a message. */
export const sendParams = z.looseObject({
  message: messageSchema,
  configuration: z.looseObject({ historyLength, returnImmediately: z.boolean().nullish() }).nullish(),
});

/** The parameters of the list. */
export const listParams = z.object({
  contextId: z.string().max(256).optional().describe('Only tasks of this context.'),
  status: z.string().max(64).optional().describe('Only tasks in this state, such as `TASK_STATE_WORKING`.'),
  pageSize: z.int().min(1).max(100).default(50).describe('Most tasks of the page.'),
  pageToken: z.string().max(2_048).optional().describe('`nextPageToken` of the page before.'),
  historyLength: z.int().min(0).max(2_147_483_647).default(0).describe('Most messages of each history.'),
  statusTimestampAfter: z.string().max(64).optional().describe('Only tasks that changed at this time or later.'),
  includeArtifacts: z.boolean().default(false).describe('True: with what they made.'),
});
