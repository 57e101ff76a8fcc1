import type { z } from 'zod';
import { exampleAnswer, exampleEvent } from '../sessions/examples.ts';
import type { evalCaseSchema, evalSetSchema } from './eval-set.ts';

/** A case as the published examples show one: what was said in a session. */
export const exampleEvalCase = {
  evalId: 'case1',
  conversation: [
    {
      invocationId: exampleEvent.invocationId,
      userContent: exampleEvent.content,
      finalResponse: exampleAnswer.content,
      creationTimestamp: exampleEvent.timestamp,
    },
  ],
  sessionInput: { appName: 'harness_agent', userId: 'u1', state: {} },
  creationTimestamp: 1_767_225_700.5,
} satisfies z.input<typeof evalCaseSchema>;

/** A set with that case. */
export const exampleEvalSet = {
  eval_set_id: 'arithmetic',
  name: 'Arithmetic',
  description: 'Questions that need the calculator.',
  eval_cases: [exampleEvalCase],
  creation_timestamp: 1_767_225_700.5,
} satisfies z.input<typeof evalSetSchema>;
