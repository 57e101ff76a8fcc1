import { z } from 'zod';
import { harnessOverridesSchema } from '../../agent/definition/overrides.ts';
import { identifierSchema } from '../../core/session.ts';
import { textFormat } from '../../core/text-format.ts';
import { webhookUrlSchema } from '../../invocations/webhooks/address.ts';
import { dateTimeSchema, scheduleSchema } from './schedule.ts';
import { looseObject, strictObject } from '../../core/members.ts';

const MAX_NAME_LENGTH = 256;
const MAX_PROMPT_LENGTH = 32_768;
const MAX_TIMEOUT_SECONDS = 86_400;
const MAX_COUNT = 1_000_000;

const blankError = (text: string) => (/\S/.test(text) ? undefined : 'this must not be blank');
const text = (maxLength: number) => textFormat('not-blank', blankError, z.string().max(maxLength, { abort: true }));
const seconds = (least: number) => z.int().min(least).max(MAX_TIMEOUT_SECONDS);

/** Settings that the owner of a cronjob may change. `null` removes an optional setting. */
const settings = {
  name: text(MAX_NAME_LENGTH).describe('Name for people.'),
  prompt: text(MAX_PROMPT_LENGTH).describe('What the user says at each run.'),
  schedule: scheduleSchema.describe('When it fires.'),
  harness: harnessOverridesSchema.nullable().describe('Changes of the deployed agent for each run.'),
  sessionPolicy: z
    .enum(['new', 'fixed'])
    .describe('`new`: a session of its own for each run [default]; `fixed`: one session that grows.'),
  sessionId: identifierSchema.describe("The session of the policy `fixed` [`cronjob-` and the cronjob's id]."),
  missedRuns: z
    .enum(['skip', 'once', 'all'])
    .describe(
      'What is done about times that were not run for over a minute: nothing, one run for the newest of them ' +
        '[default], or all, the newest 100 at most.',
    ),
  overlap: z
    .enum(['queue', 'skip', 'replace'])
    .describe('What a run does while an earlier one goes on: wait, be left out [default], or cancel it.'),
  maxAttempts: z
    .int()
    .min(1)
    .max(10)
    .describe(
      'How often a run is tried that fails for a reason that passes (a busy session, a model that is away) [3].',
    ),
  retryPauseSeconds: seconds(1).describe('Pause before the second attempt [30]; each later one is twice as long.'),
  maxRetryPauseSeconds: seconds(1).describe('Longest pause [600]; each is shortened at random by up to a half.'),
  timeoutSeconds: seconds(1).nullable().describe('Longest time of a run; INVOCATION_TIMEOUT_MS holds anyway.'),
  until: dateTimeSchema.nullable().describe('It fires before this time only.'),
  maxRuns: z.int().min(1).max(MAX_COUNT).nullable().describe('It is disabled after so many scheduled runs.'),
  webhookUrl: webhookUrlSchema.nullable().describe('Address of a registered webhook, which is sent how each run ends.'),
  maxFailures: z.int().min(0).max(1000).describe('It is disabled after so many failed runs in a row [10]; 0: never.'),
};

/** The schema also validates stored settings before a cronjob is enabled. */
export const cronjobSettingsSchema = z.object(settings).partial();

const { name, prompt, schedule, ...others } = settings;

export const createCronjobSchema = strictObject('A new cronjob.', {
  ownerId: identifierSchema
    .optional()
    .describe("Whose cronjob it is. Needed where no user is logged in; a user's own otherwise."),
  appName: identifierSchema.optional().describe('Application that runs [`harness_agent`].'),
  name,
  prompt,
  schedule,
  enabled: z.boolean().optional().describe('Whether it fires [true].'),
  ...z.strictObject(others).partial().shape,
});

/** Body of a request that changes a cronjob. Absent properties stay unchanged. */
export const updateCronjobSchema = z
  .strictObject({
    ...z.strictObject(settings).partial().shape,
    expectedRevision: z.int().optional().describe('Refused with 409 when the cronjob has another revision by now.'),
  })
  .refine((body) => Object.keys(body).some((key) => key !== 'expectedRevision'), 'there is nothing to change')
  .describe('Changes of a cronjob; what is left out stays. A run that has not begun yet uses the new settings.');

export const previewSchema = strictObject('A schedule to look at.', {
  schedule: scheduleSchema.describe('The schedule to look at.'),
  until: dateTimeSchema.nullable().optional().describe('Only times before this one.'),
});

export const previewResultSchema = looseObject('When a schedule fires.', {
  times: z.array(z.string()).describe('The next times, ten at most, ISO 8601 in UTC.'),
});

const isoTime = (meaning: string) => z.string().describe(`${meaning}, ISO 8601 in UTC.`);
const RUN_STATUSES = ['queued', 'running', 'retrying', 'success', 'failed', 'cancelled', 'skipped'] as const;

/** Times are ISO 8601 in UTC, as the cronjob APIs of similar services write them. */
export const cronjobRunSchema = looseObject('One run of a cronjob.', {
  runId: z.string().describe('Identifier of the run.'),
  jobId: z.string().describe('Cronjob that it belongs to.'),
  ownerId: z.string().describe('User whose cronjob it is.'),
  status: z.enum(RUN_STATUSES).describe('`queued` and `retrying` wait; those after `retrying` have ended.'),
  scheduledAt: isoTime('When it was due; of a manual run, when it was asked for'),
  manual: z.boolean().describe('True for a run that was asked for.'),
  attempt: z.int().describe('How often it was begun.'),
  createdAt: isoTime('When it was queued'),
  startedAt: isoTime('When its last attempt began').optional(),
  finishedAt: isoTime('When it ended').optional(),
  nextAttemptAt: isoTime('When a waiting run may begin').optional(),
  cancellationRequestedAt: isoTime('When its cancellation was requested').optional(),
  sessionId: z.string().optional().describe('The session of its last attempt.'),
  invocationId: z.string().optional().describe('The invocation of its last attempt.'),
  output: z.string().optional().describe("The agent's answer."),
  error: z
    .looseObject({
      code: z.string().describe('Stable word for the reason: that of the invocation, or `skipped`.'),
      message: z.string().describe('The reason as a sentence for people.'),
    })
    .optional()
    .describe('Why it did not succeed, or was left out.'),
});

/** Times are ISO 8601 in UTC, as the cronjob APIs of similar services write them. */
export const cronjobSchema = looseObject('A prompt that runs on a schedule.', {
  jobId: z.string().describe('Identifier of the cronjob.'),
  ownerId: z.string().describe('User whose cronjob it is, and who speaks in its sessions.'),
  appName: z.string().describe('Application that runs.'),
  ...z.looseObject(settings).partial().shape,
  enabled: z.boolean().describe('Whether it fires.'),
  disabledReason: z.string().optional().describe('Why the runtime disabled it.'),
  nextRunAt: isoTime('When it fires next').optional(),
  runCount: z.int().describe('Scheduled runs so far.'),
  failureCount: z.int().describe('Failed runs in a row.'),
  revision: z.int().describe('Rises with each change.'),
  createdAt: isoTime('When it was created'),
  updatedAt: isoTime('When it was changed last'),
  latestRun: cronjobRunSchema.optional().describe('Its run with the newest due time.'),
});

export const cronjobPageSchema = looseObject('A page of cronjobs; `nextCursor` gets the next one.', {
  items: z.array(cronjobSchema).describe('Those of this page.'),
  nextCursor: z.string().optional().describe('The `cursor` of the next page; absent on the last one.'),
});
export const cronjobRunPageSchema = looseObject('A page of runs, newest first; `nextCursor` gets the next one.', {
  items: z.array(cronjobRunSchema).describe('Those of this page.'),
  nextCursor: z.string().optional().describe('The `cursor` of the next page; absent on the last one.'),
});

export type CreateCronjob = z.infer<typeof createCronjobSchema>;
export type UpdateCronjob = z.infer<typeof updateCronjobSchema>;

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
