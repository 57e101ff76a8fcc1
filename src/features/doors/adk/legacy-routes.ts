import {
  absentSession,
  eventStream,
  exampleListedSession,
  exampleSession,
  room,
  SESSION_PATH,
} from '../../../conversation/sessions/session-context.ts';
import { createAndAnswer } from '../../../conversation/sessions/routes.ts';
import {
  chosenIdentifierSchema,
  legacyStateSchema,
  sessionNotFound,
  sessionSchema,
  toLegacyState,
} from '../../../core/session.ts';
import { sharedStateDemands } from '../../../platform/http/operation/demands.ts';
import { sessionPath } from '../../../platform/http/operation/parameters.ts';
import { bodyText } from '../../../core/members.ts';
import { AGENTKIT_USER, HARNESS_APP } from '../../../core/names.ts';
import { operation } from '../../../platform/http/operation/operation.ts';
import { ValidationFailedError } from '../../../platform/http/operation/request-errors.ts';
import { parseBody } from '../../../platform/http/validation/json-body.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import {
  BUSY_ERRORS,
  invocationHeaders,
  toInvocation,
  toInvocationOptions,
} from '../../../invocations/wire-request.ts';
import { streamInvocation } from './stream-invocation.ts';

/** The operation that creates a session at the path of ADK 1.x. */
const createSessionWithId = room.operation({
  method: 'post',
  path: SESSION_PATH,
  operationId: 'createSessionWithId',
  wire: 'ADK',
  area: 'Compatibility endpoints',
  summary: 'Create a session with an id',
  description: 'As ADK 1.x and its JavaScript client do: the body is the state, or `{"state": …}`.',
  demands: ({ body }) => sharedStateDemands(toLegacyState(body ?? {})),
  parameters: { path: sessionPath },
  body: { schema: legacyStateSchema, required: false, example: { state: exampleSession.state } },
  success: { schema: sessionSchema, description: 'The new session.', example: exampleListedSession },
  errors: { 404: 'No such application.', 409: 'The id is taken.' },
  absent: absentSession,
  handler: (context, { path, body, response }) =>
    createAndAnswer(context, path, { state: toLegacyState(body), events: [] }, response),
});

const legacyHeaders = invocationHeaders.extend({
  user_id: chosenIdentifierSchema
    .default('')
    .transform((sent) => sent || AGENTKIT_USER)
    .describe(`The user [\`${AGENTKIT_USER}\`].`),
  session_id: chosenIdentifierSchema.default('').describe('The session [a new one].'),
});

/** `POST /invoke`, the endpoint that the AgentKit SDK calls. */
const invokeLegacy = operation({
  method: 'post',
  path: '/invoke',
  operationId: 'invokeLegacy',
  wire: 'AgentKit',
  scope: 'invoke',
  area: 'Compatibility endpoints',
  isStream: true,
  summary: 'Invoke the agent, as the AgentKit SDK does',
  description:
    'The body is `{"prompt": …}`, any other JSON or plain text; the prompt is its text. The session is created where ' +
    'it is absent. Answers a stream as `/run_sse` does.',
  owner: {
    user: ({ headers }) => headers.user_id,
    app: () => HARNESS_APP,
    absent: ({ headers }) => sessionNotFound(headers.session_id),
  },
  parameters: { headers: legacyHeaders },
  body: {
    schema: bodyText.describe('The prompt.'),
    required: true,
    isText: true,
    example: 'What is 17 * 23? Use the calculator.',
    json: {
      schema: {
        description: 'An object with the prompt, or any other JSON: then its text is the prompt.',
        properties: { prompt: { description: 'The prompt, as text.' } },
      },
      example: { prompt: 'What is 17 * 23? Use the calculator.' },
    },
  },
  success: eventStream,
  errors: BUSY_ERRORS,
  handler: async (context: InvocationContext, { body, headers, response }) => {
    const { user_id: userId, session_id: sentSession } = headers;
    const key = { appName: HARNESS_APP, userId, sessionId: sentSession || context.newId() };
    const message = { newMessage: { role: 'user', parts: [{ text: toPrompt(body) }] } };
    const run = await toInvocation(context, key, message, toInvocationOptions(headers, [sentSession, body]));
    await streamInvocation(context, { ...run, createSession: true }, response, { withIds: false, split: true });
    return { kind: 'sent' };
  },
});

/** Operations of older clients (ADK 1.x, AgentKit), whose paths and bodies differ. */
export const legacyOperations = [createSessionWithId, invokeLegacy];

/**
 * Prompt of a request: a JSON object's `prompt`, else the whole body. @throws {ValidationFailedError} over a JSON limit
 */
function toPrompt(body: string): string {
  if (!/^\s*\{/.test(body)) return body;
  try {
    const { prompt } = parseBody(Buffer.from(body)) as { prompt?: unknown };
    return typeof prompt === 'string' ? prompt : body;
  } catch (error) {
    if (error instanceof ValidationFailedError && error.details[0]?.type === 'json_invalid') return body;
    throw error;
  }
}
