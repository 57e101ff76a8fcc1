import { getFunctionResponses, getParts, type JsonObject } from '../../../core/content.ts';
import type { Event } from '../../../core/event.ts';
import type { SessionKey } from '../../../core/session.ts';
import type { SessionHistory } from '../../../conversation/sessions/history-store.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import type { Invocation } from '../../../invocations/invocation.ts';
import { readTurn, type TurnStep } from '../turn.ts';
import {
  findWaiting,
  shownCalls,
  shownResults,
  toArguments,
  toCallerId,
  toMessages,
  toTextId,
  toUserMessages,
  type WaitingCall,
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
  /** The invocation behind it, from where on it belongs to the run; without one the run is only what was before. */
  turn: { invocationId: string; after: number } | undefined;
  /** False for a client that has the messages so far, and that of its own. */
  isRestored: boolean;
}

/** Yields the events of a run. Without a terminal one it goes on elsewhere. */
export async function* toFrames(context: InvocationContext, run: Run, signal: AbortSignal): AsyncGenerator<Frame> {
  yield { type: 'RUN_STARTED', ...toIds(run), protocolVersion: PROTOCOL_VERSION };
  if (run.isRestored) yield toMessagesSnapshot(run.history?.events ?? []);
  yield toStateSnapshot(run.history);
  if (run.turn) {
    yield* followTurn(context, { ...run, turn: run.turn }, signal);
    return;
  }
  const waiting = run.history && findWaiting(run.history);
  const last = waiting && (await context.feeds.readInvocation(run.key, waiting.invocationId));
  const outcome = toOutcome(last?.status === 'paused' ? waiting?.calls : []);
  yield { type: 'RUN_FINISHED', ...toIds(run), outcome };
}

const toIds = ({ key, runId }: Run) => ({ threadId: key.sessionId, runId });
const findHistory = ({ histories, database }: InvocationContext, { key }: Run) => histories.find(database.db, key);

/** A run with an invocation behind it. */
type LiveRun = Run & { turn: NonNullable<Run['turn']> };

async function* followTurn(context: InvocationContext, run: LiveRun, signal: AbortSignal): AsyncGenerator<Frame> {
  const { key, turn, isRestored } = run;
  const writer = new Writer();
  let place = run.history?.events.length ?? 0;
  for await (const step of readTurn(context, { key, ...turn }, signal)) {
    if (step.kind === 'end') {
      yield* toEnd(context, run, writer, step.invocation);
      return;
    }
    const before = step.kind === 'event' ? step.sequence - 1 : step.after;
    if (step.kind === 'void') yield* writer.close();
    // Text was taken back, or others used the thread before its turn came.
    if (step.kind === 'void' || (writer.isNew && before > place)) {
      const history = await findHistory(context, run);
      yield toMessagesSnapshot(history?.events.slice(0, before) ?? []);
      if (step.kind !== 'void') yield toStateSnapshot(history);
    }
    if (step.kind === 'text') yield* writer.addText(step);
    if (step.kind !== 'event') continue;
    // It was answered since: that began another run.
    if (isAnswer(step.event) && before > turn.after) {
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
  const history = status === 'paused' ? await findHistory(context, run) : undefined;
  const waiting = history && findWaiting(history);
  const calls = waiting?.invocationId === run.turn.invocationId ? waiting.calls : [];
  yield* writer.close();
  const outcome = status === 'cancelled' ? { type: 'cancelled' } : toOutcome(calls);
  yield { type: 'RUN_FINISHED', ...toIds(run), outcome, ...usage };
}

const toMessagesSnapshot = (events: readonly Event[]): Frame => ({
  type: 'MESSAGES_SNAPSHOT',
  messages: toMessages(events),
});

const toStateSnapshot = (history: SessionHistory | undefined): Frame => ({
  type: 'STATE_SNAPSHOT',
  snapshot: history?.state ?? {},
});

function toOutcome(calls: WaitingCall[] = []): JsonObject {
  const asked = calls.filter(({ kind }) => kind !== 'client');
  if (asked.length > 0) return { type: 'interrupt', interrupts: asked.map(toInterrupt) };
  return { type: 'success', ...(calls.length > 0 && { pendingToolCallIds: calls.map(({ id }) => id) }) };
}

const APPROVAL = { type: 'object', properties: { approved: { type: 'boolean' } }, required: ['approved'] };

const toInterrupt = ({ id, kind, toolCallId, message }: WaitingCall): JsonObject => ({
  id,
  reason: kind === 'confirmation' ? 'tool_call' : 'input_required',
  message,
  toolCallId,
  responseSchema: kind === 'confirmation' ? APPROVAL : { type: 'object' },
});

/** Writes what an invocation does as events, and knows which of them are still open. */
class Writer {
  /** The open text of each event to come. */
  readonly #texts = new Map<string, { part: number; id: string; isThought: boolean }>();
  /** The open step: the model call of this event, and its tools. */
  #step: { name: string; eventId: string } | undefined;
  readonly #usage = new Map<string, Record<string, number>>();
  /** True until something was written. */
  isNew = true;

  *addText({ eventId, author, part, isThought, text }: TextStep): Generator<Frame> {
    yield* this.#enter(author, eventId);
    let open = this.#texts.get(eventId);
    if (open?.part !== part) {
      yield* this.#endText(eventId);
      open = { part, id: toTextId(eventId, part), isThought };
      this.#texts.set(eventId, open);
      if (isThought) yield { type: 'REASONING_START', messageId: open.id };
      const [type, role] = isThought ? ['REASONING_MESSAGE_START', 'reasoning'] : ['TEXT_MESSAGE_START', 'assistant'];
      yield { type, messageId: open.id, role };
    }
    yield { type: isThought ? 'REASONING_MESSAGE_CONTENT' : 'TEXT_MESSAGE_CONTENT', messageId: open.id, delta: text };
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
      yield* this.#endText(event.id ?? '');
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
    for (const eventId of this.#texts.keys()) yield* this.#endText(eventId);
    yield* this.#leave();
  }

  /** The tokens so far, as the end of a run has them. */
  listUsage(): { usage?: JsonObject[] } {
    const usage = [...this.#usage].map(([model, counts]) => ({ ...(model !== '' && { model }), ...counts }));
    return usage.length > 0 ? { usage } : {};
  }

  *#endText(eventId: string): Generator<Frame> {
    const open = this.#texts.get(eventId);
    if (!open) return;
    this.#texts.delete(eventId);
    yield { type: open.isThought ? 'REASONING_MESSAGE_END' : 'TEXT_MESSAGE_END', messageId: open.id };
    if (open.isThought) yield { type: 'REASONING_END', messageId: open.id };
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
