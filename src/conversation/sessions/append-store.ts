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
import { changeRefused } from './precondition.ts';

/** An event as it was stored: its place in the session, and its JSON text with the timestamp that the store gave it. */
export interface StoredEvent {
  sequence: number;
  text: string;
}

/**
 * An event as it was stored, with the version that the session has by it, the budget that it used up, and, where it
 * counted the use of a model, whether its application has budgets.
 */
export type AppendedEvent = StoredEvent & { version: string; over?: OverBudget | undefined; limited?: boolean };

/** The preconditions of an append, and what is counted with it. */
export interface AppendOptions {
  /** The append is an invocation's: it is refused when the session's lease is another's by now. */
  leaseToken?: string | undefined;
  /** It is refused where the session has none of these versions by now. */
  versions?: string[] | undefined;
  /** Use of models that the budgets have not counted yet. */
  models?: readonly ModelUse[];
  /** The invocation of the append, with what its row has not counted yet. */
  counts?: (InvocationCounts & { invocationId: string }) | undefined;
  /** True: text of the events was stored before them, and goes. */
  hasDeltas?: boolean;
  /** Entries of the ledger to write, for calls of that invocation. */
  calls?: readonly CallRecord[] | undefined;
}

/** Use of an invocation as its row counts it. */
export type InvocationCounts = Record<'llmCalls' | 'toolCalls' | 'promptTokens' | 'outputTokens', number>;

/** The parameters of functions that count what an invocation used. */
export const toCountParameters = (counts: InvocationCounts | undefined): Record<string, number> => ({
  p_llm_calls: counts?.llmCalls ?? 0,
  p_tool_calls: counts?.toolCalls ?? 0,
  p_prompt_tokens: counts?.promptTokens ?? 0,
  p_output_tokens: counts?.outputTokens ?? 0,
});

/** The parameter of functions that write into the ledger; null for nothing. */
export const toCallsParameter = (calls: readonly CallRecord[] = []): string | null =>
  calls.length > 0 ? escapeJson(calls) : null;

/** An answer to a call, as functions take it that close the task of that. */
export interface GivenCall {
  id: string | undefined;
  name: string | undefined;
  /** What a confirmation says: its task keeps it. */
  response?: JsonObject | undefined;
  /** The invocation that the request goes on with [a new one]. */
  invocationId?: string | undefined;
  /** True for what is told of an agent, or answers a call that comes with it: it closes a task, and needs none. */
  isHistory?: boolean;
}

/** Lists the calls that events answer; `resumed` is the invocation that they go on with, if any. */
export function listGivenCalls(
  events: readonly { author?: string | null | undefined; content?: Content | null | undefined }[],
  resumed?: string,
): GivenCall[] {
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

/** The parameter of functions that close the tasks of calls; null for none. */
export const toAnswersParameter = (answers: readonly GivenCall[] = []): string | null =>
  answers.length > 0 ? escapeJson(answers) : null;

/** The error for events whose ids the session has already. */
export const eventExists = ({ sessionId }: SessionKey) =>
  new ConflictError(`Event already exists in session ${sessionId}.`);

/**
 * Appends events in order: sequence, state of three scopes and `lastUpdateTime` move together in one statement.
 * @throws {NotFoundError} when there is no such session. @throws {LeaseLostError} when the token is no longer the
 * session's. @throws {PreconditionFailedError} when the session has another version.
 * @throws {ConflictError} when the session has an event of one of the ids, or nothing waits for what one answers.
 * @throws {ForbiddenError} when others have to answer it.
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
    // Only what the runtime requested itself can be confirmed. No request sets it.
    p_from_runtime: leaseToken !== undefined,
    p_lease: leaseToken,
    p_versions: versions,
    p_models: toModelParameter(models),
    p_invocation: counts?.invocationId,
    ...toCountParameters(counts),
    p_has_deltas: hasDeltas,
    p_calls: toCallsParameter(calls),
    p_answers: leaseToken === undefined ? toAnswersParameter(listGivenCalls(events)) : null,
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
  throw versions ? await changeRefused(db, key) : new NotFoundError(sessionNotFound(key.sessionId));
}

/** Events as a function returns them: the last sequence, null where nothing was written, and JSON, one a line. */
export interface StoredLines {
  last: number | null;
  lines: string | null;
}

/** The events of a function's row. */
export function toStoredEvents({ last, lines }: StoredLines): StoredEvent[] {
  const texts = lines ? lines.split('\n') : [];
  const before = (last ?? 0) - texts.length;
  return texts.map((text, place) => ({ sequence: before + place + 1, text: unescapeJson(text) }));
}

/** The parameter of functions that count the use of models; null for none. An override names a model by any text. */
export const toModelParameter = (models: readonly ModelUse[]): string | null =>
  models.length > 0 ? escapeJson(models) : null;

/**
 * The parameters that all functions share which store events in a session. The deltas of the events are taken together,
 * later ones winning, and `temp:` keys left out. `toState` makes another change of what they change.
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

/** Code points that are kept of the first text; `firstTextAt` finds the same of stored events. */
export const MAX_FIRST_TEXT = 200;

/** The beginning of the first text of a user among events, for a text column; null where there is none. */
function findFirstText(given: readonly NewEvent[]): string | null {
  for (const { author, content } of given) {
    if (author !== 'user') continue;
    const texts = (content?.parts ?? []).flatMap(({ text }) => text || []);
    // Of a long text no more is taken apart than can be needed: a code point is at most two UTF-16 units.
    if (texts.length > 0) {
      const start = texts.join(' ').slice(0, 2 * MAX_FIRST_TEXT);
      return escapeText(Array.from(start).slice(0, MAX_FIRST_TEXT).join(''));
    }
  }
  return null;
}
