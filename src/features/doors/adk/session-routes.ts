import { exampleListedSession, exampleSession } from '../../../conversation/sessions/examples.ts';
import { createAndAnswer } from '../../../conversation/sessions/routes.ts';
import { absentSession, room, SESSION_PATH } from '../../../conversation/sessions/session-context.ts';
import { legacyStateSchema, sessionSchema, toLegacyState } from '../../../core/session.ts';
import { sharedStateDemands } from '../../../platform/http/operation/demands.ts';
import { sessionPath } from '../../../platform/http/operation/parameters.ts';

/** The operation that creates a session at the path of ADK 1.x. */
export const createSessionWithId = room.operation({
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
