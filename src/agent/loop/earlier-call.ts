import { orAborted } from '../../core/abort.ts';
import { runWith } from '../../platform/context.ts';
import { getEffect, type OperationOutcome, type Tool } from '../definition/tool.ts';
import type { EarlierCall, OpenCall } from './call-ledger.ts';
import { type AgentTurn, emptyActions, type InvocationState } from './invocation-state.ts';
import { type Answer, failed, requestConfirmation, toResponse } from './tool-answer.ts';

/** The function response of a tool call that ran before a crash or pause; `undefined` if the call is to run now. */
export async function settleEarlier(
  invocation: InvocationState,
  turn: AgentTurn,
  tool: Tool,
  call: OpenCall,
  { state, response: entry }: EarlierCall,
  decision: boolean | undefined,
  why = 'the process that ran it stopped.',
): Promise<Answer | undefined> {
  if (entry?.response) {
    const { response, actions = emptyActions(), attachments = [] } = entry;
    return { response, actions, attachments, state };
  }
  // The tool stored its progress with `keep`, so it runs again and continues from there.
  if (state === 'started' && entry?.kept) return undefined;
  if (state === 'settled') return undefined;
  // It is unknown whether the call took effect, and a person has allowed it to run again.
  if (state === 'unknown' && decision === true) return undefined;
  if (state === 'started' && getEffect(tool) !== 'once') return undefined;
  const outcome = await check(invocation, turn, tool, call);
  if (outcome?.done === false) return undefined;
  if (outcome) {
    const answer = { response: toResponse(outcome.response), attachments: [], actions: emptyActions() };
    return { ...answer, state: 'settled' };
  }
  const message = `It is not known whether this call took effect: ${why} It was not repeated.`;
  if (tool.onUnknown !== 'ask' || decision === false) return { ...failed(message), state: 'unknown' };
  const hint = `It is not known whether \`${call.name}\` took effect: ${why} May it run again?`;
  return { ...requestConfirmation(call, hint, `${message} A person is asked.`), state: 'unknown' };
}

/** Lets the tool's `check` find out whether the call took effect; `undefined` if it cannot. */
async function check(
  invocation: InvocationState,
  { signal }: AgentTurn,
  tool: Tool,
  call: OpenCall,
): Promise<OperationOutcome | undefined> {
  try {
    return await orAborted(
      runWith({ tool: tool.name }, async () => tool.check?.(invocation.toOperationId(call), signal)),
      signal,
    );
  } catch (error) {
    invocation.input.log?.warn({ tool: call.name, callId: call.id, err: error }, 'the check of a call failed');
    return undefined;
  }
}
