import { z } from 'zod';
import { sessionNotFound } from '../../../core/session.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { invocationNotFound } from '../../../invocations/wire-request.ts';
import { loadOnce, type Operation, operation } from '../../../platform/http/operation/operation.ts';
import { appSessionPath, invocationPath } from '../../../platform/http/operation/parameters.ts';
import { doorOwner as owner, doorQuery, toDoorKey } from '../door-user.ts';
import type { Feature } from '../../../platform/feature/feature.ts';

const SESSION = '/durable-streams/{app_name}/sessions/{session_id}';

const readQuery = doorQuery.extend({
  offset: z
    .string()
    .max(256)
    .optional()
    .describe('Where it begins: `-1`, `now`, or the `Stream-Next-Offset` of an answer [-1].'),
  live: z.enum(['long-poll', 'sse']).optional().describe('Wait for what is to come [what there is].'),
  cursor: z.string().max(256).optional().describe('The `Stream-Cursor` of the answer before.'),
});
const readHeaders = z.object({
  'if-none-match': z.string().max(512).optional().describe('The `ETag` of an answer that the client has.'),
});
const shared = {
  method: 'get',
  scope: 'read',
  isStream: true,
  owner,
  success: {
    schema: z.string(),
    description: 'A JSON array of messages; with `live=sse` events `data` and `control`.',
    example: 'event: control\ndata: {"streamNextOffset":"0000000002_0000000000","upToDate":true}\n\n',
    mediaType: 'text/event-stream',
    json: { schema: { type: 'array', items: { type: 'object', properties: {} } }, example: [] },
    headers: {
      'Stream-Next-Offset': 'Where the next read begins.',
      'Stream-Up-To-Date': '`true` where there was no more.',
      'Stream-Closed': '`true` where no more will come.',
      'Stream-Cursor': 'Of a long poll: the `cursor` of the next.',
      ETag: 'Of what there is.',
    },
  },
  bare: { 204: 'Nothing came.', 304: 'The client has it.' },
} as const;

const loadStream = loadOnce(() => import('./read-stream.ts'));

const readSession = operation({
  ...shared,
  path: SESSION,
  operationId: 'readSessionStream',
  summary: 'Read the events of a session as a durable stream',
  description: 'The protocol of Durable Streams, for reading: each message is an event. `HEAD` says where it ends.',
  parameters: { path: appSessionPath, query: readQuery, headers: readHeaders },
  errors: { 400: 'The offset is none.', 404: 'No such session.' },
  absent: ({ sessionId }) => sessionNotFound(sessionId),
  handler: async (context: InvocationContext, call) =>
    (await loadStream()).sendStream(context, { key: toDoorKey(call.path, call), invocationId: '' }, call),
});

const readInvocation = operation({
  ...shared,
  path: `${SESSION}/invocations/{invocation_id}`,
  operationId: 'readInvocationStream',
  summary: 'Read an invocation as a durable stream',
  description:
    'Messages are `{"piece": …}`, text as it comes, and `{"event": …}`, which replaces the pieces so far. Closed ' +
    'when it has ended.',
  parameters: { path: invocationPath.omit({ userId: true }), query: readQuery, headers: readHeaders },
  errors: { 400: 'The offset is none.', 404: 'No such invocation.' },
  absent: ({ invocationId }) => invocationNotFound(invocationId),
  handler: async (context: InvocationContext, call) => {
    const source = { key: toDoorKey(call.path, call), invocationId: call.path.invocationId };
    return (await loadStream()).sendStream(context, source, call);
  },
});

const operations: Operation<InvocationContext>[] = [readSession, readInvocation];

export const durableStreamDoor = {
  name: 'durable-streams',
  door: 'Durable Streams',
  operations,
} satisfies Feature<InvocationContext>;
