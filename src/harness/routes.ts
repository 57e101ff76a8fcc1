import { hasGeneralOverride } from '../agent/prepare-agent.ts';
import { operation, type Operation } from '../http/operation.ts';
import { type InvocationContext, type InvocationEnd, invoke } from '../invocations/invoke.ts';
import { harnessInvokeSchema, harnessResultSchema } from './invoke-request.ts';
import { toAgentOverrides } from './overrides.ts';

/** The application of every session of `/harness/invoke`, whatever `harness_name` says (specification, Invoke Harness). */
export const HARNESS_APP = 'harness_agent';

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
    body: { schema: harnessInvokeSchema, required: true },
    success: { schema: harnessResultSchema, description: 'What the agent answered, or why it could not.' },
    errors: { 429: 'The session runs another invocation and the wait for it was too long.' },
    handler: async ({ body }) => {
      const { user_id, session_id, max_llm_calls } = body.run_agent_request;
      const overrides = toAgentOverrides(body.harness);
      const toAnswer = ({ output, error }: InvocationEnd) =>
        JSON.stringify({
          harness_name: body.harness_name,
          overwrite: hasGeneralOverride(overrides),
          output,
          error: error?.message ?? null,
        });
      const end = await invoke(context, {
        key: { appName: HARNESS_APP, userId: user_id, sessionId: session_id },
        content: { role: 'user', parts: [{ text: body.prompt }] },
        overrides: max_llm_calls == null ? overrides : { ...overrides, maxLlmCalls: max_llm_calls },
        createSession: true,
        streaming: false,
        toAnswer,
      });
      return { kind: 'json', text: toAnswer(end) };
    },
  }),
];
