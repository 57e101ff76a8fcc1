import { z } from 'zod';
import type { eventSchema } from '../../core/event.ts';
import type { sessionSchema } from '../../core/session.ts';

export const exampleEvent = {
  id: '3f2504e0-4f89-41d3-9a0c-0305e82c3301',
  invocationId: 'e-7d444840-9dc0-11d1-b245-5ffdce74fad2',
  author: 'user',
  timestamp: 1_767_225_600.25,
  content: { role: 'user', parts: [{ text: 'What is 17 * 23?' }] },
} satisfies z.input<typeof eventSchema>;

export const exampleAnswer = {
  id: '9b2d6a2e-6f0b-4b7e-8f55-1d2f6c1f3c02',
  invocationId: exampleEvent.invocationId,
  author: 'harness_agent',
  timestamp: 1_767_225_601.5,
  content: { role: 'model', parts: [{ text: '17 * 23 = 391' }] },
} satisfies z.input<typeof eventSchema>;

/** The success response in the OpenAPI document for operations that stream events. */
export const eventStream = {
  schema: z.string(),
  description: 'Events.',
  example: `data: ${JSON.stringify(exampleAnswer)}\n\n`,
  mediaType: 'text/event-stream',
} as const;

export const exampleListedSession = {
  id: 's1',
  appName: 'harness_agent',
  userId: 'u1',
  state: { topic: 'arithmetic', 'user:name': 'Ada' },
  events: [],
  lastUpdateTime: 1_767_225_601.5,
} satisfies z.input<typeof sessionSchema>;

export const exampleSession = { ...exampleListedSession, events: [exampleEvent, exampleAnswer] };
