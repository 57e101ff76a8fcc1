import { z } from 'zod';
import { sessionNotFound } from '../../../core/session.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { BUSY_ERRORS, invocationHeaders } from '../../../invocations/request.ts';
import { operation } from '../../../platform/http/operation/operation.ts';
import { appPath, appSessionPath } from '../../../platform/http/operation/parameters.ts';
import { doorUserSchema, toDoorUser } from '../start-turn.ts';
import { runInputSchema } from './input.ts';

const query = z.object({ user_id: doorUserSchema });

const exampleInput = {
  threadId: 's1',
  runId: 'run-1',
  messages: [{ id: 'm1', role: 'user' as const, content: 'What is 17 * 23?' }],
  tools: [],
  context: [],
  state: {},
  forwardedProps: {},
};
const success = {
  schema: z.string(),
  description: 'Events of AG-UI, each as `data`.',
  example: 'data: {"type":"RUN_STARTED","threadId":"s1","runId":"run-1","protocolVersion":"1.0"}\n\n',
  mediaType: 'text/event-stream',
} as const;
const owner = {
  user: ({ query: sent }: { query: z.output<typeof query> }) => sent.user_id as string,
  absent: ({ query: sent }: { query: z.output<typeof query> }) => `User not found: ${sent.user_id}`,
};

const runAgUi = operation({
  method: 'post',
  path: '/ag-ui/{app_name}',
  operationId: 'runAgUi',
  scope: 'invoke',
  summary: 'Run a thread for an AG-UI client',
  isStream: true,
  description:
    'The thread is a session, the run an invocation. What the thread has of `messages` is left out; `state`, ' +
    '`forwardedProps` and messages of the system are not read. `runId` is the `Idempotency-Key` where there is none.',
  owner,
  parameters: { path: appPath, query, headers: invocationHeaders },
  body: { schema: runInputSchema, required: true, example: exampleInput },
  success,
  errors: { 400: 'The input has nothing new.', 404: 'No such application or user.', ...BUSY_ERRORS },
  handler: async (context: InvocationContext, { path, query: sent, body, principal, headers, request, response }) => {
    const { startRun } = await import('./run.ts');
    const key = { appName: path.appName, userId: toDoorUser(principal, sent.user_id), sessionId: body.threadId };
    return startRun(context, key, body, { headers, request, response });
  },
});

const connectAgUi = operation({
  method: 'post',
  path: '/ag-ui/{app_name}/connect',
  operationId: 'connectAgUi',
  scope: 'read',
  load: 'heavy',
  summary: 'Connect an AG-UI client to a thread',
  isStream: true,
  description: 'Messages and state of the thread, then what runs in it to its end.',
  owner,
  parameters: { path: appPath, query },
  body: { schema: runInputSchema, required: true, example: exampleInput },
  success,
  errors: { 404: 'There is nothing to replay.' },
  handler: async (context: InvocationContext, { path, query: sent, body, principal, response }) => {
    const { connectRun } = await import('./run.ts');
    const key = { appName: path.appName, userId: toDoorUser(principal, sent.user_id), sessionId: body.threadId };
    return connectRun(context, key, body.runId, response);
  },
});

const streamAgUi = operation({
  method: 'get',
  path: '/ag-ui/{app_name}/{session_id}',
  operationId: 'streamAgUi',
  scope: 'read',
  load: 'heavy',
  summary: 'Read a thread as AG-UI',
  isStream: true,
  description: 'As `connect`, for clients that only read; the run has the id of the invocation.',
  owner,
  parameters: { path: appSessionPath, query },
  success,
  errors: { 404: 'There is nothing to replay.' },
  absent: ({ sessionId }) => sessionNotFound(sessionId),
  handler: async (context: InvocationContext, { path, query: sent, principal, response }) => {
    const { connectRun } = await import('./run.ts');
    const key = { ...path, userId: toDoorUser(principal, sent.user_id) };
    return connectRun(context, key, undefined, response);
  },
});

/** The operations of this door. */
export const agUiOperations = [runAgUi, connectAgUi, streamAgUi];
