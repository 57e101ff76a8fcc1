import { type FunctionCall, getFunctionCalls, getFunctionResponses } from '../../core/content.ts';
import type { Event, NewEvent } from '../../core/event.ts';
import { getEffect, type Tool } from '../definition/tool.ts';
import type { CallRecord, Decisions, EarlierCalls, OpenCall } from './call-ledger.ts';
import type { AgentTurn, InvocationState } from './invocation-state.ts';

export function toOpenCalls(event: Event): OpenCall[] {
  return (event.content?.parts ?? []).flatMap((part) => {
    const call = part.functionCall;
    if (!call) return [];
    const invalid = part.partMetadata?.['invalidArguments'];
    const open = { id: call.id ?? '', name: call.name ?? '', args: call.args ?? {} };
    return [typeof invalid === 'string' ? { ...open, invalidArguments: invalid } : open];
  });
}

export const findTool = ({ agent }: AgentTurn, { name }: Pick<FunctionCall, 'name'>): Tool | undefined =>
  agent.tools.find((tool) => tool.name === name);

/** Finds the tool of a call that the ledger records: calls with the effect `none`, which can be repeated, are not. */
export function findActingTool(turn: AgentTurn, call: OpenCall): Tool | undefined {
  const tool = findTool(turn, call);
  return tool && getEffect(tool) !== 'none' ? tool : undefined;
}

export const toRecord = (
  invocation: InvocationState,
  tool: Tool,
  call: OpenCall,
  more: Pick<CallRecord, 'state' | 'response'> & { attempt?: number },
): CallRecord => ({
  id: call.id,
  tool: tool.name,
  effect: getEffect(tool),
  operationId: invocation.toOperationId(call),
  attempt: 1,
  ...more,
});

/** Records tool calls as started in the statement that stores their event, except those that a person must confirm. */
export function beginWith(invocation: InvocationState, turn: AgentTurn, event: NewEvent, calls: OpenCall[]): void {
  const { ledger, stored } = invocation.input;
  if (!ledger || stored?.has(event)) return;
  const records = calls.flatMap((call) => {
    const tool = findActingTool(turn, call);
    return tool && !tool.needsConfirmation ? [toRecord(invocation, tool, call, { state: 'started' })] : [];
  });
  ledger.writeWith(event.id, records);
}

/**
 * Reads the ledger's records of tool calls that a person has decided on or that a crashed process stored, and records
 * as started those that may start now. Returns the earlier records.
 */
export async function lookUp(
  invocation: InvocationState,
  turn: AgentTurn,
  calls: OpenCall[],
  decisions: Decisions,
): Promise<EarlierCalls> {
  const { ledger, stored } = invocation.input;
  const records = calls.flatMap((call) => {
    const tool = findActingTool(turn, call);
    const decision = decisions.get(call.id);
    if (!tool || (decision === undefined && stored?.callIds.has(call.id) !== true)) return [];
    const begins = decision ?? !tool.needsConfirmation;
    return [toRecord(invocation, tool, call, begins ? { state: 'started' } : {})];
  });
  return ledger && records.length > 0 ? ledger.write(records) : new Map();
}

/** Registers the tool calls and confirmation requests that wait for a person or another system. */
export function noteWaits(
  { input: { ledger } }: InvocationState,
  turn: AgentTurn,
  calls: OpenCall[],
  { request, event }: Record<'request' | 'event', NewEvent | undefined>,
): void {
  if (!ledger) return;
  const answered = new Set(getFunctionResponses(event?.content).map(({ id }) => id));
  const requests = getFunctionCalls(request?.content);
  for (const call of calls) {
    const tool = findTool(turn, call);
    const { id: about, name, args } = call;
    const wait = typeof tool?.wait === 'function' ? tool.wait(args) : (tool?.wait ?? {});
    const open = { about, tool: name, args, wait };
    for (const { id = '', name: callName = '', args: members } of requests) {
      if ((members?.['originalFunctionCall'] as { id?: string } | undefined)?.id !== about) continue;
      ledger.waitFor({
        ...open,
        callId: id ?? '',
        callName: callName ?? '',
        request: members?.['toolConfirmation'] as object,
      });
    }
    if (!answered.has(about) && tool?.isOfClient !== true) ledger.waitFor({ ...open, callId: about, callName: name });
  }
}
