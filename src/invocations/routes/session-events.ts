import { z } from 'zod';
import { eventSchema } from '../../core/event.ts';
import { sessionNotFound } from '../../core/session.ts';
import { freeTopic, sessionTopic } from '../../core/names.ts';
import { area } from '../../platform/http/operation/area.ts';
import { afterSequence, sessionPath, streamPosition } from '../../platform/http/operation/parameters.ts';
import { openEventStream } from '../../platform/http/operation/server-sent-events.ts';
import { fingerprint, idempotencyHeaders } from '../../conversation/idempotency/idempotency.ts';
import { listEventsAfter, listEventTexts } from '../../conversation/sessions/event-store.ts';
import { eventStream, exampleEvent } from '../../conversation/sessions/session-context.ts';
import type { InvocationContext } from '../context.ts';
import { followSession, formatPosition, parsePosition } from '../follow.ts';
import { answerOnce } from '../retry.ts';
import { rewind } from '../rewind.ts';
import { BUSY_ERRORS, rewindSchema } from '../wire-request.ts';

const room = area<InvocationContext>('Sessions', { read: 'read', write: 'write', owner: 'path' });

const SESSION_PATH = '/apps/{app_name}/users/{user_id}/sessions/{session_id}';
const absent = ({ sessionId }: { sessionId: string }) => sessionNotFound(sessionId);

const streamEvents = room.operation({
  method: 'get',
  path: `${SESSION_PATH}/events/stream`,
  operationId: 'streamEvents',
  summary: 'Follow the events of a session',
  isStream: true,
  description:
    'Server-sent events whose `id` is the sequence: first those after `Last-Event-ID` (or `afterSequence`, or all), ' +
    'then those to come, from any replica. With `deltas=true` the text of events to come too, in partial events with ' +
    'an `id` of the form `sequence.delta`; the whole event replaces them, and one with `interrupted` and without ' +
    '`content` takes back all text whose event has not come. An event of type `restart`, with a `detail`, says that ' +
    'the place is not one of this session (it was deleted and created again, or lost events in a failover): all its ' +
    'events follow.',
  parameters: {
    path: sessionPath,
    query: z.object({
      afterSequence: afterSequence.default(0),
      deltas: z.boolean().default(false).describe('Send text as it comes, of invocations that stream.'),
    }),
    headers: z.object({
      'last-event-id': streamPosition
        .optional()
        .describe('The last `id` that a browser got before it connects again; wins over `afterSequence`.'),
    }),
  },
  success: { ...eventStream, example: `id: 2\n${eventStream.example}` },
  errors: { 404: 'No such session.' },
  absent,
  handler: async (context, { path: key, query, headers, response, notFound }) => {
    const from = parsePosition(headers['last-event-id'] ?? String(query.afterSequence));
    if (!(await listEventsAfter(context.database.reads, key, from.sequence, 1))) throw notFound();
    const stream = openEventStream(response, { comments: true });
    const signal = AbortSignal.any([stream.signal, context.draining]);
    const onRestart = (reason: string) => stream.send(JSON.stringify({ detail: reason }), 0, 'restart');
    const options = { withText: query.deltas, onRestart };
    for await (const { text, position } of followSession(context, key, from, signal, options)) {
      await stream.send(text, formatPosition(position));
    }
    stream.end();
    return { kind: 'sent' };
  },
});

const rewindSession = room.operation({
  method: 'post',
  path: `${SESSION_PATH}/rewind`,
  operationId: 'rewindSession',
  summary: 'Rewind a session',
  description:
    'To before an invocation: state and artifacts are restored, models no longer see what came after. Events stay.',
  parameters: { path: sessionPath, headers: idempotencyHeaders },
  body: {
    schema: rewindSchema,
    required: true,
    example: { rewindBeforeInvocationId: exampleEvent.invocationId },
  },
  success: {
    schema: eventSchema,
    description: 'The event that says so.',
    example: {
      id: '6fa459ea-ee8a-4ca4-894e-db77e160355e',
      invocationId: 'e-16fd2706-8baf-433b-82eb-8c7fada847da',
      author: 'user',
      timestamp: 1_767_225_660.5,
      actions: { rewindBeforeInvocationId: exampleEvent.invocationId },
    },
  },
  errors: { 404: 'No such session or invocation.', ...BUSY_ERRORS },
  absent,
  handler: async (context, { path: key, body, headers }) => {
    const request = fingerprint(headers['idempotency-key'], [key, body]);
    const text = await answerOnce(
      context,
      key,
      request,
      () => rewind(context, key, body.rewindBeforeInvocationId, request),
      async (_end, invocation) =>
        (await listEventTexts(context.database.db, key, invocation.invocationId, 'user'))[0] ?? 'null',
    );
    for (const topic of [sessionTopic(key), freeTopic(key)]) context.notifications.publish(topic);
    return { kind: 'json', text };
  },
});

export const sessionEventOperations = [streamEvents, rewindSession];
