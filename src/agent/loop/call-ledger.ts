import { createHash } from 'node:crypto';
import { getFunctionCalls, getFunctionResponses, type JsonObject, type Part } from '../../core/content.ts';
import type { EventActions, NewEvent } from '../../core/event.ts';
import type { ToolSql } from '../../core/tool-sql.ts';
import { getEffect, type LedgerEffect, type Tool, type Wait } from '../definition/tool.ts';
import type { OpenCall } from './call-tools.ts';
import type { AgentTurn, InvocationState } from './invocation-state.ts';

/** What a tool call produced; `response` is undefined while the call waits for a person or another system. */
export interface LedgerAnswer {
  response: JsonObject | undefined;
  actions: EventActions;
  attachments: Part[];
}

/**
 * State of a tool call. `started`: it runs. `done`: it has a response. `unknown`: it was interrupted and may have taken
 * effect. `settled`: a person or the tool's `check` has determined the outcome.
 */
export type CallState = 'started' | 'done' | 'unknown' | 'settled';

export interface CallRecord {
  id: string;
  tool: string;
  effect: LedgerEffect;
  /** Idempotency key of the tool call: every retry has the same key. */
  operationId: string;
  /** New state of the call in the ledger of tool calls. If undefined, the ledger entry is only read. */
  state?: CallState;
  attempt: number;
  /** The function response, until an event stores it; or the data that the tool stored with `keep`. */
  response?: LedgerAnswer | Kept | undefined;
}

/** Data that a tool stored with `keep` while it ran. */
interface Kept {
  kept: JsonObject;
}

export type EarlierCall = Pick<CallRecord, 'attempt'> & {
  state: CallState;
  response: (Partial<LedgerAnswer> & Partial<Kept>) | null;
};

export type EarlierCalls = ReadonlyMap<string, EarlierCall>;

export interface OpenWait {
  /** Id of the function call without a response: the tool call, or the confirmation request for it. */
  callId: string;
  callName: string;
  /** Id of the tool call that waits or is to be confirmed. */
  about: string;
  tool: string;
  args: JsonObject;
  /** The request for confirmation, if the tool itself made one. */
  request?: { hint?: string; schema?: JsonObject } | undefined;
  wait: Wait;
}

/** Stored records of an invocation's tool calls (`tool_calls`), with which another process can resume it. */
export interface CallLedger {
  /** True for the error of a failed write to the ledger of tool calls. Such an error ends the invocation. */
  isFailure(error: unknown): boolean;
  /** Writes records in the SQL statement that stores this event; without an id, in that of the invocation's end. */
  writeWith(eventId: string | undefined, calls: CallRecord[]): void;
  /** Registers a call without a response, which becomes a task to answer if the invocation pauses. */
  waitFor(call: OpenWait): void;
  /** Writes records of tool calls at once; returns the earlier records of these calls. */
  write(calls: CallRecord[]): Promise<EarlierCalls>;
}

/**
 * Runs a transactional tool: its SQL writes, and its response in the ledger of tool calls, are committed together.
 * @throws the tool's error, or the reason why the commit failed; everything is rolled back
 */
export type Transact = (
  work: (sql: ToolSql) => Promise<LedgerAnswer>,
  signal: AbortSignal,
  record: CallRecord | undefined,
) => Promise<LedgerAnswer>;

/** Decisions by call id: true if a person has approved the call. Undecided calls are absent. */
export type Decisions = ReadonlyMap<string, boolean>;

export const findTool = ({ agent }: AgentTurn, { name }: OpenCall): Tool | undefined =>
  agent.tools.find((tool) => tool.name === name);

/** Finds the tool of a call that the ledger records: calls with the effect `none`, which can be repeated, are not. */
export function findActingTool(turn: AgentTurn, call: OpenCall): Tool | undefined {
  const tool = findTool(turn, call);
  return tool && getEffect(tool) !== 'none' ? tool : undefined;
}

/** Derives a UUID (version 8): the same values always give the same UUID. */
export function deriveId(values: unknown[]): string {
  const hash = createHash('sha256').update(JSON.stringify(values)).digest('hex');
  return [
    hash.slice(0, 8),
    hash.slice(8, 12),
    `8${hash.slice(13, 16)}`,
    `8${hash.slice(17, 20)}`,
    hash.slice(20, 32),
  ].join('-');
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
