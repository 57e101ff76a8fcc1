import type { z } from 'zod';
import type { deliverySchema, webhookSchema } from './webhook.ts';

/** A webhook as the document shows it. */
export const WEBHOOK_EXAMPLE = {
  webhookId: '2f1c5b9e-6a7d-4c3e-9b0a-1d2e3f405162',
  ownerId: 'u1',
  appName: 'harness_agent',
  url: 'https://example.com/hooks/agent',
  includeOutput: false,
  createdAt: '2026-01-01T08:00:00.000Z',
} satisfies z.infer<typeof webhookSchema>;

/** A delivery as the document shows it. */
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
