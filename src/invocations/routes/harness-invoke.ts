import { toAgentOverrides, toLlmCallLimit } from '../../agent/definition/overrides.ts';
import { hasGeneralOverride } from '../../agent/prepare-agent.ts';
import { StoppedError } from '../../core/errors.ts';
import { sessionNotFound } from '../../core/session.ts';
import { HARNESS_APP } from '../../core/names.ts';
import { overrideDemands } from '../../platform/http/operation/demands.ts';
import { operation } from '../../platform/http/operation/operation.ts';
import type { InvocationContext } from '../context.ts';
import { type InvocationEnd, newInvocationId, toAnswer } from '../request.ts';
import {
  BUSY_ERRORS,
  disconnectSignal,
  harnessInvokeSchema,
  harnessResultSchema,
  invocationHeaders,
  toInvocationOptions,
} from '../wire-request.ts';
import { invoke } from '../invoke.ts';
import { answerOnce } from '../retry.ts';
import { steers } from '../session-lock.ts';

/** An invocation that was stopped while it was queued has the same result as one that was stopped later. */
function toStoppedEnd(error: unknown): InvocationEnd {
  if (!(error instanceof StoppedError)) throw error;
  return { output: '', error: { code: error.code, message: error.message } };
}

export const harnessInvoke = operation({
  // By the specification, it exists for keys only: deployments whose users log in by an OAuth server do not have it.
  isAbsentForTokens: true,
  method: 'post',
  path: '/harness/invoke',
  operationId: 'harnessInvoke',
  area: 'Agent execution',
  wire: 'AgentKit',
  scope: 'invoke',
  summary: 'Invoke the harness',
  description:
    'Runs one invocation and waits for its end. Makes the session if there is none of its name. Failures of the ' +
    'agent are answered with status 200 and a non-null `error`.',
  owner: {
    user: ({ body }) => body.run_agent_request.user_id,
    app: () => HARNESS_APP,
    absent: ({ body }) => sessionNotFound(body.run_agent_request.session_id),
  },
  demands: ({ body }) => overrideDemands(body.harness),
  parameters: { headers: invocationHeaders },
  body: {
    schema: harnessInvokeSchema,
    required: true,
    example: {
      prompt: 'What is 17 * 23? Use the calculator.',
      harness_name: 'demo',
      run_agent_request: { user_id: 'u1', session_id: 's1' },
    },
  },
  success: {
    schema: harnessResultSchema,
    description: 'What the agent answered, or why it could not.',
    example: { harness_name: 'demo', overwrite: false, output: '17 * 23 = 391', error: null },
  },
  errors: { ...BUSY_ERRORS, 404: 'The session of this `Idempotency-Key` has been deleted.' },
  handler: async (context: InvocationContext, { body, headers, principal, response }) => {
    const { user_id: userId, session_id: sessionId, max_llm_calls } = body.run_agent_request;
    const key = { appName: HARNESS_APP, userId, sessionId };
    const overrides = toAgentOverrides(body.harness);
    const maxLlmCalls = toLlmCallLimit(max_llm_calls);
    const limited = principal.scopes.has('override') ? 'maxLlmCalls' : 'llmCallsAtMost';
    const kind = { kind: 'harness', harnessName: body.harness_name, overwrite: hasGeneralOverride(overrides) } as const;
    const toText = (end: InvocationEnd) => toAnswer(kind, end);
    const options = toInvocationOptions(headers, [key, body]);
    const signal = disconnectSignal(context, response);
    const run = {
      key,
      invocationId: newInvocationId(context),
      content: { role: 'user', parts: [{ text: body.prompt }] },
      overrides: maxLlmCalls === undefined ? overrides : { ...overrides, [limited]: maxLlmCalls },
      createSession: true,
      streaming: false,
      signal,
      answer: kind,
      ...options,
    };
    const answer = async () => toText(await invoke(context, run).catch(toStoppedEnd));
    const onFollowed = (id: string) => void response.setHeader('x-invocation-id', id);
    const text = await answerOnce(context, key, options.idempotency, answer, toText, {
      signal,
      onFollowed,
      steers: steers(context, run),
    });
    return { kind: 'json', text };
  },
});
