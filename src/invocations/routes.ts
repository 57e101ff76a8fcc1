import type { Request, Response } from 'express';
import { AppError, InvalidError, NotFoundError, RepeatedInvocationError } from '../errors.ts';
import { toAgentOverrides } from '../harness/overrides.ts';
import { mayActFor } from '../http/bearer.ts';
import {
  BUSY_ERRORS,
  disconnectSignal,
  IDEMPOTENCY_HEADER,
  INVOCATION_HEADERS,
  readInvocationHeaders,
  readKeyedRequest,
} from '../http/invocation-call.ts';
import { operation, type Operation, type Principal } from '../http/operation.ts';
import { type EventStream, openEventStream } from '../http/server-sent-events.ts';
import type { Event } from '../sessions/event.ts';
import { eventSchema } from '../sessions/event.ts';
import { type SessionKey, sessionKeyOf } from '../sessions/session.ts';
import { sessionNotFound } from '../sessions/store.ts';
import { followEvents } from './follow.ts';
import { invocationSchema, sessionTopic, stopTopic } from './invocation.ts';
import { type EventFrame, type InvocationContext, type InvocationRequest, invoke, newInvocationId } from './invoke.ts';
import { answerOnce, findRepeated, isUnderWay } from './repeat.ts';
import { rewind } from './rewind.ts';
import { rewindSchema, runRequestSchema, type StartInvocation, startInvocationSchema } from './run-request.ts';
import {
  findFirstSequence,
  findInvocationText,
  listEventTexts,
  listEventsAfter,
  listInvocationsText,
  requestStop,
} from './store.ts';

const SESSION = '/apps/{app_name}/users/{user_id}/sessions/{session_id}';
const ONE = `${SESSION}/invocations/{invocation_id}`;
const area = 'Agent execution';
const invocationNotFound = ({ invocation_id = '' }: Record<string, string>) => `Invocation not found: ${invocation_id}`;
const absentSession = ({ session_id = '' }: Record<string, string>) => sessionNotFound(session_id);

/** Agent execution: run, stream, start in the background, look at, cancel and rewind. */
export const executionRoutes = (context: InvocationContext): Operation[] => [
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
      const run = await toInvocation(context, ownedKey(body, principal), body, request);
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
        async (_end, { key, invocationId }) =>
          toArray(await listEventTexts(context.database.reads, key, invocationId, 'agent')),
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
      const run = await toInvocation(context, ownedKey(body, principal), body, request);
      const withIds = query['eventIds'] === true;
      const split = body.functionCallEventId == null;
      await streamInvocation(context, { ...run, streaming: body.streaming === true }, response, { withIds, split });
      return { kind: 'sent' };
    },
  }),
  operation({
    method: 'post',
    path: `${SESSION}/invocations`,
    operationId: 'startInvocation',
    area,
    summary: 'Start an invocation in the background',
    description:
      'Answers as soon as it waits or runs. Its events come to the session, and to the stream of its events.',
    headers: INVOCATION_HEADERS,
    body: { schema: startInvocationSchema, required: true },
    success: { schema: invocationSchema, description: 'The invocation.' },
    errors: { 400: 'There is no message.', 404: 'No such session.', ...BUSY_ERRORS },
    absent: absentSession,
    handler: async ({ path, body, request }) => {
      const run = await toInvocation(context, sessionKeyOf(path), body, request);
      return { kind: 'json', text: await startInBackground(context, run) };
    },
  }),
  operation({
    method: 'get',
    path: `${SESSION}/invocations`,
    operationId: 'listInvocations',
    area,
    summary: 'List invocations',
    description: 'Of one session, newest first.',
    query: [
      { name: 'limit', schema: { type: 'integer', minimum: 1, maximum: 1000 }, description: 'How many at most [100].' },
    ],
    success: {
      schema: { type: 'array', items: { $ref: '#/components/schemas/Invocation' } },
      description: 'The invocations.',
    },
    absent: absentSession,
    handler: async ({ path, query }) => ({
      kind: 'json',
      text: await listInvocationsText(context.database.reads, sessionKeyOf(path), Number(query['limit'] ?? 100)),
    }),
  }),
  operation({
    method: 'get',
    path: ONE,
    operationId: 'getInvocation',
    area,
    summary: 'Get an invocation',
    success: { schema: invocationSchema, description: 'The invocation.' },
    errors: { 404: 'No such invocation.' },
    absent: invocationNotFound,
    handler: async ({ path }) => ({ kind: 'json', text: await getInvocation(context, path) }),
  }),
  operation({
    method: 'post',
    path: `${ONE}/cancel`,
    operationId: 'cancelInvocation',
    area,
    summary: 'Cancel an invocation',
    description: 'On whatever replica it runs. One that has ended stays as it is.',
    success: { schema: invocationSchema, description: 'The invocation; a running one may take a moment to end.' },
    errors: { 404: 'No such invocation.' },
    absent: invocationNotFound,
    handler: async ({ path }) => {
      const key = sessionKeyOf(path);
      const invocationId = path['invocation_id'] ?? '';
      const status = await requestStop(context.database.db, key, invocationId, 'cancelled');
      if (status === undefined) throw new NotFoundError(invocationNotFound(path));
      context.notifications.publish(stopTopic(invocationId));
      context.notifications.publish(sessionTopic(key));
      return { kind: 'json', text: await getInvocation(context, path) };
    },
  }),
  operation({
    method: 'get',
    path: `${SESSION}/events/stream`,
    operationId: 'streamEvents',
    area: 'Sessions',
    summary: 'Follow the events of a session',
    description:
      'Server-sent events whose `id` is the sequence: first those after `Last-Event-ID` (or `afterSequence`, or all), then those to come, from any replica.',
    query: [
      {
        name: 'afterSequence',
        schema: { type: 'integer', minimum: 0 },
        description: 'Only events after this one [0].',
      },
    ],
    headers: [
      { name: 'last-event-id', schema: { type: 'string', maxLength: 10 }, description: 'As a browser sends it; wins.' },
    ],
    success: { schema: { type: 'string' }, description: 'Events.', mediaType: 'text/event-stream' },
    errors: { 404: 'No such session.' },
    absent: absentSession,
    handler: async ({ path, query, request, response }) => {
      const key = sessionKeyOf(path);
      const after = Number(request.get('last-event-id') ?? query['afterSequence'] ?? 0) || 0;
      if (!(await listEventsAfter(context.database.reads, key, after, 1))) throw new NotFoundError(absentSession(path));
      const stream = openEventStream(response, { comments: true });
      const signal = AbortSignal.any([stream.signal, context.draining]);
      for await (const { text, sequence } of followEvents(context, key, after, signal))
        await stream.send(text, sequence);
      stream.end();
      return { kind: 'sent' };
    },
  }),
  operation({
    method: 'post',
    path: `${SESSION}/rewind`,
    operationId: 'rewindSession',
    area: 'Sessions',
    summary: 'Rewind a session',
    description:
      'To before an invocation: state and artifacts are restored, models no longer see what came after. Events stay.',
    body: { schema: rewindSchema, required: true },
    success: { schema: eventSchema, description: 'The event that says so.' },
    errors: { 404: 'No such session or invocation.', ...BUSY_ERRORS },
    absent: absentSession,
    handler: async ({ path, body, request }) => {
      const key = sessionKeyOf(path);
      const keyed = readKeyedRequest(request, [key, body]);
      const text = await answerOnce(
        context,
        key,
        keyed,
        () => rewind(context, key, body.rewindBeforeInvocationId, keyed),
        async (_end, found) =>
          (await listEventTexts(context.database.db, key, found.invocationId, 'user'))[0] ?? 'null',
      );
      context.notifications.publish(sessionTopic(key));
      return { kind: 'json', text };
    },
  }),
];

const toArray = (texts: string[]) => `[${texts.join(',')}]`;

async function getInvocation(context: InvocationContext, path: Record<string, string>): Promise<string> {
  const text = await findInvocationText(context.database.reads, sessionKeyOf(path), path['invocation_id'] ?? '');
  if (text === undefined) throw new NotFoundError(invocationNotFound(path));
  return text;
}

/** The session that a body names. To a user of a token another's session does not exist. */
function ownedKey(body: SessionKey, principal: Principal): SessionKey {
  const { appName, userId, sessionId } = body;
  if (!mayActFor(principal, userId)) throw new NotFoundError(sessionNotFound(sessionId));
  return { appName, userId, sessionId };
}

/** What a request asks for, in the story's words. */
async function toInvocation(
  context: InvocationContext,
  key: SessionKey,
  body: StartInvocation,
  request: Request,
): Promise<InvocationRequest> {
  const { newMessage, stateDelta, invocationId, customMetadata, harness } = body;
  if (!newMessage && !invocationId) {
    throw new InvalidError('newMessage is missing: only a request with the invocationId to go on with needs none.');
  }
  if (invocationId && (await findInvocationText(context.database.reads, key, invocationId)) === undefined) {
    throw new NotFoundError(invocationNotFound({ invocation_id: invocationId }));
  }
  return {
    key,
    invocationId: invocationId ?? newInvocationId(context),
    resumes: invocationId != null,
    content: newMessage ?? undefined,
    stateDelta: stateDelta ?? undefined,
    customMetadata: customMetadata ?? undefined,
    overrides: toAgentOverrides(harness),
    createSession: false,
    streaming: false,
    ...readInvocationHeaders(request, [key, body]),
  };
}

/** Starts an invocation and answers with it once it has its row; it goes on by itself, and the log hears of what it could not store. */
async function startInBackground(context: InvocationContext, run: InvocationRequest): Promise<string> {
  const known = Promise.withResolvers<string>();
  const running = invoke(context, { ...run, onKnown: () => known.resolve(run.invocationId) });
  running.catch((error: unknown) => {
    if (!(error instanceof AppError))
      context.log.error({ err: error, invocationId: run.invocationId }, 'invocation failed');
  });
  const begun = Promise.race([known.promise, running.then(() => run.invocationId)]);
  const id = await begun.catch(async (error: unknown) => {
    if (!(error instanceof RepeatedInvocationError) || !run.idempotency) throw error;
    return (await findRepeated(context, run.key, run.idempotency)).invocationId;
  });
  return (await findInvocationText(context.database.db, run.key, id)) ?? 'null';
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
  const { key, invocationId } = await findRepeated(context, run.key, request);
  const stream = open();
  const signal = AbortSignal.any([stream.signal, context.draining]);
  const isOver = async () => !isUnderWay(await findRepeated(context, run.key, request));
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
