import { createHash } from 'node:crypto';
import { getFunctionCalls, getFunctionResponses, type JsonObject, type Part } from '../../core/content.ts';
import type { EventActions, NewEvent } from '../../core/event.ts';
import type { ToolSql } from '../../core/tool-sql.ts';
import { getEffect, type LedgerEffect, type Tool, type Wait } from '../definition/tool.ts';
import type { OpenCall } from './call-tools.ts';
import type { AgentTurn, InvocationState } from './invocation-state.ts';

/** What a tool call produced: its response (undefined while it is open), actions and media. */
export interface LedgerAnswer {
  response: JsonObject | undefined;
  actions: EventActions;
  attachments: Part[];
}

/** State of a call: running; ended; interrupted without a known outcome; outcome established by a check or a person. */
export type CallState = 'started' | 'done' | 'unknown' | 'settled';

export interface CallRecord {
  id: string;
  tool: string;
  effect: LedgerEffect;
  /** Idempotency key of the call, the same for every attempt. */
  operationId: string;
  /** Undefined: the record is only read. */
  state?: CallState;
  attempt: number;
  /** The answer, until the step's event stores it; or what the tool stored with `keep`. */
  response?: LedgerAnswer | Kept | undefined;
}

/** What a tool stored with `keep` while running. */
interface Kept {
  kept: JsonObject;
}

export type EarlierCall = Pick<CallRecord, 'attempt'> & {
  state: CallState;
  response: (Partial<LedgerAnswer> & Partial<Kept>) | null;
};

export type EarlierCalls = ReadonlyMap<string, EarlierCall>;

export interface OpenWait {
  /** Id of the function call that the answer goes to; for a confirmation, the confirmation's own call. */
  callId: string;
  callName: string;
  /** Id of the tool call that it concerns. */
  about: string;
  tool: string;
  args: JsonObject;
  /** The tool's own confirmation request, if it made one. */
  request?: { hint?: string; schema?: JsonObject } | undefined;
  wait: Wait;
}

/** The ledger of one invocation: the state of its tool calls, so that another process can resume it. */
export interface CallLedger {
  /** True for the error of a failed ledger write, which ends the invocation. */
  isFailure(error: unknown): boolean;
  /** Writes calls in the same statement as this event; without an event, in the one that ends the invocation. */
  writeWith(eventId: string | undefined, calls: CallRecord[]): void;
  /** Registers a call that stays open; if the invocation pauses, it becomes a task that can be answered. */
  waitFor(call: OpenWait): void;
  /** Writes calls now. @returns their previous entries */
  write(calls: CallRecord[]): Promise<EarlierCalls>;
}

/**
 * Runs a transactional tool: its effects and its answer, stored in the ledger, are committed together.
 * @throws the tool's error, or why the commit failed; everything is rolled back then
 */
export type Transact = (
  work: (sql: ToolSql) => Promise<LedgerAnswer>,
  signal: AbortSignal,
  record: CallRecord | undefined,
) => Promise<LedgerAnswer>;

/** Whether a person approved a call, by call id; absent while undecided. */
export type Decisions = ReadonlyMap<string, boolean>;

export const findTool = ({ agent }: AgentTurn, { name }: OpenCall): Tool | undefined =>
  agent.tools.find((tool) => tool.name === name);

/**
 * Returns the agent's tool of a call that the ledger records. Tools without effect are not recorded, because they can
 * simply run again.
 */
export function findActingTool(turn: AgentTurn, call: OpenCall): Tool | undefined {
  const tool = findTool(turn, call);
  return tool && getEffect(tool) !== 'none' ? tool : undefined;
}

/** Derives a UUID (version 8) from values, the same for the same values. */
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

/** Records the calls as started when their event is stored, except calls that a person must confirm first. */
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
 * Looks up calls that this process did not start: a person has decided on them, or another process stored them. Calls
 * not started yet are recorded as started, unless they still need a person. @returns the previous entries
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

/** Registers the open calls of a step: long-running calls, and confirmation requests. */
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
