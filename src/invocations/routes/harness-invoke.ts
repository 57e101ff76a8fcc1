import { HARNESS_APP } from '../../core/session.ts';
import { hasGeneralOverride } from '../../agent/prepare-agent.ts';
import { checkBodyIdentifier } from '../../http/validation/body-identifier.ts';
import { BUSY_ERRORS, disconnectSignal, INVOCATION_HEADERS, readInvocationHeaders } from '../request-headers.ts';
import { operation, type Operation } from '../../http/operation/operation.ts';
import { type InvocationContext, type InvocationEnd, newInvocationId } from '../context.ts';
import { invoke } from '../invoke.ts';
import { answerOnce } from '../retry.ts';
import { harnessInvokeSchema, harnessResultSchema } from '../request.ts';
import { toAgentOverrides } from '../../agent/definition/overrides.ts';

/** Not an answer yet: a caller that took it for one would wait for ever (specification: success holds only when `error` is null). */
const WAITS_FOR_A_PERSON =
  'The invocation waits for a person: answer its open function call in the session, and go on with /run.';

/** `POST /harness/invoke`: one invocation per request, answered when it has ended. */
export const harnessRoutes = (context: InvocationContext): Operation[] => [
  operation({
    method: 'post',
    path: '/harness/invoke',
    operationId: 'harnessInvoke',
    area: 'Agent execution',
    summary: 'Invoke the harness',
    description:
      'Runs one invocation and waits for its end. Failures of the agent are answered with status 200 and a non-null `error`.',
    headers: INVOCATION_HEADERS,
    body: { schema: harnessInvokeSchema, required: true },
    success: { schema: harnessResultSchema, description: 'What the agent answered, or why it could not.' },
    errors: BUSY_ERRORS,
    handler: async ({ body, request, response }) => {
      const { user_id, session_id, max_llm_calls } = body.run_agent_request;
      const userId = checkBodyIdentifier('user_id', user_id);
      const key = { appName: HARNESS_APP, userId, sessionId: checkBodyIdentifier('session_id', session_id) };
      const overrides = toAgentOverrides(body.harness);
      const toAnswer = ({ output, error, paused }: InvocationEnd) =>
        JSON.stringify({
          harness_name: body.harness_name,
          overwrite: hasGeneralOverride(overrides),
          output,
          error: error?.message ?? (paused === true && output === '' ? WAITS_FOR_A_PERSON : null),
        });
      const headers = readInvocationHeaders(request, [key, body]);
      const run = {
        key,
        invocationId: newInvocationId(context),
        content: { role: 'user', parts: [{ text: body.prompt }] },
        overrides: max_llm_calls == null ? overrides : { ...overrides, maxLlmCalls: max_llm_calls },
        createSession: true,
        streaming: false,
        signal: disconnectSignal(context, response),
        toAnswer,
        ...headers,
      };
      const answer = async () => toAnswer(await invoke(context, run));
      return { kind: 'json', text: await answerOnce(context, key, headers.idempotency, answer, toAnswer) };
    },
  }),
];
