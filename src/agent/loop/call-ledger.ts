import type { JsonObject, Part } from '../../core/content.ts';
import type { EventActions } from '../../core/event.ts';
import type { ToolSql } from '../../core/tool-sql.ts';
import type { Confirmation, LedgerEffect, Wait } from '../definition/tool.ts';

/** A function call that needs a response. `invalidArguments` is what the model sent if it was not a JSON object. */
export interface OpenCall {
  id: string;
  name: string;
  args: JsonObject;
  invalidArguments?: string;
  /** A person's reply to a confirmation that the tool itself requested. */
  confirmation?: Confirmation | undefined;
  /** Why a person rejected the call. */
  reason?: string | undefined;
}

/** What a tool call produced; `response` is undefined while the call waits for a person or another system. */
export interface LedgerAnswer {
  response: JsonObject | undefined;
  actions: EventActions;
  attachments: Part[];
  /** The whole of a response that is too large for a prompt, until it is stored (`keepResult`). */
  result?: KeptResult;
  /** True in the ledger: the tool has run, and a person or another system responds. */
  isOpen?: boolean;
}

/** A new artifact of the session, as the SQL function `record_calls` stores it. */
export type KeptResult = JsonObject;

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
  /** The whole of a large response, which is stored in the same statement. */
  result?: KeptResult;
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
  wait: Omit<Wait, 'kind'> & { kind?: Wait['kind'] | 'child' };
}

/** Stored records of an invocation's tool calls (`tool_calls`), with which another process can resume it. */
export interface CallLedger {
  /** True for the error of a failed write to the ledger of tool calls. Such an error ends the invocation. */
  isFailure(error: unknown): boolean;
  /** Writes records in the SQL statement that stores this event; without an id, in that of the invocation's end. */
  writeWith(eventId: string | undefined, calls: CallRecord[]): void;
  /**
   * Prepares a large response, so that a record (`result`) stores it as version 0 of an artifact of the session. Bytes
   * that belong in an object store are stored there at once.
   * @throws {AppError} if it is too large, or the user's storage is used up, with words for the model
   */
  keepResult(artifactName: string, part: Part, metadata: JsonObject): Promise<KeptResult>;
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
