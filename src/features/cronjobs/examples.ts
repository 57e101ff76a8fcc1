import type { z } from 'zod';
import type { cronjobRunSchema, cronjobSchema } from './cronjob.ts';

/** A run as the document shows it. */
export const RUN_EXAMPLE: z.infer<typeof cronjobRunSchema> = {
  runId: 'f5b0a6a2-4a4e-4b0a-9d0e-0d8e6a3f1c77',
  jobId: '0a7c9d4e-1b2f-4c3d-8e5f-6a7b8c9d0e1f',
  ownerId: 'u1',
  status: 'success',
  scheduledAt: '2026-01-05T07:00:00.000Z',
  manual: false,
  attempt: 1,
  createdAt: '2026-01-05T07:00:00.020Z',
  startedAt: '2026-01-05T07:00:00.031Z',
  finishedAt: '2026-01-05T07:00:01.200Z',
  sessionId: 'f5b0a6a2-4a4e-4b0a-9d0e-0d8e6a3f1c77',
  invocationId: 'e-5e8f2a10-7c3b-4d6e-9f01-2a3b4c5d6e7f',
  output: '17 * 23 = 391',
};

/** A cronjob as the document shows it. */
export const CRONJOB_EXAMPLE: z.infer<typeof cronjobSchema> = {
  jobId: RUN_EXAMPLE.jobId,
  ownerId: 'u1',
  appName: 'harness_agent',
  name: 'Morning sums',
  prompt: 'What is 17 * 23? Use the calculator.',
  schedule: { type: 'weekly', time: '08:00', weekdays: [1, 2, 3, 4, 5], timezone: 'Europe/Berlin' },
  enabled: true,
  sessionPolicy: 'new',
  missedRuns: 'once',
  overlap: 'skip',
  maxAttempts: 3,
  retryPauseSeconds: 30,
  maxRetryPauseSeconds: 600,
  maxFailures: 10,
  nextRunAt: '2026-01-06T07:00:00.000Z',
  runCount: 1,
  failureCount: 0,
  revision: 1,
  createdAt: '2026-01-04T12:00:00.000Z',
  updatedAt: '2026-01-04T12:00:00.000Z',
  latestRun: RUN_EXAMPLE,
};
