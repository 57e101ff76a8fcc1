import { runWith } from '../platform/context.ts';
import type { PreparedAgent } from '../agent/definition/agent.ts';
import { findNode } from '../agent/loop/agent-tree.ts';
import { type InvocationObserver, observeAll, type RunEnd } from '../agent/loop/run.ts';
import { runAgent } from '../agent/loop/run-agent.ts';
import { getFunctionCalls } from '../core/content.ts';
import {
  AgentError,
  HandedOverError,
  isPassingFailure,
  LeaseLostError,
  QueuedError,
  sizeRefusal,
} from '../core/errors.ts';
import { isRefusal } from '../core/error-codes.ts';
import { type Event, isSteer, type NewEvent } from '../core/event.ts';
import { parseExactJson } from '../core/exact-json.ts';
import { Inbox } from '../agent/loop/inbox.ts';
import { findConfirmations, listAnsweredQuestions } from '../agent/loop/confirmation.ts';
import { listSteps, Script, type Step } from '../agent/loop/script.ts';
import { MEMORY_TOPIC } from './memory.ts';
import type { SessionHistory } from '../conversation/sessions/history.ts';
import { freeTopic, QUEUE_TOPIC, sessionTopic } from '../core/names.ts';
import { listInvocationEvents } from '../conversation/sessions/event-store.ts';
import { InvocationChildren, toChildAgent } from './children.ts';
import type { InvocationContext } from './context.ts';
import {
  type ChildOf,
  type EventListener,
  type InvocationEnd,
  type InvocationRequest,
  notifyListener,
  isUncertain,
  toAnswer,
  toQueuedRequest,
  toUserEvents,
  withNotes,
} from './request.ts';
import { InvocationLedger } from './invocation-ledger.ts';
import { acquireOnce, findAgent, newLease, steers, toClaim, withEarlier } from './session-lock.ts';
import { DeltaWriter } from './delta-writer.ts';
import {
  abortIfOverLimit,
  type ClaimedInvocation,
  countUnstoredEvent,
  type Fence,
  fenceIn,
  reserve,
  type RunClaimed,
} from './fence.ts';
import { HandOver } from './hand-over.ts';
import { checkSize, endingEvents, isStopped, toAgentError, turnEnd, withDelta } from './invocation.ts';
import { findLeasedRow } from './queue-store.ts';
import { appendOnce, finishOnce, persistTemporary, newUsage, persist, type Usage } from './persist.ts';
import { TapeRecorder } from './tape.ts';
import { newToolServices } from './tool-services.ts';
import { listTaskAnswers, TASKS_TOPIC } from './waits/task-store.ts';

/**
 * Runs one invocation. A lease on the session is held for the whole run, but no database connection, lock or
 * transaction during a model or tool call. Every failure of the agent is stored as an event and returned as `error`.
 * @throws {NotFoundError} if the application or the session does not exist
 * @throws {BusyError} if the session stays busy
 * @throws {RepeatedInvocationError} if the idempotency key was used before
 * @throws {UnavailableError} if the process is full
 * @throws {StoppedError} if the invocation was stopped while it was queued
 * @throws {HandedOverError} if another process resumes the invocation
 * @throws {QueuedError} if the message waits for the invocation that runs in the session
 * @throws {LeaseLostError} if the session was deleted
 */
export async function invoke(
  context: InvocationContext,
  asked: InvocationRequest,
  listener?: EventListener,
): Promise<InvocationEnd> {
  const agent = findAgent(context, asked);
  return await context.admission.admit(asked.key.userId, async () => {
    const request = await withEarlier(context, asked);
    const outside = AbortSignal.any([context.stopping, ...(request.signal ? [request.signal] : [])]);
    // A message that steers waits in the database, where the invocation that runs finds it.
    const body = steers(context, request) ? toQueuedRequest(request, context.secrets, true) : undefined;
    const lease = newLease(context, request, body);
    const patience = request.inBackground ? AbortSignal.any([outside, context.draining]) : outside;
    const claim = { ...toClaim(context, request, lease, patience), body };
    if (!(await acquireOnce(context, claim))) {
      context.notifications.publish(QUEUE_TOPIC);
      throw new QueuedError(lease, request.idempotency !== undefined);
    }
    request.onAccepted?.();
    return await runClaimed({ context, request, agent, lease, listener }, outside);
  });
}

interface RunningInvocation extends ClaimedInvocation, Pick<Fence, 'signal' | 'endTime'> {
  /** User events that are not stored yet. The list is emptied when they are stored. */
  userEvents: NewEvent[];
  usage: Usage;
  /** Stores streamed text. Absent if the invocation does not stream. */
  deltas?: DeltaWriter | undefined;
  ledger: InvocationLedger;
  /** The steps that an earlier process stored before it died. */
  script?: Script | undefined;
  /** Messages that come while it runs. Absent if it takes none, as a live session, whose loop is another one. */
  inbox: Inbox | undefined;
  handOver: HandOver;
  /** Aborted when a limit forbids further model and tool calls: open calls get a response, then the run ends. */
  limitReached: AbortController;
  observers: readonly InvocationObserver[];
  /** Records the tape for replays. Absent before the loop begins. */
  recorder?: TapeRecorder | undefined;
}

/** {@link runFenced} with ids in the log. @throws {HandedOverError} for a lost run: clients must not think it failed */
export const runClaimed: RunClaimed = (claimed, outside) => {
  const { key, invocationId } = claimed.lease;
  const { appName, userId, sessionId } = key;
  return runWith({ of: { appName, userId }, sessionId, invocationId }, () =>
    runFenced(claimed, outside).catch(async (error: unknown) => {
      throw await toLossError(claimed, error);
    }),
  );
};

/** Error of a run that this process could not end: another process can resume it, unless the session was deleted. */
async function toLossError({ context, request, lease }: ClaimedInvocation, error: unknown): Promise<unknown> {
  const isLost = error instanceof LeaseLostError;
  if (!isLost && !isPassingFailure(error)) return error;
  const isThere = await findLeasedRow(context.database.db, lease).catch((failure: unknown) =>
    isPassingFailure(failure),
  );
  if (!isThere) return error;
  return new HandedOverError(lease, request.idempotency !== undefined, isLost ? 'lost' : 'unavailable');
}

async function runFenced(claimed: ClaimedInvocation, outside: AbortSignal): Promise<InvocationEnd> {
  const { context, lease } = claimed;
  const topic = sessionTopic(lease.key);
  context.notifications.publish(topic);
  const { limits, leaseTimes } = context;
  const { recovery, overrides, isRun } = claimed.request;
  const { timeAtMostMs = Infinity } = overrides;
  const timeoutMs = Math.min(limits.timeoutMs, timeAtMostMs);
  const what = isRun && timeoutMs === timeAtMostMs ? ('run' as const) : ('invocation' as const);
  const times = { what, timeoutMs, spentMs: recovery?.spentMs, renewalMs: leaseTimes.renewalMs };
  const fence = fenceIn(context, lease, times, outside);
  const { earlier, links = [] } = claimed.request;
  const traced = { ...lease, links: earlier ? [earlier, ...links] : links };
  const observers = context.observers.map((observe) => observe(traced));
  // Only the first report counts, because the last one, in `finally`, does not know how the invocation ended.
  const unreported = [...observers];
  const report: InvocationObserver['end'] = (ending) => {
    for (const observer of unreported.splice(0)) observer.end(ending);
  };
  // Requests with `prepared` are live audio sessions and replays, whose streamed text is not stored.
  const isText = claimed.request.streaming && !claimed.request.prepared;
  const deltas = isText ? new DeltaWriter(context, lease, claimed.request.onDelta) : undefined;
  try {
    const userEvents = isUncertain(claimed.request) ? toUserEvents(claimed.request, context.newId) : [];
    const { steps, prepared, isLive, loans } = claimed.request;
    // Calls are limited by run, tokens by invocation.
    const usage = newUsage(
      recovery,
      loans && { ...(recovery ? loans : { llmCalls: 0, toolCalls: 0 }), tokens: loans.tokens },
    );
    const fenced = { ...claimed, ...fence, userEvents, usage, observers, deltas };
    const ledger = new InvocationLedger(context.database.db, lease, context);
    const limitReached = new AbortController();
    const inbox = steps || prepared || isLive ? undefined : new Inbox();
    const running: RunningInvocation = { ...fenced, ledger, limitReached, inbox, handOver: new HandOver(fenced) };
    const ending = await runAndStore(running).catch((error: unknown) => toFailedEnding(running, error));
    report(ending);
    return await finish(running, ending).catch(async (error: unknown) => {
      if (sizeRefusal(error) === undefined) throw error;
      return finish(running, await toFailedEnding(running, error));
    });
  } finally {
    report(undefined);
    void deltas?.end();
    fence.release();
    context.notifications.publish(topic);
    context.notifications.publish(freeTopic(lease.key));
    // Its end may have answered a task of its parent, or be told as a message.
    if (claimed.request.child) for (const told of [TASKS_TOPIC, QUEUE_TOPIC]) context.notifications.publish(told);
  }
}

/** Stores each event before the next step, so a function call is stored before its tool runs. */
async function runAndStore(running: RunningInvocation): Promise<InvocationEnding> {
  const { context, request, agent, lease, signal } = running;
  const { key, invocationId } = lease;
  const { limits } = context;
  const { steps: answer = runAgent, recovery } = request;
  // A resumed run that was stopped must not call a model again.
  if (recovery) signal.throwIfAborted();
  const given = request.prepared ?? request.lent;
  const whole = given ?? (await agent.prepare(request.overrides, signal, key.userId));
  try {
    const prepared = given || !request.child ? whole : findChildAgent(whole, request.child);
    const find = () => context.histories.find(context.database.db, key);
    const history = lease.history ?? (await persist(find, lease.durationMs));
    if (!history) throw new LeaseLostError(`Session ${key.sessionId} was deleted while it was answering.`);
    const before = recovery ? takeScript(running, history, recovery.sequence) : history.events;
    const conversation = [...before, ...running.userEvents];
    // The claim of an invocation that a message woke has taken what waited.
    if (!recovery) noteMessages(running, listLastMessages(before, invocationId));
    const state = withDelta(history.state, request.stateDelta, running.userEvents.length > 0);
    const questionIds = listAnsweredQuestions(conversation);
    const listAnswers = () => listTaskAnswers(context.database.db, key, questionIds);
    const taskAnswers =
      questionIds.length > 0 ? await persist(listAnswers, lease.durationMs) : new Map<string, never>();
    // The tools of confirmed calls run before the first event of this run, so their calls are registered here.
    const confirmed = findConfirmations(conversation, history.runtimeEventIds, taskAnswers);
    for (const { calls } of confirmed) running.handOver.begin(calls);
    // A resumed run records no tape: its first steps ran elsewhere, and a replay would report them as missing. A child is
    // not replayed.
    running.recorder =
      (recovery ?? request.child) ? undefined : new TapeRecorder(conversation.length, state, request.overrides);
    const root = { ...key, sessionId: request.child?.rootSessionId ?? key.sessionId };
    const steps = answer({
      agent: prepared,
      // The tools of a child belong to the conversation of the user, which is that of the root.
      session: root,
      invocationId,
      history: conversation,
      runtimeEventIds: history.runtimeEventIds,
      confirmed,
      state,
      signal: AbortSignal.any([signal, running.limitReached.signal]),
      endTime: running.endTime,
      streaming: request.streaming,
      eventBytes: limits.eventBytes,
      script: running.script,
      inbox: running.inbox,
      ledger: running.ledger,
      // What no other process can go on with has no children that others could.
      children: request.prepared ? undefined : new InvocationChildren(running, prepared, runClaimed),
      isChild: request.child !== undefined,
      transact: running.ledger.transact,
      used: running.usage.used,
      services: newToolServices(context, lease, root),
      log: context.log,
      newId: context.newId,
      observer: observeAll(running.observers),
      onRequest: request.onRequest ?? ((asked, made) => running.recorder?.request(asked, made)),
      onUse: running.usage.add,
      onUnstoredEvent: (event) => countUnstoredEvent(running, event),
      reserve: (modelRequest) => reserve(running, modelRequest),
    });
    try {
      for (;;) {
        running.handOver.checkStep();
        const step = await steps.next();
        if (step.done) return toEnding(running, step.value);
        const messages = await storeEvent(running, withNotes(request, step.value));
        running.inbox?.add(messages);
        abortIfOverLimit(running);
      }
    } finally {
      await steps.return(undefined as never);
    }
  } finally {
    if (!given) await whole.close();
  }
}

/** @throws {AgentError} if the application has no such agent any more */
function findChildAgent(whole: PreparedAgent, { agent: name }: ChildOf): PreparedAgent {
  const agent = findNode(whole, name);
  if (agent) return toChildAgent(whole, agent);
  throw new AgentError('interrupted', `The application has no agent \`${name}\` any more.`);
}

/**
 * Makes the script of a resumed invocation: its stored events after `start` without its prompts. What the user said after
 * the first step of the agent is no prompt, but a message that the invocation took.
 * @returns the events up to `start`, then the prompts
 */
function takeScript(running: RunningInvocation, history: SessionHistory, start: number): Event[] {
  const own = listSteps(history, running.lease.invocationId).filter(({ isOwn, sequence }) => isOwn && sequence > start);
  const first = own.find(({ event }) => event.author !== 'user')?.sequence ?? Infinity;
  const isPrompt = ({ event, sequence }: Step) => event.author === 'user' && (sequence < first || !isSteer(event));
  const prompts = own.filter(isPrompt).map(({ event }) => event);
  // The process may have died after it stored a deferred prompt and before it stored the agent's first event.
  if (prompts.length > 0) running.userEvents = [];
  const before = [...history.events.slice(0, start), ...prompts];
  running.script = new Script(
    own.filter((step) => !isPrompt(step)),
    before,
  );
  return before;
}

/**
 * Stores a complete event and passes it to the listener. A partial event is passed to the listener only.
 * @returns the messages of the user that were stored behind it
 */
async function storeEvent(running: RunningInvocation, event: NewEvent): Promise<Event[]> {
  const { context, lease, listener, usage, handOver, inbox } = running;
  handOver.note(event);
  if (running.script?.has(event)) return running.script.messagesBehind(event);
  // Events that a lost lease or the shutdown caused must not be stored, because another process resumes the run.
  if (running.signal.reason instanceof LeaseLostError) throw running.signal.reason;
  handOver.checkEvent(event);
  if (event.partial === true) {
    running.deltas?.add(event);
    // All partial events of an event share its id internally. ADK clients expect a different id for each.
    const toText = () => JSON.stringify({ ...event, id: context.newId(), timestamp: context.now() });
    listener?.({ text: toText(), event, sequence: undefined });
    return [];
  }
  usage.used.toolCalls += getFunctionCalls(event.content).length;
  checkSize(event, context.limits.eventBytes);
  for (const userEvent of running.userEvents.splice(0)) {
    const stored = await appendOnce(context.database.db, lease, userEvent);
    notifyListener(running.request.onPrompt, stored.events, [userEvent]);
  }
  await persistTemporary(context.database.db, lease, event);
  const calls = running.ledger.take([event.id]);
  const takesMessages = inbox?.isOpenBehind(event) === true ? { keys: await listKeys(running) } : undefined;
  const append = (hasDeltas: boolean) =>
    appendOnce(context.database.db, lease, event, usage, { hasDeltas, calls, takesMessages });
  const stored = await (running.deltas?.replace(event.id, append) ?? append(false));
  if (stored.limited !== undefined) lease.hasBudgets = stored.limited;
  abortIfOverLimit(running, stored.over);
  const taken = stored.events.slice(1);
  const messages = taken.map(({ text }) => parseExactJson(text) as NewEvent);
  noteMessages(running, messages);
  notifyListener(listener, stored.events, [event], running.deltas?.last);
  notifyListener(running.request.onPrompt, taken, messages);
  context.notifications.publish(sessionTopic(lease.key));
  return messages;
}

/** API keys whose waiting messages the run may take. While the file of keys cannot be read, none: they wait. */
const listKeys = ({ context, lease }: RunningInvocation) => context.listInvokers(lease.key).catch(() => []);

/** The messages behind which the invocation has made no step. */
const listLastMessages = (events: readonly Event[], invocationId: string) =>
  events
    .slice(events.findLastIndex((event) => !isSteer(event)) + 1)
    .filter((event) => event.invocationId === invocationId) as NewEvent[];

function noteMessages({ context, observers }: RunningInvocation, messages: readonly NewEvent[]): void {
  if (messages.length > 0) context.metrics?.count('agent_runtime_steers_total', { outcome: 'taken' }, messages.length);
  for (const message of messages) for (const observer of observers) observer.event?.(message);
}

/** The result of an invocation before it is stored, with the last events. */
type InvocationEnding = Pick<RunEnd, 'output' | 'error' | 'paused' | 'value'> & { events: NewEvent[] };

function toEnding(running: RunningInvocation, { lastEvent, ...end }: RunEnd): InvocationEnding {
  const { context, request, handOver, lease } = running;
  handOver.checkEnd(end);
  if (!lastEvent) return { ...end, events: [] };
  checkSize(lastEvent, context.limits.eventBytes);
  // If the run failed or pauses, its last event already marks the end of the turn.
  const isTurn = request.isLive && !end.error && !end.paused;
  return {
    ...end,
    events: [lastEvent, ...(isTurn ? [turnEnd(lease.invocationId, lastEvent.author, context.newId)] : [])],
  };
}

/** Result of an invocation that threw. @throws if nothing can be stored, or another process resumes the invocation */
async function toFailedEnding(
  { context, agent, lease, signal, handOver, ledger }: RunningInvocation,
  error: unknown,
): Promise<InvocationEnding> {
  const cause = await handOver.leaveAfter(error);
  const reason: unknown = signal.aborted ? signal.reason : toAgentError(cause);
  if (reason instanceof LeaseLostError || isPassingFailure(reason)) throw reason;
  const isKnown = reason instanceof AgentError;
  if (!isKnown) context.log.error({ err: reason, invocationId: lease.invocationId }, 'invocation failed');
  const failure = isKnown ? reason : new AgentError('internal', 'The runtime failed while it ran the agent.');
  const { code, message } = failure;
  const stored = await listInvocationEvents(context.database.db, lease.key, lease.invocationId);
  const responses = await ledger.listKept();
  const events = endingEvents(lease.invocationId, agent.name, stored, { code, message }, context.newId, responses);
  return { events, output: '', error: { code, message }, paused: false };
}

/** Stores the last events, the status and the result together; only then reports the invocation's end. */
async function finish(running: RunningInvocation, ending: InvocationEnding): Promise<InvocationEnd> {
  const { context, request, agent, lease, listener, signal, usage } = running;
  if (signal.reason instanceof LeaseLostError) throw signal.reason;
  const { output, error, paused, value } = ending;
  const events = ending.events.flatMap((event) => (running.script?.has(event) ? [] : withNotes(request, event)));
  if (error?.cause !== undefined) {
    context.log.error({ err: error.cause, invocationId: lease.invocationId }, 'the agent failed');
  }
  const end: InvocationEnd = { output, error: error && { code: error.code, message: error.message }, paused, value };
  const userEvents = isRefusal(error?.code) ? [] : running.userEvents;
  const remembers = context.memory !== undefined && agent.remember !== undefined && !request.child;
  await running.deltas?.end();
  const stored = await finishOnce(context.database.db, lease, [...userEvents, ...events], {
    status: error ? (isStopped(error.code) ? error.code : 'failed') : paused ? 'paused' : 'succeeded',
    error: end.error,
    answer: request.answer && toAnswer(request.answer, end),
    counts: usage.takeCounts(),
    uses: usage.take(),
    // A process that died may have left deltas, which are deleted here too.
    hasDeltas: running.deltas !== undefined || request.recovery !== undefined,
    remembers: remembers && !error && !paused,
    keys: paused && running.inbox ? await listKeys(running) : undefined,
    onAwaited: () => context.notifications.publish(QUEUE_TOPIC),
    onEnded: (invocation) => (end.invocation = invocation),
    ...running.ledger.end(events),
    // A run whose user event is not stored cannot be replayed, so its tape (data for a replay) is not stored.
    // Nor is that of a run that pauses for a child, because it goes on as after a crash.
    tape:
      userEvents.length < running.userEvents.length || running.ledger.waitsForChild
        ? undefined
        : running.recorder?.toTape(),
  });
  if (remembers) context.notifications.publish(MEMORY_TOPIC);
  notifyListener(request.onPrompt, stored, userEvents);
  notifyListener(listener, stored.slice(userEvents.length), events);
  return end;
}
