import { getFunctionResponses, getParts, type JsonObject } from '../../../core/content.ts';
import type { Event } from '../../../core/event.ts';
import type { SessionKey } from '../../../core/session.ts';
import type { SessionHistory } from '../../../conversation/sessions/history-store.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import type { Invocation } from '../../../invocations/invocation.ts';
import type { AskedCall } from '../open-calls.ts';
import { readTurn, type TurnStep } from '../turn.ts';
import {
  findWaiting,
  shownCalls,
  shownResults,
  toArguments,
  toCallerId,
  toMessages,
  toNewest,
  toTextId,
  toUserMessages,
} from './messages.ts';

const PROTOCOL_VERSION = '1.0';

/** An event of AG-UI. */
type Frame = { type: string } & JsonObject;
type TextStep = Extract<TurnStep, { kind: 'text' }>;

/** A run as its client sees it. */
export interface Run {
  key: SessionKey;
  runId: string;
  /** The thread as it was before. */
  history: SessionHistory | undefined;
  /** The invocation behind it [none: the run is only what was before]. */
  invocationId: string | undefined;
  /** False for a client that has the messages so far, and that of its own. */
  isRestored: boolean;
}

/** Reads a thread. */
export const findHistory = ({ histories, database }: InvocationContext, key: SessionKey) =>
  histories.find(database.db, key);

/** Finds the calls that a thread waits for, where its invocation has not ended since. */
export async function findPaused(context: InvocationContext, key: SessionKey, history: SessionHistory | undefined) {
  const waiting = history && findWaiting(history);
  const invocation = waiting && (await context.feeds.readInvocation(key, waiting.invocationId));
  return invocation?.status === 'paused' ? waiting : undefined;
}

/** Yields the events of a run. Without a terminal one it goes on elsewhere. */
export async function* toFrames(context: InvocationContext, run: Run, signal: AbortSignal): AsyncGenerator<Frame> {
  const { key, history, invocationId, isRestored } = run;
  yield { type: 'RUN_STARTED', ...toIds(run), protocolVersion: PROTOCOL_VERSION };
  if (isRestored) yield* toMessagesSnapshot(history?.events ?? []);
  yield toStateSnapshot(history);
  if (invocationId !== undefined) yield* followTurn(context, { ...run, invocationId }, signal);
  else {
    const paused = await findPaused(context, key, history);
    yield { type: 'RUN_FINISHED', ...toIds(run), outcome: toOutcome(paused?.calls) };
  }
}

const toIds = ({ key, runId }: Run) => ({ threadId: key.sessionId, runId });

/** A run with an invocation behind it. */
type LiveRun = Run & { invocationId: string };

async function* followTurn(context: InvocationContext, run: LiveRun, signal: AbortSignal): AsyncGenerator<Frame> {
  const { key, invocationId, isRestored } = run;
  const writer = new Writer();
  let place = run.history?.events.length ?? 0;
  for await (const step of readTurn(context, { key, invocationId, after: place }, signal)) {
    if (step.kind === 'end') {
      yield* toEnd(context, run, writer, step.invocation);
      return;
    }
    const before = step.kind === 'event' ? step.sequence - 1 : step.after;
    if (step.kind === 'void') yield* writer.close();
    // Text was taken back, or others used the thread before its turn came.
    if (step.kind === 'void' || (writer.isNew && before > place)) {
      const history = await findHistory(context, key);
      yield* toMessagesSnapshot(history?.events.slice(0, before) ?? []);
      if (step.kind !== 'void') yield toStateSnapshot(history);
    }
    if (step.kind === 'text') yield* writer.addText(step);
    if (step.kind !== 'event') continue;
    // It was answered since: that began another run.
    if (isAnswer(step.event) && !writer.isNew) {
      yield* toEnd(context, run, writer, { status: 'paused' });
      return;
    }
    yield* writer.addEvent(step.event, isRestored);
    place = step.sequence;
  }
}

const isAnswer = ({ author, content }: Event) => author === 'user' && getFunctionResponses(content).length > 0;

/** Yields the end of a run. */
async function* toEnd(
  context: InvocationContext,
  run: LiveRun,
  writer: Writer,
  { status, error }: Pick<Invocation, 'status' | 'error'>,
): AsyncGenerator<Frame> {
  const usage = writer.listUsage();
  if (error && status !== 'cancelled') {
    yield { type: 'RUN_ERROR', ...error, ...usage };
    return;
  }
  const history = status === 'paused' ? await findHistory(context, run.key) : undefined;
  const waiting = history && findWaiting(history);
  const calls = waiting?.invocationId === run.invocationId ? waiting.calls : [];
  yield* writer.close();
  const outcome = status === 'cancelled' ? { type: 'cancelled' } : toOutcome(calls);
  yield { type: 'RUN_FINISHED', ...toIds(run), outcome, ...usage };
}

function* toMessagesSnapshot(events: readonly Event[]): Generator<Frame> {
  const { newest: messages, omitted } = toNewest(toMessages(events));
  yield { type: 'MESSAGES_SNAPSHOT', messages };
  if (omitted > 0) yield { type: 'CUSTOM', name: 'omittedMessages', value: { count: omitted } };
}

const toStateSnapshot = (history: SessionHistory | undefined): Frame => ({
  type: 'STATE_SNAPSHOT',
  snapshot: history?.state ?? {},
});

function toOutcome(calls: AskedCall[] = []): JsonObject {
  const asked = calls.filter(({ kind }) => kind !== 'client');
  if (asked.length > 0) return { type: 'interrupt', interrupts: asked.map(toInterrupt) };
  return { type: 'success', ...(calls.length > 0 && { pendingToolCallIds: calls.map(({ id }) => id) }) };
}

const APPROVAL = { type: 'object', properties: { approved: { type: 'boolean' } }, required: ['approved'] };

const toInterrupt = ({ id, kind, toolCallId, message }: AskedCall): JsonObject => ({
  id,
  reason: kind === 'confirmation' ? 'tool_call' : 'input_required',
  message,
  toolCallId,
  responseSchema: kind === 'confirmation' ? APPROVAL : { type: 'object' },
});

/** Writes what an invocation does as events, and knows which of them are still open. */
class Writer {
  #text: { eventId: string; id: string; isThought: boolean } | undefined;
  /** The open step: the model call of this event, and its tools. */
  #step: { name: string; eventId: string } | undefined;
  readonly #usage = new Map<string, Record<string, number>>();
  /** True until something was written. */
  isNew = true;

  *addText({ eventId, author, part, isThought, text: delta }: TextStep): Generator<Frame> {
    yield* this.#enter(author, eventId);
    const id = toTextId(eventId, part);
    if (this.#text?.id !== id) {
      yield* this.#endText();
      this.#text = { eventId, id, isThought };
      if (isThought) yield { type: 'REASONING_START', messageId: id };
      const [type, role] = isThought ? ['REASONING_MESSAGE_START', 'reasoning'] : ['TEXT_MESSAGE_START', 'assistant'];
      yield { type, messageId: id, role };
    }
    yield { type: isThought ? 'REASONING_MESSAGE_CONTENT' : 'TEXT_MESSAGE_CONTENT', messageId: id, delta };
  }

  *addEvent(event: Event, withUser: boolean): Generator<Frame> {
    this.isNew = false;
    if (event.author === 'user') {
      for (const { id: messageId, content } of withUser ? toUserMessages(event) : []) {
        if (typeof content !== 'string') continue;
        yield { type: 'TEXT_MESSAGE_START', messageId, role: 'user' };
        yield { type: 'TEXT_MESSAGE_CONTENT', messageId, delta: content };
        yield { type: 'TEXT_MESSAGE_END', messageId };
      }
    } else {
      const results = shownResults(event);
      if (this.#text?.eventId === event.id) yield* this.#endText();
      if (results.length === 0 && getParts(event.content).length > 0)
        yield* this.#enter(event.author ?? '', event.id ?? '');
      yield* toCalls(event);
      for (const { id: messageId, role, toolCallId, content } of results)
        yield { type: 'TOOL_CALL_RESULT', messageId, role, toolCallId, content };
      this.#count(event);
    }
    yield* toChanges(event);
    if (event.author !== 'user' && shownCalls(event).length === 0) yield* this.#leave();
  }

  /** Ends what is open. */
  *close(): Generator<Frame> {
    yield* this.#endText();
    yield* this.#leave();
  }

  /** The tokens so far, as the end of a run has them. */
  listUsage(): { usage?: JsonObject[] } {
    const usage = [...this.#usage].map(([model, counts]) => ({ ...(model !== '' && { model }), ...counts }));
    return usage.length > 0 ? { usage } : {};
  }

  *#endText(): Generator<Frame> {
    if (!this.#text) return;
    const { id: messageId, isThought } = this.#text;
    this.#text = undefined;
    yield { type: isThought ? 'REASONING_MESSAGE_END' : 'TEXT_MESSAGE_END', messageId };
    if (isThought) yield { type: 'REASONING_END', messageId };
  }

  *#enter(name: string, eventId: string): Generator<Frame> {
    this.isNew = false;
    if (this.#step?.eventId === eventId) return;
    yield* this.#leave();
    this.#step = { name, eventId };
    yield { type: 'STEP_STARTED', stepName: name };
  }

  *#leave(): Generator<Frame> {
    if (this.#step) yield { type: 'STEP_FINISHED', stepName: this.#step.name };
    this.#step = undefined;
  }

  #count({ usageMetadata: used, modelVersion }: Event): void {
    if (!used) return;
    const output = [used.candidatesTokenCount, used.thoughtsTokenCount].filter((count) => count != null);
    const counts = {
      inputTokens: used.promptTokenCount,
      outputTokens: output.length > 0 ? output.reduce((sum, count) => sum + count) : undefined,
      totalTokens: used.totalTokenCount,
      cachedInputTokens: used.cachedContentTokenCount,
      reasoningTokens: used.thoughtsTokenCount,
    };
    const sums = this.#usage.get(modelVersion ?? '') ?? {};
    for (const [name, count] of Object.entries(counts)) if (count != null) sums[name] = (sums[name] ?? 0) + count;
    this.#usage.set(modelVersion ?? '', sums);
  }
}

function* toCalls(event: Event): Generator<Frame> {
  const parentMessageId = toCallerId(event);
  for (const call of shownCalls(event)) {
    const toolCallId = call.id ?? '';
    yield { type: 'TOOL_CALL_START', toolCallId, toolCallName: call.name ?? '', parentMessageId };
    yield { type: 'TOOL_CALL_ARGS', toolCallId, delta: toArguments(call) };
    yield { type: 'TOOL_CALL_END', toolCallId };
  }
}

/** Yields the changes that an event makes, and the parts that AG-UI has no event for. */
function* toChanges({ author, content, actions }: Event): Generator<Frame> {
  const { stateDelta, artifactDelta, transferToAgent } = actions ?? {};
  const delta = Object.entries(stateDelta ?? {}).flatMap(([name, value]) =>
    name.startsWith('temp:') ? [] : { op: 'add', path: `/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`, value },
  );
  if (delta.length > 0) yield { type: 'STATE_DELTA', delta };
  const others = getParts(content).filter((part) => !part.text && !part.functionCall && !part.functionResponse);
  if (author !== 'user' && others.length > 0) yield { type: 'CUSTOM', name: 'parts', value: others };
  if (Object.keys(artifactDelta ?? {}).length > 0) yield { type: 'CUSTOM', name: 'artifacts', value: artifactDelta };
  if (transferToAgent) yield { type: 'CUSTOM', name: 'transfer', value: { agent: transferToAgent } };
}
