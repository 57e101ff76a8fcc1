import { createHash } from 'node:crypto';
import { getFunctionCalls, getFunctionResponses, type JsonObject, type Part } from '../../core/content.ts';
import type { EventActions, NewEvent } from '../../core/event.ts';
import type { ToolSql } from '../../core/tool-sql.ts';
import { getEffect, type LedgerEffect, type Tool, type Wait } from '../definition/tool.ts';
import type { OpenCall } from './call-tools.ts';
import type { AgentTurn, InvocationState } from './invocation-state.ts';

/** An answer of a tool: its response, where it has one yet, and what else its event is to have. */
export interface KeptAnswer {
  response: JsonObject | undefined;
  actions: EventActions;
  attachments: Part[];
}

/** State of a call: it was begun; it has ended; it may have acted; a check or a person has said what became of it. */
export type CallState = 'started' | 'done' | 'unknown' | 'settled';

/** A call of a tool as the ledger keeps it. */
export interface CallRecord {
  id: string;
  tool: string;
  effect: LedgerEffect;
  /** Names the call to who carries it out, the same in every attempt. */
  operationId: string;
  /** Absent: it is only looked up. */
  state?: CallState;
  /** How often it was begun. */
  attempt: number;
  /** Until the event of the step has it; or what its tool keeps to go on with it. */
  response?: KeptAnswer | Kept | undefined;
}

/** The value that a tool keeps while it runs. */
interface Kept {
  kept: JsonObject;
}

/** An entry of the ledger as it was before. */
export type EarlierCall = Pick<CallRecord, 'attempt'> & {
  state: CallState;
  response: (Partial<KeptAnswer> & Partial<Kept>) | null;
};

/** Entries as they were before, by the ids of their calls. */
export type EarlierCalls = ReadonlyMap<string, EarlierCall>;

/** A call that stays open until it is answered. */
export interface OpenWait {
  /** The function call that the answer goes to: of a confirmation its own. */
  callId: string;
  callName: string;
  /** Id of the call that it is about. */
  about: string;
  tool: string;
  args: JsonObject;
  /** The request of the tool itself, where it is a confirmation. */
  asked?: { hint?: string; schema?: JsonObject } | undefined;
  wait: Wait;
}

/** The ledger of one invocation: what became of the calls of its tools, for another process that goes on with it. */
export interface CallLedger {
  /** True for the error of a write that failed: the invocation ends of that. */
  isFailure(error: unknown): boolean;
  /** Writes calls in the statement that stores this event, or that ends the invocation where there is none. */
  writeWith(eventId: string | undefined, calls: CallRecord[]): void;
  /** Keeps a call that stays open, if the invocation pauses: others find there what it waits for. */
  waitFor(call: OpenWait): void;
  /** Writes calls now. @returns what it said of them before */
  write(calls: CallRecord[]): Promise<EarlierCalls>;
}

/**
 * Runs a transactional tool: what it does and its answer, which is kept under its entry, are committed together.
 * @throws what the tool throws, or why it could not be committed: nothing of it is left then
 */
export type Transact = (
  work: (sql: ToolSql) => Promise<KeptAnswer>,
  signal: AbortSignal,
  record: CallRecord | undefined,
) => Promise<KeptAnswer>;

/** Whether a person approved a call, by the call's id; absent while undecided. */
export type Decisions = ReadonlyMap<string, boolean>;

/** Returns the agent's tool of a call. */
export const findTool = ({ agent }: AgentTurn, { name }: OpenCall): Tool | undefined =>
  agent.tools.find((tool) => tool.name === name);

/** Returns the agent's tool of a call that the ledger has: one that changes nothing simply runs again. */
export function findActingTool(turn: AgentTurn, call: OpenCall): Tool | undefined {
  const tool = findTool(turn, call);
  return tool && getEffect(tool) !== 'none' ? tool : undefined;
}

/** Returns an id that follows from these words: a UUID of version 8. */
export function deriveId(words: unknown[]): string {
  const hash = createHash('sha256').update(JSON.stringify(words)).digest('hex');
  return [
    hash.slice(0, 8),
    hash.slice(8, 12),
    `8${hash.slice(13, 16)}`,
    `8${hash.slice(17, 20)}`,
    hash.slice(20, 32),
  ].join('-');
}

/** Returns the entry of a call. */
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

/** Notes that the calls of an event begin once it is stored: all but those that a person has to confirm first. */
export function beginWith(invocation: InvocationState, turn: AgentTurn, event: NewEvent, calls: OpenCall[]): void {
  const { ledger, stored } = invocation.input;
  if (!ledger || stored?.has(event)) return;
  const begun = calls.flatMap((call) => {
    const tool = findActingTool(turn, call);
    return tool && !tool.needsConfirmation ? [toRecord(invocation, tool, call, { state: 'started' })] : [];
  });
  ledger.writeWith(event.id, begun);
}

/**
 * Looks up calls that the event of this process does not begin: a person has decided on them, or another process stored
 * them. Those that were not begun begin now, unless they still need a person. @returns what was known of them
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

/** Notes the calls of a step that stay open: those that something else answers later, and requests to confirm one. */
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
    for (const { id = '', name: callName = '', args: asked } of requests) {
      if ((asked?.['originalFunctionCall'] as { id?: string } | undefined)?.id !== about) continue;
      ledger.waitFor({
        ...open,
        callId: id ?? '',
        callName: callName ?? '',
        asked: asked?.['toolConfirmation'] as object,
      });
    }
    if (!answered.has(about) && tool?.isOfClient !== true) ledger.waitFor({ ...open, callId: about, callName: name });
  }
}
