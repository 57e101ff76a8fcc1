import { getFunctionCalls, getParts, type JsonObject } from '../../core/content.ts';
import type { NewEvent } from '../../core/event.ts';
import type { CallingInvocation } from '../definition/model.ts';
import { type CallRecord, deriveId } from './call-ledger.ts';
import type { AgentTurn, InvocationState } from './invocation-state.ts';

/** The call of an agent that is a tool: what its own calls keep is kept with it. */
export interface ParentCall {
  /** By the names of those calls. */
  kept: JsonObject;
  keep(kept: JsonObject): Promise<void>;
}

/** The call of an agent of another service, which the ledger has as that of a tool. */
export interface RemoteCall {
  caller: CallingInvocation;
  /** Notes that it has ended with this event. */
  end(event: NewEvent): void;
}

/** Begins a call of an agent of another service, or goes on with that of a process that died. */
export async function beginRemoteCall(invocation: InvocationState, turn: AgentTurn): Promise<RemoteCall> {
  const { input, state, used, events } = invocation;
  const { session, ledger, parentCall, invocationId } = input;
  const { name } = turn.agent;
  const own = events.filter(({ author, branch }) => author === name && (branch ?? undefined) === turn.branch);
  const count = own.filter((event) => event.invocationId === invocationId).length;
  // A client may write events too, and must not name a task of others.
  const asked = own.findLast(({ content }) => getParts(content).length > 0);
  const question = asked && input.runtimeEventIds.has(asked.id ?? '') && getFunctionCalls(asked.content).length > 0;
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
    question: question ? getParts(asked.content).find(({ functionCall }) => functionCall) : undefined,
    state,
    endTime: input.endTime,
    modelCalls: {
      left: input.agent.maxLlmCalls - used.llmCalls + 1,
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
