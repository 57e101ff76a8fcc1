import { z } from 'zod';
import { sessionNotFound } from '../../../core/session.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { BUSY_ERRORS, invocationHeaders } from '../../../invocations/wire-request.ts';
import { loadOnce, operation } from '../../../platform/http/operation/operation.ts';
import { appPath, appSessionPath } from '../../../platform/http/operation/parameters.ts';
import { ACTIONS } from '../actions.ts';
import { doorOwner as owner, doorParameters, doorQuery as query, toDoorKey } from '../door-user.ts';
import { runInputSchema } from './input.ts';
import type { Feature } from '../../../platform/feature/feature.ts';

const exampleMessage = { id: 'm1', role: 'user' as const, content: 'What is 17 * 23?' };
const exampleInput = { threadId: 's1', runId: 'run-1', messages: [exampleMessage] };
const body = { schema: runInputSchema, required: true, example: exampleInput } as const;
const shared = {
  isStream: true,
  owner,
  success: {
    schema: z.string(),
    description: 'Events of AG-UI, each as `data`.',
    example: 'data: {"type":"RUN_STARTED","threadId":"s1","runId":"run-1","protocolVersion":"1.0"}\n\n',
    mediaType: 'text/event-stream',
  },
} as const;
const reading = { ...shared, ...ACTIONS.read, errors: { 404: 'There is nothing to replay.' } } as const;
const loadRun = loadOnce(() => import('./run.ts'));

const runAgUi = operation({
  ...shared,
  method: 'post',
  path: '/ag-ui/{app_name}',
  operationId: 'runAgUi',
  scope: 'invoke',
  summary: 'Run a thread for an AG-UI client',
  description:
    'The thread is a session, the run an invocation. What the thread has of `messages` is left out; `state`, ' +
    '`forwardedProps` and messages of the system are not read. `runId` is the `Idempotency-Key` where there is none.',
  parameters: { path: appPath, query, headers: invocationHeaders },
  body,
  errors: { 400: 'The input has nothing new.', 404: 'No such application or user.', ...BUSY_ERRORS },
  handler: async (context: InvocationContext, { path, body: input, ...call }) =>
    (await loadRun()).startRun(context, toDoorKey({ ...path, sessionId: input.threadId }, call), input, call),
});

const connectAgUi = operation({
  ...reading,
  method: 'post',
  path: '/ag-ui/{app_name}/connect',
  operationId: 'connectAgUi',
  summary: 'Connect an AG-UI client to a thread',
  description: 'Messages and state of the thread, then what runs in it to its end.',
  parameters: { path: appPath, query },
  body,
  handler: async (context: InvocationContext, { path, body: { threadId: sessionId, runId }, response, ...call }) =>
    (await loadRun()).connectRun(context, toDoorKey({ ...path, sessionId }, call), response, runId),
});

const streamAgUi = operation({
  ...reading,
  method: 'get',
  path: '/ag-ui/{app_name}/{session_id}',
  operationId: 'streamAgUi',
  summary: 'Read a thread as AG-UI',
  description: 'As `connect`, for clients that only read; the run has the id of the invocation.',
  parameters: { path: appSessionPath, query },
  absent: ({ sessionId }) => sessionNotFound(sessionId),
  handler: async (context: InvocationContext, { path, response, ...call }) =>
    (await loadRun()).connectRun(context, toDoorKey(path, call), response),
});

const operations = [runAgUi, connectAgUi, streamAgUi];

export const agUiDoor = {
  name: 'ag-ui',
  door: 'AG-UI',
  operations,
  parameters: doorParameters,
} satisfies Feature<InvocationContext>;
