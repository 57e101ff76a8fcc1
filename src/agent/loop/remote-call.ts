import { getFunctionCalls, getParts, type JsonObject } from '../../core/content.ts';
import type { NewEvent } from '../../core/event.ts';
import type { CallingInvocation } from '../definition/model.ts';
import type { CallRecord } from './call-ledger.ts';
import { type AgentTurn, deriveId, type InvocationState } from './invocation-state.ts';

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
  const earlier = input.stored && (await ledger?.write([record]))?.get(id);
  const attempt = (earlier?.attempt ?? 0) + 1;
  const write = (kept: JsonObject) => ledger?.write([{ ...record, attempt, state: 'started', response: { kept } }]);
  const caller: CallingInvocation = {
    session,
    operationId,
    conversationId: parentCall ? undefined : deriveId([session.appName, session.userId, session.sessionId, name]),
    question: question ? getParts(lastOwn.content).find(({ functionCall }) => functionCall) : undefined,
    state,
    endTime: input.endTime,
    modelCalls: {
      remaining: input.agent.maxLlmCalls - used.llmCalls + 1,
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
