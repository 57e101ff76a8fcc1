import type { CallRecord } from '../../agent/loop/call-ledger.ts';
import { CONFIRMATION_CALL } from '../../agent/loop/confirmation.ts';
import { type Content, getFunctionCalls, getFunctionResponses, type JsonObject } from '../../core/content.ts';
import { ConflictError, LeaseLostError, NotFoundError, throwRefusal } from '../../core/errors.ts';
import type { NewEvent } from '../../core/event.ts';
import {
  type ScopedDelta,
  type SessionKey,
  sessionNotFound,
  splitDelta,
  withoutTemporary,
} from '../../core/session.ts';
import { callFunction } from '../../platform/db/statement.ts';
import { type Database, onConflict } from '../../platform/db/database.ts';
import { escapeJson, escapeText, unescapeJson } from '../../platform/db/json-escape.ts';
import type { ModelUse, OverBudget } from '../budgets/budget.ts';
import { toChangeError } from './precondition.ts';

/** A stored event: its sequence and its JSON text, including the timestamp that the database assigned. */
export interface StoredEvent {
  sequence: number;
  text: string;
}

/**
 * A stored event with the session's new version, the budget that it exhausted and, if it charged model use, whether the
 * application has budgets (`limited`).
 */
export type AppendedEvent = StoredEvent & { version: string; over?: OverBudget | undefined; limited?: boolean };

/** Preconditions of an append, and the usage that is counted in the same statement. */
export interface AppendOptions {
  /** Set by invocations: the append fails if the session has another lease. */
  leaseToken?: string | undefined;
  /** The append fails if the session's version is not among these. */
  versions?: string[] | undefined;
  /** Model use that the budgets have not been charged with yet. */
  models?: readonly ModelUse[];
  /** The appending invocation, with usage not yet counted in its row. */
  counts?: (InvocationCounts & { invocationId: string }) | undefined;
  /** True: partial text of these events was stored earlier and must be deleted. */
  hasDeltas?: boolean;
  /** Entries for the invocation's ledger of tool calls. */
  calls?: readonly CallRecord[] | undefined;
}

export type InvocationCounts = Record<'llmCalls' | 'toolCalls' | 'promptTokens' | 'outputTokens', number>;

/** SQL parameters for functions that count an invocation's usage. */
export const toCountParameters = (counts: InvocationCounts | undefined): Record<string, number> => ({
  p_llm_calls: counts?.llmCalls ?? 0,
  p_tool_calls: counts?.toolCalls ?? 0,
  p_prompt_tokens: counts?.promptTokens ?? 0,
  p_output_tokens: counts?.outputTokens ?? 0,
});

/** SQL parameter for functions that write to the call ledger; null if there are no entries. */
export const toCallsParameter = (calls: readonly CallRecord[] = []): string | null =>
  calls.length > 0 ? escapeJson(calls) : null;

/** The answer to a tool call, for SQL functions that close the call's task. */
export interface CallAnswer {
  id: string | undefined;
  name: string | undefined;
  /** The content of a confirmation; it is stored with the task. */
  response?: JsonObject | undefined;
  /** The invocation that the request resumes; undefined: it starts a new one. */
  invocationId?: string | undefined;
  /**
   * True if the answer comes from an agent, or its call is in the same request: it closes a task if there is one. Any
   * other answer requires an open task.
   */
  isHistory?: boolean;
}

/** Lists the tool-call answers in events. @param resumed - the invocation that the events resume, if any */
export function listCallAnswers(
  events: readonly { author?: string | null | undefined; content?: Content | null | undefined }[],
  resumed?: string,
): CallAnswer[] {
  const brought = new Set(
    events.flatMap(({ author, content }) => (author === 'user' ? [] : getFunctionCalls(content).map(({ id }) => id))),
  );
  return events.flatMap(({ author = 'user', content }) =>
    getFunctionResponses(content).map(({ id, name, response }) => ({
      id: id ?? undefined,
      name: name ?? undefined,
      ...(name === CONFIRMATION_CALL && { response: response ?? {} }),
      invocationId: resumed,
      isHistory: author !== 'user' || brought.has(id),
    })),
  );
}

/** SQL parameter for functions that close the tasks of answered calls; null if there are no answers. */
export const toAnswersParameter = (answers: readonly CallAnswer[] = []): string | null =>
  answers.length > 0 ? escapeJson(answers) : null;

/** The error if the session already has an event with one of the ids. */
export const eventExists = ({ sessionId }: SessionKey) =>
  new ConflictError(`Event already exists in session ${sessionId}.`);

/**
 * Appends events in order. Sequence, the three scopes of state and `lastUpdateTime` change in one statement.
 * @throws {NotFoundError} if the session does not exist
 * @throws {LeaseLostError} if the session has another lease
 * @throws {PreconditionFailedError} if the session has another version
 * @throws {ConflictError} if an event id is taken, or no open task matches an answer
 * @throws {ForbiddenError} if the task must be answered by someone else
 */
export async function appendEvents(
  db: Database,
  key: SessionKey,
  events: NewEvent[],
  { leaseToken, versions, models = [], counts, hasDeltas = false, calls }: AppendOptions = {},
): Promise<AppendedEvent[]> {
  type Appended = StoredLines & { version: string; over: OverBudget | null; limited: boolean | null };
  const call = callFunction<Appended>(db, 'append_events', {
    ...toEventParameters(db, key, events),
    // Only calls made by the runtime itself can be confirmed; no request can set this flag.
    p_from_runtime: leaseToken !== undefined,
    p_lease: leaseToken,
    p_versions: versions,
    p_models: toModelParameter(models),
    p_invocation: counts?.invocationId,
    ...toCountParameters(counts),
    p_has_deltas: hasDeltas,
    p_calls: toCallsParameter(calls),
    p_answers: leaseToken === undefined ? toAnswersParameter(listCallAnswers(events)) : null,
  }).catch(throwRefusal);
  const { version, over, limited, ...stored } = await onConflict(call, 'events_id_key', () => eventExists(key));
  if (stored.last !== null)
    return toStoredEvents(stored).map((each) => ({
      ...each,
      version,
      over: over ?? undefined,
      ...(limited === null ? {} : { limited }),
    }));
  if (leaseToken !== undefined) throw new LeaseLostError(`The invocation no longer holds session ${key.sessionId}.`);
  throw versions ? await toChangeError(db, key) : new NotFoundError(sessionNotFound(key.sessionId));
}

/**
 * Events as an SQL function returns them: the last sequence (null if nothing was written) and one JSON text per line.
 */
export interface StoredLines {
  last: number | null;
  lines: string | null;
}

export function toStoredEvents({ last, lines }: StoredLines): StoredEvent[] {
  const texts = lines ? lines.split('\n') : [];
  const before = (last ?? 0) - texts.length;
  return texts.map((text, place) => ({ sequence: before + place + 1, text: unescapeJson(text) }));
}

/**
 * SQL parameter for functions that count model use; null for none. It is escaped because an override may name a model
 * by any text.
 */
export const toModelParameter = (models: readonly ModelUse[]): string | null =>
  models.length > 0 ? escapeJson(models) : null;

/**
 * SQL parameters shared by all functions that store events. The events' state deltas are merged, the later value
 * winning, without `temp:` keys.
 * @param toState - adjusts the merged delta before it is applied
 */
export function toEventParameters(
  { limits }: Database,
  { appName, userId, sessionId }: SessionKey,
  events: NewEvent[],
  toState: (delta: ScopedDelta) => ScopedDelta = (delta) => delta,
): Record<string, unknown> {
  const stored = events.map(withoutTemporaryDelta);
  const merged: JsonObject = Object.create(null) as JsonObject;
  for (const event of stored) {
    for (const [name, value] of Object.entries(event.actions?.stateDelta ?? {})) merged[name] = value;
  }
  const scopes = Object.entries(toState(splitDelta(merged)));
  return {
    p_app: appName,
    p_user: userId,
    p_session: sessionId,
    p_events: escapeJson(stored),
    p_delta: escapeJson(Object.fromEntries(scopes.filter(([, delta]) => Object.keys(delta as JsonObject).length > 0))),
    p_first_text: findFirstText(events),
    p_limits: JSON.stringify({
      stateBytes: limits.maxStateBytes,
      stateKeys: limits.maxStateKeys,
      appStateBytesPerUser: limits.maxAppStateBytesPerUser,
      sessionBytes: limits.maxSessionBytes,
      userBytes: limits.maxUserBytes,
      openTasks: limits.maxOpenTasks,
    }),
  };
}

function withoutTemporaryDelta(event: NewEvent): NewEvent {
  const delta = event.actions?.stateDelta;
  if (!delta || !Object.keys(delta).some((name) => name.startsWith('temp:'))) return event;
  return { ...event, actions: { ...event.actions, stateDelta: withoutTemporary(delta) } };
}

/** Length limit of a session's first text, in code points; `firstTextAt` applies the same limit to stored events. */
export const MAX_FIRST_TEXT = 200;

/** Returns the start of the user's first text, escaped for a text column; null if there is none. */
function findFirstText(events: readonly NewEvent[]): string | null {
  for (const { author, content } of events) {
    if (author !== 'user') continue;
    const texts = (content?.parts ?? []).flatMap(({ text }) => text || []);
    // Slice before splitting: a code point has at most two UTF-16 units, and the text may be long.
    if (texts.length > 0) {
      const start = texts.join(' ').slice(0, 2 * MAX_FIRST_TEXT);
      return escapeText(Array.from(start).slice(0, MAX_FIRST_TEXT).join(''));
    }
  }
  return null;
}
