import { IDEMPOTENCY_HEADER, readKeyedRequest } from '../../idempotency/key.ts';
import { sessionTopic, stopTopic } from '../../core/topics.ts';
import { AppError, NotFoundError, RepeatedInvocationError } from '../../core/errors.ts';
import { BUSY_ERRORS, INVOCATION_HEADERS, readInvocationHeaders } from '../request-headers.ts';
import { operation, type Operation } from '../../http/operation/operation.ts';
import { openEventStream } from '../../http/operation/server-sent-events.ts';
import { eventSchema } from '../../core/event.ts';
import { sessionKeyOf, sessionNotFound } from '../../core/session.ts';
import { followEvents } from '../follow.ts';
import { invocationSchema } from '../invocation.ts';
import type { InvocationContext, InvocationRequest } from '../context.ts';
import { invoke } from '../invoke.ts';
import { invocationNotFound, toInvocation } from '../request.ts';
import { answerOnce, findRepeated, abandonedError } from '../retry.ts';
import { rewind } from '../rewind.ts';
import { rewindSchema, startInvocationSchema } from '../request.ts';
import { findInvocationText, listInvocationsText, requestStop } from '../invocation-store.ts';
import { listEventsAfter, listEventTexts } from '../../sessions/event-store.ts';

const SESSION = '/apps/{app_name}/users/{user_id}/sessions/{session_id}';
const ONE = `${SESSION}/invocations/{invocation_id}`;
const area = 'Agent execution';
const absentInvocation = ({ invocation_id = '' }: Record<string, string>) => invocationNotFound(invocation_id);
const absentSession = ({ session_id = '' }: Record<string, string>) => sessionNotFound(session_id);

/** Invocations: start in the background, look at, cancel; follow the events of a session, rewind it. */
export const invocationRoutes = (context: InvocationContext): Operation[] => [
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
      const key = sessionKeyOf(path);
      const run = await toInvocation(context, key, body, readInvocationHeaders(request, [key, body]));
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
    absent: absentInvocation,
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
    absent: absentInvocation,
    handler: async ({ path }) => {
      const key = sessionKeyOf(path);
      const invocationId = path['invocation_id'] ?? '';
      const status = await requestStop(context.database.db, key, invocationId, 'cancelled');
      if (status === undefined) throw new NotFoundError(absentInvocation(path));
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
    headers: [IDEMPOTENCY_HEADER],
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

async function getInvocation(context: InvocationContext, path: Record<string, string>): Promise<string> {
  const text = await findInvocationText(context.database.reads, sessionKeyOf(path), path['invocation_id'] ?? '');
  if (text === undefined) throw new NotFoundError(absentInvocation(path));
  return text;
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
    const found = await findRepeated(context, run.key, run.idempotency);
    if (!found) throw abandonedError();
    return found.invocationId;
  });
  return (await findInvocationText(context.database.db, run.key, id)) ?? 'null';
}
