import {
  type FunctionCall,
  getFunctionCalls,
  getFunctionResponses,
  getParts,
  type JsonObject,
} from '../../core/content.ts';
import { type Event, type NewEvent, emptyActions } from '../../core/event.ts';
import { getEffect, type Tool, type OperationOutcome, type Wait } from '../definition/tool.ts';
import type { CallRecord, Decisions, EarlierCalls, OpenCall, EarlierCall } from './call-ledger.ts';
import { type AgentTurn, countCallsLeft, type InvocationState, deriveId } from './invocation-state.ts';
import { orAborted } from '../../core/abort.ts';
import { runWith } from '../../platform/context.ts';
import { getConfirmedId } from './script.ts';
import { type Answer, failed, requestConfirmation, toResponse } from './tool-answer.ts';
import type { CallingInvocation } from '../definition/model.ts';

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

/**
 * What the ledger has of a call that begins. That of an agent with a session of its own may be made again at any time,
 * whatever its tools do, because it begins once: it is marked like a tool that kept its progress.
 */
const toBegun = ({ input }: InvocationState, { calls }: Tool): Pick<CallRecord, 'state' | 'response'> => ({
  state: 'started',
  ...(typeof calls === 'object' && input.children?.has(calls) === true && { response: { kept: {} } }),
});

/** Records tool calls as started in the statement that stores their event, except those that a person must confirm. */
export function beginWith(invocation: InvocationState, turn: AgentTurn, event: NewEvent, calls: OpenCall[]): void {
  const { ledger, script } = invocation.input;
  if (!ledger || script?.has(event)) return;
  const records = calls.flatMap((call) => {
    const tool = findActingTool(turn, call);
    return tool && !tool.needsConfirmation ? [toRecord(invocation, tool, call, toBegun(invocation, tool))] : [];
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
  const { ledger, script } = invocation.input;
  const records = calls.flatMap((call) => {
    const tool = findActingTool(turn, call);
    const decision = decisions.get(call.id);
    if (!tool || (decision === undefined && script?.callIds.has(call.id) !== true)) return [];
    const begins = decision ?? !tool.needsConfirmation;
    return [toRecord(invocation, tool, call, begins ? toBegun(invocation, tool) : {})];
  });
  return ledger && records.length > 0 ? ledger.write(records) : new Map();
}

/** How a call of the tool waits. */
export const getWait = (tool: Tool | undefined, args: JsonObject): Wait =>
  typeof tool?.wait === 'function' ? tool.wait(args) : (tool?.wait ?? {});

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
    const wait = getWait(tool, args);
    const open = { about, tool: name, args, wait };
    for (const { id = '', name: callName = '', args: members } of requests) {
      if (getConfirmedId({ args: members }) !== about) continue;
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
  if (entry?.isOpen) return { response: undefined, actions: entry.actions ?? emptyActions(), attachments: [] };
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

/** A call of an agent of another service, recorded in the ledger (`tool_calls`) like a tool call. */
export interface RemoteCall {
  caller: CallingInvocation;
  /** Records in the ledger of tool calls that the call has ended, in the statement that stores this event. */
  end(event: NewEvent): void;
}

/** Begins a call of an agent of another service, or resumes a call that a crashed process began. */
export async function beginRemoteCall(invocation: InvocationState, turn: AgentTurn): Promise<RemoteCall> {
  const { input, state, used, events } = invocation;
  const { session, ledger, parentCall, invocationId } = input;
  const { name } = turn.agent;
  const own = events.filter(({ author, branch }) => author === name && (branch ?? undefined) === turn.branch);
  const count = own.filter((event) => event.invocationId === invocationId).length;
  // The other agent's question to the user counts only if the runtime made its event, because an event written by a
  // client could name the A2A task of another user.
  const lastOwn = own.findLast(({ content }) => getParts(content).length > 0);
  const question =
    lastOwn && input.runtimeEventIds.has(lastOwn.id ?? '') && getFunctionCalls(lastOwn.content).length > 0;
  const id = deriveId([turn.branch, name, count]);
  const operationId = invocation.toOperationId({ id, name, args: { count } });
  const record: CallRecord = { id, tool: name, effect: 'idempotent', operationId, attempt: 1 };
  const earlier = input.script && (await ledger?.write([record]))?.get(id);
  const attempt = (earlier?.attempt ?? 0) + 1;
  const write = (kept: JsonObject) => ledger?.write([{ ...record, attempt, state: 'started', response: { kept } }]);
  const caller: CallingInvocation = {
    session,
    operationId,
    conversationId:
      parentCall || input.isChild ? undefined : deriveId([session.appName, session.userId, session.sessionId, name]),
    question: question ? getParts(lastOwn.content).find(({ functionCall }) => functionCall) : undefined,
    state,
    endTime: input.endTime,
    modelCalls: {
      remaining: countCallsLeft(invocation) + 1,
      count: (made) => void (used.llmCalls += Math.max(made - 1, 0)),
    },
    kept: parentCall
      ? (parentCall.kept[operationId] as JsonObject | undefined)
      : (earlier?.response?.kept ?? undefined),
    keep: async (kept) => {
      if (parentCall) await parentCall.keep(Object.assign(parentCall.kept, { [operationId]: kept }));
      else await write(kept);
    },
  };
  return { caller, end: (event) => ledger?.writeWith(event.id, [{ ...record, attempt, state: 'done' }]) };
}
