import type { WebhookSettings } from '../webhooks/address.ts';
import { z } from 'zod';
import { looseObject } from '../../core/members.ts';
import { currentContext } from '../../platform/context.ts';
import { toAgentOverrides } from '../../agent/definition/overrides.ts';
import { type Demand, overrideDemands, writtenCallDemands } from '../../platform/http/operation/demands.ts';
import { area } from '../../platform/http/operation/area.ts';
import { appPath, pageSize } from '../../platform/http/operation/parameters.ts';
import type { Operation } from '../../platform/http/operation/operation.ts';
import type { InvocationContext } from '../context.ts';
import { invocation } from '../routes/invocations.ts';
import { sampleTapes } from '../tape.ts';
import { replay } from './replay.ts';
import { replayBreakSchema, replayDifferenceSchema, replayRequestSchema, replaySchema } from './replay-schema.ts';
import type { Feature } from '../../platform/feature/feature.ts';

type Body = z.input<typeof replayRequestSchema> | undefined;

/** A replay needs the scope `invoke` if models or tools are live, because they cost money or have effects. */
const replayDemands = ({ body }: { body: Body }): Demand[] => [
  ...(body?.modelExecutionMode === 'live' || body?.toolExecutionMode === 'live'
    ? [{ scope: 'invoke' as const, because: 'a part of the replay is live.' }]
    : []),
  ...writtenCallDemands(body ?? {}),
  ...overrideDemands(body?.harness),
];

const room = area<InvocationContext>('Agent execution', { read: 'develop', write: 'develop', owner: 'path' });

/** Maximum period from which invocations are sampled, in minutes: a year. */
const MAX_MINUTES = 527_040;

const sampleInvocations = room.operation({
  method: 'get',
  path: '/apps/{app_name}/invocation-sample',
  operationId: 'sampleInvocations',
  isForKeys: true,
  load: 'heavy',
  summary: 'Choose invocations to replay',
  description:
    'Ended ones with a tape, of all users, without those of evaluations. A digest of their ids chooses: the same ' +
    'ones each time, as long as they are stored. Replay each with `replayInvocation`.',
  owner: 'service',
  parameters: {
    path: appPath,
    query: z.object({
      minutes: z.int().min(1).max(MAX_MINUTES).default(10_080).describe('Requested in the last so many minutes.'),
      limit: pageSize('Maximum number of invocations.').default(200),
    }),
  },
  success: {
    schema: looseObject('A sample.', {
      items: z
        .array(
          z.looseObject({
            userId: z.string().describe('The owner of the session.'),
            sessionId: z.string().describe('The session that it belongs to.'),
            id: z.string().describe('The `invocationId` of its events.'),
            agentVersion: z.string().nullable().describe('The version of the application that ran it.'),
          }),
        )
        .describe('The invocations, in the order of the digests.'),
    }),
    description: 'The chosen ones.',
    example: { items: [{ userId: 'u1', sessionId: 's1', id: 'e-4b1c8f3e', agentVersion: null }] },
  },
  handler: async ({ database }, { path, query: { minutes, limit } }) => ({
    kind: 'value',
    value: { items: await sampleTapes(database.reads, path.appName, minutes, limit) },
  }),
});

/** Replaying needs the scope `develop`, because differences show instructions and tools. */
const replayInvocation = invocation.action('replay')({
  operationId: 'replayInvocation',
  scope: 'develop',
  load: 'invoke',
  summary: 'Replay an invocation',
  description:
    'Runs the agent as it is deployed now over what the invocation began with, with its stored answers, and names ' +
    'the first difference. Nothing is written. A live part needs the scope `invoke` too, a stored model with live ' +
    'tools, and `harness`, the scope `override`. Calls that people decide on, or answer, are never made.',
  demands: replayDemands,
  body: {
    schema: replayRequestSchema,
    required: false,
    example: { harness: { system_prompt: 'Answer in one word.' } },
  },
  success: {
    schema: replaySchema,
    description: 'What came of it.',
    example: {
      status: 'different',
      events: 3,
      liveModelCalls: 0,
      liveToolCalls: 0,
      difference: {
        event: 1,
        sequence: 2,
        eventId: '4b1c8f3e-6f0a-4b0e-9a55-0d7f6f0f4a11',
        path: '/request/instruction',
        before: 'Answer shortly.',
        after: 'Answer in one word.',
      },
      output: { before: '391', after: '391' },
      notes: [],
    },
  },
  errors: {
    400: 'It cannot be replayed like this: the text says why.',
    409: 'The invocation has not ended.',
    429: 'The caller has too many replays or invocations running.',
    503: 'The service has no room, the replay took too long, or the process stops.',
  },
  run: async (context, { path, body, response }) => {
    const options = {
      model: body?.modelExecutionMode ?? ('stored' as const),
      tools: body?.toolExecutionMode ?? ('stored' as const),
      overrides: toAgentOverrides(body?.harness),
      liveTokens: { max: body?.maxLiveTokens ?? undefined, used: 0 },
    };
    const gone = new AbortController();
    response.on('close', () => gone.abort());
    const release = context.replays.take(currentContext().caller ?? `user:${path.userId}`);
    try {
      const work = () => replay(context, path, path.invocationId, options, gone.signal);
      return await context.admission.admit(path.userId, work);
    } finally {
      release();
    }
  },
});

type ReplayContext = InvocationContext & { config: WebhookSettings };
const operations: Operation<ReplayContext>[] = [sampleInvocations, replayInvocation];

export const replayFeature = {
  name: 'replay',
  operations,
  schemas: { Replay: replaySchema, ReplayDifference: replayDifferenceSchema, ReplayBreak: replayBreakSchema },
} satisfies Feature<ReplayContext>;
