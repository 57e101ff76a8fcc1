import type { Response } from 'express';
import { z } from 'zod';
import { AppError, NotFoundError, RepeatedInvocationError } from '../../core/errors.ts';
import { mayActFor } from '../../http/access/bearer.ts';
import { checkBodyIdentifier } from '../../http/validation/body-identifier.ts';
import {
  BUSY_ERRORS,
  disconnectSignal,
  INVOCATION_HEADERS,
  readIdentifier,
  readInvocationHeaders,
} from '../request-headers.ts';
import { operation, type Operation, type Principal } from '../../http/operation/operation.ts';
import { type EventStream, openEventStream } from '../../http/operation/server-sent-events.ts';
import { followEvents } from '../follow.ts';
import type { EventFrame, InvocationContext, InvocationRequest } from '../context.ts';
import { invoke } from '../invoke.ts';
import { toInvocation } from '../request.ts';
import { answerOnce, findRepeated, abandonedError, isActive } from '../retry.ts';
import { runRequestSchema } from '../request.ts';
import { findFirstSequence, listEventTexts } from '../../sessions/event-store.ts';
import type { Event } from '../../core/event.ts';
import { type SessionKey, HARNESS_APP, sessionNotFound } from '../../core/session.ts';

const area = 'Agent execution';

/** `/run` and `/run_sse`, as the ADK clients call them: the events of one invocation, at its end or as they come. */
export const runRoutes = (context: InvocationContext): Operation[] => [
  operation({
    method: 'post',
    path: '/run',
    operationId: 'runAgent',
    area,
    summary: 'Run the agent',
    description: 'Answers the events of the invocation when it has ended. A failure of the agent is its last event.',
    headers: INVOCATION_HEADERS,
    body: { schema: runRequestSchema, required: true },
    success: { schema: { type: 'array', items: { $ref: '#/components/schemas/Event' } }, description: 'The events.' },
    errors: { 400: 'There is no message.', 404: 'No such session.', ...BUSY_ERRORS },
    handler: async ({ body, principal, request, response }) => {
      const key = ownedKey(body, principal);
      const run = await toInvocation(context, key, body, readInvocationHeaders(request, [key, body]));
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
        async (_end, found) =>
          toArray(await listEventTexts(context.database.reads, found.key, found.invocationId, 'agent')),
      );
      return { kind: 'json', text };
    },
  }),
  operation({
    method: 'post',
    path: '/run_sse',
    operationId: 'runAgentSse',
    area,
    summary: 'Run the agent as a stream',
    description:
      'One server-sent event per event of the agent, then the end of the stream. With `eventIds=true` stored events carry their sequence as `id`.',
    query: [
      { name: 'eventIds', schema: { type: 'boolean' }, description: 'Send the sequence of stored events as `id`.' },
    ],
    headers: INVOCATION_HEADERS,
    body: { schema: runRequestSchema, required: true },
    success: { schema: { type: 'string' }, description: 'Events.', mediaType: 'text/event-stream' },
    errors: { 400: 'There is no message.', 404: 'No such session.', ...BUSY_ERRORS },
    handler: async ({ body, query, principal, request, response }) => {
      const key = ownedKey(body, principal);
      const run = await toInvocation(context, key, body, readInvocationHeaders(request, [key, body]));
      const withIds = query['eventIds'] === true;
      const split = body.functionCallEventId == null;
      await streamInvocation(context, { ...run, streaming: body.streaming === true }, response, { withIds, split });
      return { kind: 'sent' };
    },
  }),
  operation({
    method: 'post',
    path: '/invoke',
    operationId: 'invokeLegacy',
    area: 'Compatibility endpoints',
    summary: 'Invoke the agent, as the AgentKit SDK does',
    description:
      'The body is `{"prompt": …}`, any other JSON or plain text; the prompt is its text. The session is created where it is absent. Answers a stream as `/run_sse` does.',
    headers: [
      { name: 'user_id', schema: { type: 'string', maxLength: 256 }, description: 'The user [`agentkit_user`].' },
      { name: 'session_id', schema: { type: 'string', maxLength: 256 }, description: 'The session [a new one].' },
      ...INVOCATION_HEADERS,
    ],
    body: { schema: z.string(), required: true, isText: true },
    success: { schema: { type: 'string' }, description: 'Events.', mediaType: 'text/event-stream' },
    errors: BUSY_ERRORS,
    handler: async ({ body, principal, request, response }) => {
      const named = {
        appName: HARNESS_APP,
        userId: readIdentifier(request, 'user_id') ?? 'agentkit_user',
        sessionId: readIdentifier(request, 'session_id') ?? context.newId(),
      };
      const key = ownedKey(named, principal);
      const message = { newMessage: { role: 'user', parts: [{ text: promptOf(body) }] } };
      const run = await toInvocation(
        context,
        key,
        message,
        readInvocationHeaders(request, [request.get('session_id'), body]),
      );
      await streamInvocation(context, { ...run, createSession: true }, response, { withIds: false, split: true });
      return { kind: 'sent' };
    },
  }),
];

/** The `prompt` of a JSON body, or the body's own text. */
function promptOf(body: string): string {
  try {
    const { prompt } = JSON.parse(body) as { prompt?: unknown };
    return typeof prompt === 'string' ? prompt : body;
  } catch {
    return body;
  }
}

const toArray = (texts: string[]) => `[${texts.join(',')}]`;

/** The session that a body names. To a user of a token another's session does not exist. */
function ownedKey(body: SessionKey, principal: Principal): SessionKey {
  const { appName } = body;
  const userId = checkBodyIdentifier('userId', body.userId);
  const sessionId = checkBodyIdentifier('sessionId', body.sessionId);
  if (!mayActFor(principal, userId)) throw new NotFoundError(sessionNotFound(sessionId));
  return { appName, userId, sessionId };
}

/** How events are written to a stream. */
interface FrameOptions {
  withIds: boolean;
  /** ADK's clients want content and artifacts of one event in two frames. */
  split: boolean;
}

/**
 * Runs an invocation and sends its events. Refusals before its start are ordinary errors; later ones are a frame `{error}`.
 * A repeated request is attached to its invocation: what it stored so far, then what comes.
 */
async function streamInvocation(
  context: InvocationContext,
  run: InvocationRequest,
  response: Response,
  options: FrameOptions,
): Promise<void> {
  const signal = disconnectSignal(context, response);
  let stream: EventStream | undefined;
  const open = () => (stream ??= openEventStream(response, { comments: false }));
  // Frames are written one after another, however slowly the client reads; the invocation does not wait for it.
  let written = Promise.resolve();
  const write = (frame: EventFrame) => {
    written = written.then(() => sendFrame(open(), frame, options));
  };
  try {
    await invoke(context, { ...run, signal, onKnown: open }, write);
  } catch (error) {
    if (error instanceof RepeatedInvocationError && run.idempotency) await attach(context, run, open, options);
    else if (stream === undefined) throw error;
    else {
      const message = error instanceof AppError ? error.message : 'The runtime failed while it ran the agent.';
      if (!(error instanceof AppError))
        context.log.error({ err: error, invocationId: run.invocationId }, 'invocation failed');
      written = written.then(() => open().send(JSON.stringify({ error: message })));
    }
  }
  await written;
  open().end();
}

async function attach(
  context: InvocationContext,
  run: InvocationRequest,
  open: () => EventStream,
  options: FrameOptions,
): Promise<void> {
  if (!run.idempotency) return;
  const request = run.idempotency;
  const found = await findRepeated(context, run.key, request);
  if (!found) throw abandonedError();
  const { key, invocationId } = found;
  const stream = open();
  const signal = AbortSignal.any([stream.signal, context.draining]);
  const isOver = async () => {
    const now = await findRepeated(context, run.key, request);
    return !now || !isActive(now);
  };
  const first = await findFirstSequence(context.database.reads, key, invocationId);
  for await (const { text, sequence, ...stored } of followEvents(
    context,
    key,
    Math.max(first - 1, 0),
    signal,
    isOver,
  )) {
    const event = JSON.parse(text) as Event;
    if (stored.invocationId === invocationId && event.author !== 'user') {
      await sendFrame(stream, { text, event, sequence }, options);
    }
  }
}

async function sendFrame(
  stream: EventStream,
  { text, event, sequence }: EventFrame,
  options: FrameOptions,
): Promise<void> {
  const id = options.withIds ? sequence : undefined;
  const savesArtifacts = Object.keys(event.actions?.artifactDelta ?? {}).length > 0;
  if (!options.split || !savesArtifacts || !event.content?.parts?.length) return stream.send(text, id);
  const { content, ...rest } = JSON.parse(text) as Event;
  await stream.send(JSON.stringify({ ...rest, content, actions: { ...rest.actions, artifactDelta: {} } }), id);
  await stream.send(JSON.stringify(rest), id);
}
