import { hash } from 'node:crypto';
import type { Response } from 'express';
import { toClientTools } from '../../../agent/definition/client-tools.ts';
import { getParts, type JsonObject } from '../../../core/content.ts';
import { NotFoundError } from '../../../core/errors.ts';
import { type Event, isSteer } from '../../../core/event.ts';
import { toPointer } from '../../../core/json-difference.ts';
import { type SessionKey, sessionNotFound } from '../../../core/session.ts';
import type { SessionHistory } from '../../../conversation/sessions/history.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import type { Principal } from '../../../platform/http/operation/principal.ts';
import type { Invocation } from '../../../invocations/invocation.ts';
import { findCurrent } from '../../../invocations/invocation-store.ts';
import { toInvocationOptions } from '../../../invocations/wire-request.ts';
import { findRepeated } from '../../../invocations/retry.ts';
import { begin, type DoorCall, nameInvocation, sendEvents } from '../door.ts';
import type { InvocationRef } from '../handle.ts';
import { type ExternalCall, findPaused } from '../open-calls.ts';
import { Part, readTurn, type TurnStep } from '../turn.ts';
import type { RunInput } from './input.ts';
import { type Message, toEventMessages, toMessages, toNewest, toTextId } from './messages.ts';
import { toNewContent } from './new-content.ts';

type Frame = { type: string } & JsonObject;

interface Run {
  key: SessionKey;
  runId: string;
  history: SessionHistory | undefined;
  /** The run's invocation; `undefined` if there is only history to send. */
  invocationId: string | undefined;
  run?: InvocationRef['run'];
  /** False if the client already has all messages of the thread and so needs no snapshot. */
  isRestored: boolean;
  /** True if the client may read the whole thread; otherwise it sees only this run. */
  mayRead: boolean;
}

type RunCall = Omit<DoorCall, 'context'> & { principal: Pick<Principal, 'scopes'> };

/** Starts a run with the input's new part. A request with the id of an existing run attaches to that run. */
export async function startRun(context: InvocationContext, key: SessionKey, input: RunInput, call: RunCall) {
  const { threadId, runId, messages: inputMessages, resume, tools } = input;
  const derivedKey = `ag-ui-${hash('sha256', JSON.stringify([threadId, runId]))}`;
  const headers = { ...call.headers, 'idempotency-key': call.headers['idempotency-key'] ?? derivedKey };
  // The history is not compared, because a client that retries already has part of the answer.
  const identity = [key, inputMessages.findLast(({ role }) => role === 'user'), resume];
  const history = await findHistory(context, key);
  const messages = toMessages(history?.events ?? []);
  const paused = await findPaused(context, key, history);
  const clientIds = new Set(inputMessages.map(({ id }) => id));
  let isRestored = toNewest(messages).newest.some(({ id, role }) => role !== 'reasoning' && !clientIds.has(id));
  let invocation: Pick<InvocationRef, 'invocationId' | 'run'> | undefined;
  try {
    const newContent = toNewContent(input, messages, paused, context.log);
    const clientTools = toClientTools(tools);
    const turn = { ...newContent, overrides: clientTools ? { clientTools } : {}, identity };
    invocation = await begin({ ...call, context }, { key, turn, headers });
  } catch (error) {
    const { idempotency } = toInvocationOptions(headers, identity);
    invocation = idempotency && (await findRepeated(context, key, idempotency));
    if (!invocation) throw error;
    nameInvocation(call.response, invocation.invocationId);
    isRestored = true;
  }
  const mayRead = call.principal.scopes.has('read');
  const { invocationId, run } = invocation;
  return send(context, { key, runId, history, invocationId, run, isRestored, mayRead }, call.response);
}

/** Sends the thread's history, then events until its invocation ends. @throws {NotFoundError} without history */
export async function connectRun(
  context: InvocationContext,
  key: SessionKey,
  response: Response,
  clientRunId?: string,
) {
  const current = await findCurrent(context.database.db, key);
  const history = await findHistory(context, key);
  const invocationId = current ?? (await findPaused(context, key, history))?.invocationId;
  const runId = clientRunId ?? invocationId ?? history?.events.at(-1)?.invocationId;
  if (!history || runId == null) throw new NotFoundError(sessionNotFound(key.sessionId));
  return send(context, { key, runId, history, invocationId, isRestored: true, mayRead: true }, response);
}

const send = (context: InvocationContext, run: Run, response: Response) =>
  sendEvents(
    context,
    response,
    (message) => ({ type: 'RUN_ERROR', code: 'unauthenticated', message }),
    (signal) => toFrames(context, run, signal),
  );

const findHistory = ({ histories, database }: InvocationContext, key: SessionKey) => histories.find(database.db, key);

/** Yields the events of a run. If none of them is terminal, the run continues and the client can reconnect. */
async function* toFrames(context: InvocationContext, source: Run, signal: AbortSignal): AsyncGenerator<Frame> {
  const { key, runId, history, invocationId, run, isRestored, mayRead } = source;
  const ids = { threadId: key.sessionId, runId };
  const writer = new Writer();
  yield { type: 'RUN_STARTED', ...ids, protocolVersion: '1.0' };
  if (isRestored && mayRead) yield* toMessagesSnapshot(history?.events ?? []);
  if (mayRead) yield { type: 'STATE_SNAPSHOT', snapshot: history?.state ?? {} };
  let end: (Pick<Invocation, 'status' | 'error'> & { id?: string }) | undefined;
  let isFirst = true;
  const part = new Part({});
  const isOwn = (event: Event) => event.invocationId === invocationId;
  const earlierEvents = history?.events ?? [];
  // A client that may not read the thread gets no snapshot; it gets the run's earlier events again instead.
  const firstOwn = isRestored && !mayRead ? earlierEvents.findIndex(isOwn) : -1;
  const after = firstOwn < 0 ? earlierEvents.length : firstOwn;
  const steps = invocationId === undefined ? IDLE : readTurn(context, { key, invocationId, after, run }, signal);
  for await (const step of steps) {
    if (step.kind === 'end') end = step.invocation;
    else if (part.take(step) === 'after') end = { status: 'paused' };
    if (end || step.kind === 'end') break;
    const before = step.kind === 'event' ? step.sequence - 1 : step.after;
    if (step.kind === 'void') yield* writer.close();
    const message = step.kind === 'event' && step.event.author === 'user' ? step : undefined;
    // The client of a message that steers has it already; the run that took it shows it to those who follow that.
    const isNew = message !== undefined && isSteer(message.event) && message.event.id !== invocationId;
    const isBehindOthers = isFirst && before > after && mayRead;
    const hasFiles = isNew && mayRead && !toEventMessages(message.event).every(isText);
    // Sends a new snapshot if text was retracted, if other runs added messages while this run was queued, or for a
    // message with files, which no other frame can show. A client drops the messages that a snapshot has not.
    if (step.kind === 'void' || isBehindOthers || hasFiles) {
      const now = await findHistory(context, key);
      const events = now?.events.slice(0, message?.sequence ?? before) ?? [];
      yield* toMessagesSnapshot(mayRead ? events : events.slice(after).filter(isOwn));
      if (isBehindOthers && step.kind !== 'void') yield { type: 'STATE_SNAPSHOT', snapshot: now?.state ?? {} };
    } else if (message && (isRestored || isNew)) {
      for (const each of toEventMessages(message.event)) yield* toMessageFrames(each);
    }
    if (step.kind === 'text') yield* writer.addText(step);
    if (step.kind === 'event') yield* writer.addEvent(step.event);
    isFirst = false;
  }
  if (!end) return;
  const usage = writer.listUsage();
  if (end.error && end.status !== 'cancelled') {
    yield { type: 'RUN_ERROR', ...end.error, ...usage };
    return;
  }
  const paused = end.status === 'paused' ? await findPaused(context, key, await findHistory(context, key)) : undefined;
  const calls = paused?.invocationId === (end.id ?? invocationId) ? paused?.calls : [];
  yield* writer.close();
  yield { type: 'RUN_FINISHED', ...ids, outcome: toOutcome(end.status, calls), ...usage };
}

const IDLE = [{ kind: 'end', invocation: { status: 'succeeded' } as Invocation } as const];

function* toMessagesSnapshot(events: readonly Event[]): Generator<Frame> {
  const { newest: messages, omitted } = toNewest(toMessages(events));
  yield { type: 'MESSAGES_SNAPSHOT', messages };
  if (omitted > 0) yield { type: 'CUSTOM', name: 'omittedMessages', value: { count: omitted } };
}

const APPROVAL = { type: 'object', properties: { approved: { type: 'boolean' } }, required: ['approved'] };
const CONFIRMATION = { reason: 'tool_call', responseSchema: APPROVAL };
const QUESTION = { reason: 'input_required', responseSchema: { type: 'object' } };

function toOutcome(status: Invocation['status'], calls: ExternalCall[] = []): JsonObject {
  if (status === 'cancelled') return { type: 'cancelled' };
  const questions = calls.filter(({ kind }) => kind !== 'client');
  if (questions.length === 0)
    return { type: 'success', ...(calls.length > 0 && { pendingToolCallIds: calls.map(({ id }) => id) }) };
  const interrupts = questions.map(({ id, kind, toolCallId, message }) => {
    return { id, message, toolCallId, ...(kind === 'confirmation' ? CONFIRMATION : QUESTION) };
  });
  return { type: 'interrupt', interrupts };
}

/** Converts an invocation's steps to AG-UI events. Tracks which AG-UI text and which AG-UI step are still open. */
class Writer {
  #text: { eventId: string; id: string; kind: 'REASONING_MESSAGE' | 'TEXT_MESSAGE' } | undefined;
  /** The open AG-UI step: a model call, identified by its event, and the tools that it calls. */
  #step: { name: string; eventId: string } | undefined;
  readonly #usage = new Map<string, Record<string, number>>();

  *addText({ eventId, author, part, isThought, text: delta }: TurnStep & { kind: 'text' }): Generator<Frame> {
    yield* this.#enter(author, eventId);
    const id = toTextId(eventId, part);
    const kind = isThought ? 'REASONING_MESSAGE' : 'TEXT_MESSAGE';
    if (this.#text?.id !== id) {
      yield* this.#endText();
      this.#text = { eventId, id, kind };
      if (isThought) yield { type: 'REASONING_START', messageId: id };
      yield { type: `${kind}_START`, messageId: id, role: isThought ? 'reasoning' : 'assistant' };
    }
    yield { type: `${kind}_CONTENT`, messageId: id, delta };
  }

  *addEvent(event: Event): Generator<Frame> {
    const { id = '', author, content } = event;
    const isOwn = author !== 'user';
    const messages = isOwn ? toEventMessages(event) : [];
    if (isOwn) {
      if (this.#text?.eventId === id) yield* this.#endText();
      if (getParts(content).length > 0 && !messages.some(({ role }) => role === 'tool'))
        yield* this.#enter(author ?? '', id ?? '');
      this.#count(event);
    }
    for (const message of messages) yield* toMessageFrames(message);
    yield* toChanges(event);
    if (event.output != null) yield { type: 'CUSTOM', name: 'output', value: event.output };
    if (isOwn && !messages.some(({ toolCalls }) => toolCalls)) yield* this.#leave();
  }

  *close(): Generator<Frame> {
    yield* this.#endText();
    yield* this.#leave();
  }

  listUsage(): { usage?: JsonObject[] } {
    const usage = [...this.#usage].map(([model, counts]) => ({ ...(model !== '' && { model }), ...counts }));
    return usage.length > 0 ? { usage } : {};
  }

  *#endText(): Generator<Frame> {
    if (!this.#text) return;
    const { id: messageId, kind } = this.#text;
    this.#text = undefined;
    yield { type: `${kind}_END`, messageId };
    if (kind === 'REASONING_MESSAGE') yield { type: 'REASONING_END', messageId };
  }

  *#enter(name: string, eventId: string): Generator<Frame> {
    if (this.#step?.eventId === eventId) return;
    yield* this.#leave();
    this.#step = { name, eventId };
    yield { type: 'STEP_STARTED', stepName: name };
  }

  *#leave(): Generator<Frame> {
    if (this.#step) yield { type: 'STEP_FINISHED', stepName: this.#step.name };
    this.#step = undefined;
  }

  #count({ usageMetadata: usage, modelVersion }: Event): void {
    if (!usage) return;
    const sums = this.#usage.get(modelVersion ?? '') ?? {};
    this.#usage.set(modelVersion ?? '', sums);
    const add = (name: string, count: number | null | undefined) => {
      if (count != null) sums[name] = (sums[name] ?? 0) + count;
    };
    add('inputTokens', usage.promptTokenCount);
    add('outputTokens', usage.candidatesTokenCount);
    add('outputTokens', usage.thoughtsTokenCount);
    add('totalTokens', usage.totalTokenCount);
    add('cachedInputTokens', usage.cachedContentTokenCount);
    add('reasoningTokens', usage.thoughtsTokenCount);
  }
}

/** True for a message of a user that text frames can show. */
const isText = ({ content }: Message) => typeof content === 'string';

/** Yields a message's AG-UI events, without an agent's text, which has already been streamed. */
function* toMessageFrames({ id: messageId, role, content, toolCalls = [], toolCallId }: Message): Generator<Frame> {
  for (const { id, function: call } of toolCalls) {
    yield { type: 'TOOL_CALL_START', toolCallId: id, toolCallName: call.name, parentMessageId: messageId };
    yield { type: 'TOOL_CALL_ARGS', toolCallId: id, delta: call.arguments };
    yield { type: 'TOOL_CALL_END', toolCallId: id };
  }
  if (role === 'tool') yield { type: 'TOOL_CALL_RESULT', messageId, role, toolCallId, content };
  if (role !== 'user' || typeof content !== 'string') return;
  yield { type: 'TEXT_MESSAGE_START', messageId, role };
  yield { type: 'TEXT_MESSAGE_CONTENT', messageId, delta: content };
  yield { type: 'TEXT_MESSAGE_END', messageId };
}

/** Yields changes of state and artifacts, and as `CUSTOM` the parts that AG-UI has no event for. */
function* toChanges({ author, content, actions }: Event): Generator<Frame> {
  const { stateDelta, artifactDelta, transferToAgent } = actions ?? {};
  const delta = Object.entries(stateDelta ?? {}).flatMap(([name, value]) =>
    name.startsWith('temp:') ? [] : { op: 'add', path: toPointer(name), value },
  );
  if (delta.length > 0) yield { type: 'STATE_DELTA', delta };
  const others = getParts(content).filter((part) => !part.text && !part.functionCall && !part.functionResponse);
  if (author !== 'user' && others.length > 0) yield { type: 'CUSTOM', name: 'parts', value: others };
  if (Object.keys(artifactDelta ?? {}).length > 0) yield { type: 'CUSTOM', name: 'artifacts', value: artifactDelta };
  if (transferToAgent) yield { type: 'CUSTOM', name: 'transfer', value: { agent: transferToAgent } };
}
