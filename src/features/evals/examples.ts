import type { z } from 'zod';
import { exampleAnswer, exampleEvent } from '../../conversation/sessions/examples.ts';
import type { evalCaseSchema, evalSetSchema } from './eval-set.ts';
import type { evalRunSchema } from './run-schemas.ts';

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

/** A run of that set. */
export const exampleRun = {
  runId: '7d444840-9dc0-41d1-b245-5ffdce74fad2',
  evalSetId: 'arithmetic',
  status: 'done',
  evalSetResultId: 'harness_agent_arithmetic_1767225800.5',
  evalMetrics: [{ metricName: 'tool_trajectory_avg_score', threshold: 1 }],
  trials: 1,
  parallelism: 4,
  modelExecutionMode: 'live',
  toolExecutionMode: 'live',
  agentHash: '2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae',
  modelName: 'offline',
  createTime: 1_767_225_800.5,
  endTime: 1_767_225_801.5,
  counts: { total: 1, waiting: 0, running: 0, passed: 1, failed: 0, notEvaluated: 0, errors: 0, cancelled: 0 },
} satisfies z.input<typeof evalRunSchema>;

/** What that run says of its case. */
export const exampleCaseResult = {
  evalSetFile: 'arithmetic',
  evalSetId: 'arithmetic',
  evalId: 'case1',
  finalEvalStatus: 1,
  evalMetricResults: [],
  overallEvalMetricResults: [{ metricName: 'tool_trajectory_avg_score', threshold: 1, score: 1, evalStatus: 1 }],
  evalMetricResultPerInvocation: [],
  sessionId: 'adk-eval-session-0d3f0e5e-7a54-4c0d-9b5e-0b8f3a5d1c11',
  userId: 'u1',
};

/** What its trials say. */
export const exampleCaseSummary = {
  evalId: 'case1',
  trials: 1,
  passed: 1,
  notEvaluated: 0,
  errors: 0,
  passRate: 1,
  interval: [0.206549314, 1],
  passAll: 1,
  flaky: false,
  scores: { tool_trajectory_avg_score: 1 },
};
