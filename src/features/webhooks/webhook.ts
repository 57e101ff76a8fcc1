import { z } from 'zod';
import { identifierSchema } from '../../core/session.ts';
import { looseObject, strictObject } from '../../core/members.ts';
import { webhookUrlSchema } from '../../invocations/webhooks/address.ts';

/** Time in seconds for which a replaced secret stays valid: the maximum (a week) and the default (a day). */
const MAX_GRACE_SECONDS = 604_800;
export const DEFAULT_GRACE_SECONDS = 86_400;

const isoTime = (meaning: string) => z.string().describe(`${meaning}, ISO 8601 in UTC.`);

export const createWebhookSchema = strictObject('A new webhook.', {
  ownerId: identifierSchema
    .optional()
    .describe("Whose invocations and cronjobs may use it. Needed where no user is logged in; a user's own otherwise."),
  appName: identifierSchema.optional().describe('Application of these invocations and cronjobs [`harness_agent`].'),
  url: webhookUrlSchema.describe('Address of the receiver: `https`, public, without name and password.'),
  includeOutput: z
    .boolean()
    .optional()
    .describe("True: deliveries carry the first 4,096 characters of the agent's answer [false]."),
});

export const rotateSecretSchema = strictObject('How a secret is replaced.', {
  graceSeconds: z
    .int()
    .min(0)
    .max(MAX_GRACE_SECONDS)
    .optional()
    .describe(`How long the old secret signs too [${DEFAULT_GRACE_SECONDS}].`),
});

export const webhookSchema = looseObject('An address that is sent how invocations and cronjob runs end.', {
  webhookId: z.string().describe('Identifier of the webhook.'),
  ownerId: z.string().describe('User whose webhook it is.'),
  appName: z.string().describe('Application that it is for.'),
  url: z.string().describe('Address of the receiver; what requests and cronjobs give as `webhookUrl`.'),
  includeOutput: z.boolean().describe("Whether deliveries carry the agent's answer."),
  createdAt: isoTime('When it was registered'),
  oldSecretExpiresAt: isoTime('Until when the secret before signs too').optional(),
  secret: z
    .string()
    .optional()
    .describe('Verifies the signatures of deliveries. Answered when it is made, and never again.'),
});

export const webhookListSchema = looseObject('Webhooks, newest first.', {
  items: z.array(webhookSchema).describe('The webhooks, without their secrets.'),
});

const answerSchema = looseObject('What an attempt came to.', {
  at: isoTime('When it was sent'),
  attempt: z.int().optional().describe('Which attempt, from 1.'),
  status: z.int().optional().describe('Status that the receiver answered.'),
  body: z.string().optional().describe('Beginning of the body that it answered, 1,024 characters at most.'),
  error: z.string().optional().describe('Why there was no answer, a sentence.'),
  durationMs: z.int().optional().describe('How long it took, milliseconds.'),
});

export const DELIVERY_STATUSES = ['pending', 'delivered', 'failed'] as const;

export const deliverySchema = looseObject('What is sent to a webhook, and how that went.', {
  deliveryId: z.string().describe('The header `webhook-id` of every attempt.'),
  webhookId: z.string().describe('Webhook that it goes to.'),
  status: z
    .enum(DELIVERY_STATUSES)
    .describe('`delivered`: the receiver answered with a status of 200 to 299. `failed`: it was given up.'),
  attempt: z.int().describe('How often it was sent.'),
  payload: z.looseObject({}).describe('The body that is sent.'),
  answers: z.array(answerSchema).describe('What the attempts came to, the newest last; the last 20.'),
  createdAt: isoTime('When that happened which it tells'),
  nextAttemptAt: isoTime('When it is sent next').optional(),
  finishedAt: isoTime('When it was delivered or given up').optional(),
});

export const deliveryPageSchema = looseObject('A page of deliveries, newest first; `nextCursor` gets the next one.', {
  items: z.array(deliverySchema).describe('Those of this page.'),
  nextCursor: z.string().optional().describe('The `cursor` of the next page; absent on the last one.'),
});

export const WEBHOOK_EXAMPLE = {
  webhookId: '2f1c5b9e-6a7d-4c3e-9b0a-1d2e3f405162',
  ownerId: 'u1',
  appName: 'harness_agent',
  url: 'https://example.com/hooks/agent',
  includeOutput: false,
  createdAt: '2026-01-01T08:00:00.000Z',
} satisfies z.infer<typeof webhookSchema>;

export const DELIVERY_EXAMPLE = {
  deliveryId: 'msg_7d3f9c52-0c1e-4b7a-8f59-5a4b3c2d1e0f',
  webhookId: WEBHOOK_EXAMPLE.webhookId,
  status: 'delivered',
  attempt: 2,
  payload: {
    type: 'invocation.ended',
    timestamp: '2026-01-01T08:00:02.125Z',
    data: {
      appName: 'harness_agent',
      userId: 'u1',
      sessionId: 's1',
      invocationId: 'e-1c2d3e4f-5061-4728-9a0b-1c2d3e4f5061',
      status: 'succeeded',
    },
  },
  answers: [
    { at: '2026-01-01T08:00:02.130Z', attempt: 1, status: 503, body: 'busy', durationMs: 12 },
    { at: '2026-01-01T08:00:06.480Z', attempt: 2, status: 204, durationMs: 9 },
  ],
  createdAt: '2026-01-01T08:00:02.125Z',
  finishedAt: '2026-01-01T08:00:06.495Z',
} satisfies z.infer<typeof deliverySchema>;
