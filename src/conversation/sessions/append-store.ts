import type { CallRecord } from '../../agent/loop/call-ledger.ts';
import type { ModelUse, OverBudget } from '../budgets/budget.ts';
import { toChangeError } from './precondition.ts';
import { MAX_FIRST_TEXT } from './session-text.ts';
import { type Content, getFunctionCalls, getFunctionResponses, type JsonObject } from '../../core/content.ts';
import { ConflictError, LeaseLostError, NotFoundError, throwRefusal } from '../../core/errors.ts';
import { emptyActions, type Event, eventSchema, type NewEvent } from '../../core/event.ts';
import { CONFIRMATION_CALL } from '../../core/names.ts';
import { type SessionKey, sessionNotFound, splitDelta, withoutTemporary } from '../../core/session.ts';
import { withoutKnownNulls } from '../../core/zod-graph.ts';
import { type Database, onConflict } from '../../platform/db/database.ts';
import { callFunction } from '../../platform/db/statement.ts';
import { escapeJson, escapeList, escapeText, unescapeJson } from '../../platform/json-escape.ts';

/** Fills in a missing id or author of a client's events, and drops partial events, which are never stored. */
export const toNewEvents = (events: Event[], newId: () => string): NewEvent[] =>
  events
    .filter((event) => event.partial !== true)
    .map((event) => ({
      ...withoutKnownNulls(eventSchema, event),
      id: event.id || newId(),
      invocationId: event.invocationId ?? '',
      author: event.author || 'user',
    }));

/** Creates an event that only changes the state, in the format that ADK uses. */
export const toStateEvent = (stateDelta: JsonObject, newId: () => string): NewEvent => ({
  id: newId(),
  invocationId: `p-${newId()}`,
  author: 'user',
  nodeInfo: { path: '' },
  actions: { ...emptyActions(), stateDelta },
});

/** A stored event: its sequence, and its JSON text with the timestamp that the database assigned. */
export interface StoredEvent {
  sequence: number;
  text: string;
}

/** What an append has stored. */
export interface Appended {
  /** The events, and behind them the messages that the running invocation took. */
  events: StoredEvent[];
  /** The session's new version. */
  version: string;
  /** The budget that the events exhausted. */
  over?: OverBudget | undefined;
  /** Whether the application has budgets; absent unless the events charged model use. */
  limited?: boolean;
}

/** Preconditions of an append, and the usage that the same statement counts. */
export interface AppendOptions {
  /** The invocation's session lease; if the session has another, the append fails. Absent in clients' requests. */
  leaseToken?: string | undefined;
  /** The append fails if the session has none of these versions. */
  versions?: string[] | undefined;
  /** Model use that the user's budgets have not been charged with yet. */
  models?: readonly ModelUse[];
  /** The appending invocation, with usage that is not yet counted in its row. */
  counts?: (InvocationCounts & { invocationId: string }) | undefined;
  /** True: streamed text of these events was stored before and must be deleted. */
  hasDeltas?: boolean;
  calls?: readonly CallRecord[] | undefined;
  /** The messages that wait for the running invocation are stored behind the events: those of these API keys. */
  takesMessages?: { keys: readonly string[] } | undefined;
}

export type InvocationCounts = Record<'llmCalls' | 'toolCalls' | 'promptTokens' | 'outputTokens', number>;

export const toCountParameters = (counts: InvocationCounts | undefined): Record<string, number> => ({
  p_llm_calls: counts?.llmCalls ?? 0,
  p_tool_calls: counts?.toolCalls ?? 0,
  p_prompt_tokens: counts?.promptTokens ?? 0,
  p_output_tokens: counts?.outputTokens ?? 0,
});

/** A response to a tool call; SQL functions close the call's task with it. */
export interface CallAnswer {
  id: string | undefined;
  name: string | undefined;
  /** The content of a confirmation, which is stored with the task. */
  response?: JsonObject | undefined;
  /** The invocation that the request resumes. Absent: the request starts a new invocation. */
  invocationId?: string | undefined;
  /**
   * True if the response comes from an agent, or the same request contains its call: then it closes a task if there is
   * one. Any other response requires an open task.
   */
  isHistory?: boolean;
}

/** Lists the responses to tool calls in events. @param resumed - the invocation that the events resume, if any */
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

/** Waiting messages that one step takes at most; the next step takes more. @param keys - whose messages it may take */
export const toMessageLimits = (keys: readonly string[] = []) => ({ messages: 100, keys });

export const eventExists = ({ sessionId }: SessionKey) =>
  new ConflictError(`Event already exists in session ${sessionId}.`);

/**
 * Appends events in order. Sequence, the session's, user's and application's state, and `lastUpdateTime` change in one
 * statement.
 * @throws {NotFoundError} if the session does not exist
 * @throws {LeaseLostError} if the session has another lease
 * @throws {PreconditionFailedError} if the session has another version
 * @throws {ConflictError} if an event id is taken, or no open task matches a response to a tool call
 * @throws {ForbiddenError} if another user must answer the task
 */
export async function appendEvents(
  db: Database,
  key: SessionKey,
  events: NewEvent[],
  { leaseToken, versions, models, counts, hasDeltas = false, calls, takesMessages }: AppendOptions = {},
): Promise<Appended> {
  type Row = StoredLines & { version: string; over: OverBudget | null; limited: boolean | null };
  const call = callFunction<Row>(db, 'append_events', {
    ...toEventParameters(db, key, events, undefined, takesMessages && toMessageLimits(takesMessages.keys)),
    // False for events in requests, because only tool calls that an agent of this runtime made can be confirmed.
    p_from_runtime: leaseToken !== undefined,
    p_lease: leaseToken,
    p_versions: versions,
    p_models: escapeList(models),
    p_invocation: counts?.invocationId,
    ...toCountParameters(counts),
    p_has_deltas: hasDeltas,
    p_calls: escapeList(calls),
    p_answers: leaseToken === undefined ? escapeList(listCallAnswers(events)) : null,
  }).catch(throwRefusal);
  const { version, over, limited, ...stored } = await onConflict(call, 'events_id_key', () => eventExists(key));
  if (stored.last !== null)
    return { events: toStoredEvents(stored), version, over: over ?? undefined, ...(limited !== null && { limited }) };
  if (leaseToken !== undefined) throw new LeaseLostError(`The invocation no longer holds session ${key.sessionId}.`);
  throw versions ? await toChangeError(db, key) : new NotFoundError(sessionNotFound(key.sessionId));
}

/** Events as SQL functions return them: as JSON lines, with the last sequence (null if nothing was written). */
export interface StoredLines {
  last: number | null;
  lines: string | null;
}

export function toStoredEvents({ last, lines }: StoredLines): StoredEvent[] {
  const texts = lines ? lines.split('\n') : [];
  const before = (last ?? 0) - texts.length;
  return texts.map((text, place) => ({ sequence: before + place + 1, text: unescapeJson(text) }));
}

/** Merges events' state deltas, later values winning, without `temp:` keys. @param toState - adjusts the merged delta */
export function toEventParameters(
  { limits }: Database,
  { appName, userId, sessionId }: SessionKey,
  events: NewEvent[],
  toState?: (delta: JsonObject) => JsonObject,
  moreLimits: Record<string, unknown> = {},
): Record<string, unknown> {
  const stored = events.map(withoutTemporaryDelta);
  const merged: JsonObject = Object.create(null) as JsonObject;
  for (const event of stored) {
    for (const [name, value] of Object.entries(event.actions?.stateDelta ?? {})) merged[name] = value;
  }
  return {
    p_app: appName,
    p_user: userId,
    p_session: sessionId,
    p_events: escapeJson(stored),
    p_delta: escapeJson(splitDelta(toState?.(merged) ?? merged)),
    p_first_text: findFirstText(events),
    p_limits: JSON.stringify({
      stateBytes: limits.maxStateBytes,
      stateKeys: limits.maxStateKeys,
      appStateBytesPerUser: limits.maxAppStateBytesPerUser,
      sessionBytes: limits.maxSessionBytes,
      userBytes: limits.maxUserBytes,
      openTasks: limits.maxOpenTasks,
      ...moreLimits,
    }),
  };
}

function withoutTemporaryDelta(event: NewEvent): NewEvent {
  const delta = event.actions?.stateDelta;
  if (!delta || !Object.keys(delta).some((name) => name.startsWith('temp:'))) return event;
  return { ...event, actions: { ...event.actions, stateDelta: withoutTemporary(delta) } };
}

/** Returns the start of the user's first text, escaped for a text column; null if the events contain no user text. */
function findFirstText(events: readonly NewEvent[]): string | null {
  for (const { author, content } of events) {
    if (author !== 'user') continue;
    const texts = (content?.parts ?? []).flatMap(({ text }) => text || []);
    // The text is cut before it is split into code points (of at most two UTF-16 units), because it may be long.
    if (texts.length > 0) {
      const start = texts.join(' ').slice(0, 2 * MAX_FIRST_TEXT);
      return escapeText(Array.from(start).slice(0, MAX_FIRST_TEXT).join(''));
    }
  }
  return null;
}
