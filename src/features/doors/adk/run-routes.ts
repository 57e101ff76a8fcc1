import { z } from 'zod';
import { eventSchema } from '../../../core/event.ts';
import { type SessionKey, sessionNotFound } from '../../../core/session.ts';
import { operation } from '../../../platform/http/operation/operation.ts';
import { streamPosition } from '../../../platform/http/operation/parameters.ts';
import { listEventTexts } from '../../../conversation/sessions/event-store.ts';
import { eventStream, exampleAnswer, exampleEvent } from '../../../conversation/sessions/session-context.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { invoke } from '../../../invocations/invoke.ts';
import { answerOnce } from '../../../invocations/retry.ts';
import { steers } from '../../../invocations/session-lock.ts';
import {
  BUSY_ERRORS,
  disconnectSignal,
  invocationHeaders,
  promptDemands,
  runRequestSchema,
  toInvocation,
  toInvocationOptions,
} from '../../../invocations/wire-request.ts';
import { parsePosition } from '../../../invocations/follow.ts';
import { streamInvocation } from './stream-invocation.ts';

const errors = { 400: 'There is no message.', 404: 'No such session.', ...BUSY_ERRORS };

/** Authorizes by the body's application, user and session. A token of another user gets "session not found". */
const ownedByBody = {
  user: ({ body }: { body: SessionKey }) => body.userId,
  app: ({ body }: { body: SessionKey }) => body.appName,
  absent: ({ body }: { body: SessionKey }) => sessionNotFound(body.sessionId),
};

const exampleRun = {
  appName: 'harness_agent',
  userId: 'u1',
  sessionId: 's1',
  newMessage: exampleEvent.content,
};

const runAgent = operation({
  method: 'post',
  path: '/run',
  operationId: 'runAgent',
  area: 'Agent execution',
  wire: 'ADK',
  scope: 'invoke',
  summary: 'Run the agent',
  description: 'Answers the events of the invocation when it has ended. A failure of the agent is its last event.',
  owner: ownedByBody,
  demands: promptDemands,
  parameters: { headers: invocationHeaders },
  body: { schema: runRequestSchema, required: true, example: exampleRun },
  success: {
    schema: z.array(eventSchema),
    description: 'The events.',
    example: [exampleAnswer],
  },
  errors,
  handler: async (context: InvocationContext, { body, headers, response }) => {
    const key = toSessionKey(body);
    const run = await toInvocation(context, key, body, toInvocationOptions(headers, [key, body]));
    const signal = disconnectSignal(context, response);
    const text = await answerOnce(
      context,
      run.key,
      run.idempotency,
      async () => {
        const texts: string[] = [];
        await invoke(context, { ...run, signal }, ({ text: frame }) => texts.push(frame));
        return toArray(texts);
      },
      async (_end, found, after) =>
        toArray(await listEventTexts(context.database.db, found.key, found.invocationId, 'agent', after)),
      { signal, steers: steers(context, run), onFollowed: (id) => void response.setHeader('x-invocation-id', id) },
    );
    return { kind: 'json', text };
  },
});

const runAgentSse = operation({
  method: 'post',
  path: '/run_sse',
  operationId: 'runAgentSse',
  area: 'Agent execution',
  wire: 'ADK',
  scope: 'invoke',
  summary: 'Run the agent as a stream',
  isStream: true,
  description:
    'One server-sent event per event of the agent, then the end of the stream; after an event with ' +
    '`errorCode` a frame ' +
    '`{"error": …}` with its sentence. With `eventIds=true` stored events carry their sequence as `id`, and text ' +
    'comes as it is stored, with `sequence.delta`: the same request with its `Idempotency-Key` and `Last-Event-ID` ' +
    'goes on behind that, on any replica. A whole event replaces its text; one with `interrupted` and without ' +
    '`content` takes back all text whose event has not come.',
  owner: ownedByBody,
  demands: promptDemands,
  parameters: {
    query: z.object({
      eventIds: z.boolean().default(false).describe('Send the sequence of stored events as `id`.'),
    }),
    headers: invocationHeaders.extend({
      'last-event-id': streamPosition.optional().describe('The last `id` that a request with this key has got.'),
    }),
  },
  body: { schema: runRequestSchema, required: true, example: { ...exampleRun, streaming: true } },
  success: eventStream,
  errors,
  handler: async (context: InvocationContext, { body, query, headers, response }) => {
    const key = toSessionKey(body);
    const run = await toInvocation(context, key, body, toInvocationOptions(headers, [key, body]));
    const place = headers['last-event-id'];
    const from = place === undefined ? undefined : parsePosition(place);
    const options = { withIds: query.eventIds, from, split: body.functionCallEventId == null };
    const stream = () => streamInvocation(context, { ...run, streaming: body.streaming === true }, response, options);
    await (steers(context, run) ? context.admission.admitSteering(key.userId, stream) : stream());
    return { kind: 'sent' };
  },
});

/** ADK's operations: `/run` returns the events of an invocation at its end, `/run_sse` as a stream. */
export const runOperations = [runAgent, runAgentSse];

const toSessionKey = ({ appName, userId, sessionId }: SessionKey): SessionKey => ({ appName, userId, sessionId });

const toArray = (texts: string[]) => `[${texts.join(',')}]`;
