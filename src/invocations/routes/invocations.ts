import { z } from 'zod';
import { ConflictError } from '../../core/errors.ts';
import { sessionNotFound } from '../../core/session.ts';
import { area } from '../../platform/http/operation/area.ts';
import { invocationPath, pageSize, sessionPath } from '../../platform/http/operation/parameters.ts';
import { exampleEvent } from '../../conversation/sessions/session-context.ts';
import type { InvocationContext } from '../context.ts';
import { type Invocation, invocationSchema } from '../invocation.ts';
import { findInvocationText, listInvocationsText } from '../invocation-store.ts';
import { getBodyBytes } from '../../platform/http/limits/caller-limits.ts';
import { startOnce } from '../background.ts';
import { cancel } from '../cancel.ts';
import {
  BUSY_ERRORS,
  inBackground,
  invocationHeaders,
  invocationNotFound,
  promptDemands,
  startInvocationSchema,
  toInvocation,
  toInvocationOptions,
} from '../wire-request.ts';
import { requireWebhook, type WebhookSettings } from '../webhooks/address.ts';

const DEFAULT_PAGE_SIZE = 100;

const exampleInvocation = {
  id: exampleEvent.invocationId,
  appName: 'harness_agent',
  userId: 'u1',
  sessionId: 's1',
  status: 'succeeded',
  createTime: 1_767_225_600.25,
  startTime: 1_767_225_600.25,
  endTime: 1_767_225_601.5,
  llmCalls: 2,
  toolCalls: 1,
  promptTokens: 412,
  outputTokens: 27,
} satisfies z.input<typeof invocationSchema>;

export interface BackgroundContext extends InvocationContext {
  config: WebhookSettings;
}

const room = area<BackgroundContext>('Agent execution', { read: 'read', write: 'invoke', owner: 'path' });

// The resource has no `find`: cancelling an invocation finds it, and reading one returns the text of its row.
export const invocation = room.resource({
  noun: 'invocation',
  path: '/apps/{app_name}/users/{user_id}/sessions/{session_id}/invocations',
  within: sessionPath,
  key: invocationPath,
  schema: invocationSchema,
  example: exampleInvocation,
  absent: ({ invocationId }) => invocationNotFound(invocationId),
});

const absentSession = ({ sessionId }: { sessionId: string }) => sessionNotFound(sessionId);

const steered = (taker: string) =>
  new ConflictError(`The message cannot be taken back: invocation ${taker} has it. Cancel that one.`);

export const invocationOperations = [
  invocation.create({
    operationId: 'startInvocation',
    summary: 'Start an invocation in the background',
    description:
      'Answers as soon as it waits or runs. The session has to be there. One that waits does so for as long as it takes, whatever becomes of the ' +
      'process that accepted it. Its events come to the session, and to the stream of its events.',
    headers: invocationHeaders,
    demands: promptDemands,
    body: { schema: startInvocationSchema, example: { newMessage: exampleEvent.content } },
    success: { status: 200 },
    errors: { 400: 'There is no message.', 404: 'No such session.', ...BUSY_ERRORS },
    absent: absentSession,
    handler: async (context, { path: key, body, headers, request }) => {
      const webhookUrl = await requireWebhook(context.database.reads, context.config, key, body.webhookUrl);
      const run = await toInvocation(context, key, body, toInvocationOptions(headers, [key, body]));
      const streamed = { ...run, streaming: body.streaming === true };
      const id = await startOnce(context, inBackground(streamed, webhookUrl), getBodyBytes(request));
      return { kind: 'json', text: (await findInvocationText(context.database.db, key, id)) ?? 'null' };
    },
  }),
  invocation.list({
    description: 'Of one session, newest first.',
    query: z.object({ limit: pageSize('Maximum number of invocations.').default(DEFAULT_PAGE_SIZE) }),
    absent: absentSession,
    handler: async ({ database }, { path, query }) => ({
      kind: 'json',
      text: await listInvocationsText(database.reads, path, query.limit),
    }),
  }),
  invocation.read({
    handler: async ({ database }, { path, notFound }) => {
      const text = await findInvocationText(database.reads, path, path.invocationId);
      if (text === undefined) throw notFound();
      return { kind: 'json', text };
    },
  }),
  invocation.action('cancel')({
    operationId: 'cancelInvocation',
    isForFormerApps: true,
    load: 'write',
    summary: 'Cancel an invocation',
    description:
      'On whatever replica it runs. The answer waits up to 5 s for the end of one that runs; if it says `running` then, ' +
      'the invocation ends later. With it end the agents that it called, also those in the background. One that has ended ' +
      'stays as it is, but those of its agents that are still at work are cancelled: `stoppedAgents` says how many.',
    errors: { 409: 'It was a message, and the invocation that ran has taken it.' },
    success: {
      example: {
        ...exampleInvocation,
        status: 'cancelled',
        error: { code: 'cancelled', message: 'The invocation was cancelled.' },
      },
    },
    handler: async (context, { path, notFound }) => {
      const { invocationId } = path;
      const request = await cancel(context, path, invocationId);
      if (!request) throw notFound();
      // Read from the primary database, because a replica may not have received the end of the invocation yet.
      const text = await findInvocationText(context.database.db, path, invocationId);
      if (text === undefined) throw notFound();
      // The invocation may have taken the message before the cancellation came.
      const { steeredInto: taker } = JSON.parse(text) as Invocation;
      if (taker !== undefined) throw steered(taker);
      const { stopped } = request;
      return { kind: 'json', text: stopped > 0 ? `${text.slice(0, -1)},"stoppedAgents":${stopped}}` : text };
    },
  }),
];
