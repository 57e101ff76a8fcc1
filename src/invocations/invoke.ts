import { runWith } from '../platform/context.ts';
import { type InvocationObserver, observeAll, type RunEnd } from '../agent/loop/run.ts';
import { runAgent } from '../agent/loop/run-agent.ts';
import type { HostedAgent } from '../conversation/apps/hosted-agent.ts';
import { getFunctionCalls } from '../core/content.ts';
import {
  AgentError,
  isPassingFailure,
  LeaseLostError,
  NotFoundError,
  sizeRefusal,
  stateRefusal,
} from '../core/errors.ts';
import { isRefusal } from '../core/error-codes.ts';
import { budgetText } from '../conversation/budgets/budget.ts';
import type { NewEvent } from '../core/event.ts';
import { freeTopic, sessionTopic } from '../core/names.ts';
import { listInvocationEvents } from '../conversation/sessions/event-store.ts';
import { checkEventSize } from '../conversation/sessions/session-context.ts';
import {
  type EventListener,
  type InvocationContext,
  type InvocationEnd,
  type InvocationRequest,
  notifyListener,
} from './context.ts';
import { fenceIn } from './fence.ts';
import { checkSize, claimedUserEvents, deferredUserEvents, endingEvents, isStopped, withDelta } from './invocation.ts';
import type { Lease } from './lock-store.ts';
import { appendOnce, finishOnce, newUsage, persist, type Usage } from './persist.ts';
import { acquireSession, type ClaimRequest } from './session-lock.ts';
import { TapeRecorder } from './tape.ts';
import { newToolServices } from './tool-services.ts';

/** How long the start of an invocation outlasts an absence of the database: the caller may still retry. */
export const CLAIM_PATIENCE_MS = 1_000;

/**
 * Runs one invocation from its prompt to its answer. A lease holds the session meanwhile; no connection, lock or
 * transaction is held across a model or tool call. Every failure of the agent is stored as an event and returned as
 * `error`.
 * @throws {NotFoundError} for an absent application or session. @throws {BusyError} when the session stays busy.
 * @throws {RepeatedInvocationError} when its idempotency key was used before. @throws {UnavailableError} when there
 * is no room.
 * @throws {StoppedError} when it was stopped while it waited. @throws {LeaseLostError} when another process took
 * the session over.
 */
export async function invoke(
  context: InvocationContext,
  request: InvocationRequest,
  listener: EventListener = () => undefined,
): Promise<InvocationEnd> {
  const agent = findAgent(context, request);
  return await context.admission.admit(request.key.userId, async () => {
    const outside = AbortSignal.any([context.stopping, ...(request.signal ? [request.signal] : [])]);
    const lease = newLease(context, request);
    const claim = toClaim(context, request, lease, outside);
    await persist(() => acquireSession(context, claim), CLAIM_PATIENCE_MS);
    request.onKnown?.();
    return await runClaimed({ context, request, agent, lease, listener }, outside);
  });
}

/** Returns the agent that answers a request. @throws {NotFoundError} where this process lacks the application. */
export function findAgent(
  { agents }: Pick<InvocationContext, 'agents'>,
  { key }: Pick<InvocationRequest, 'key'>,
): HostedAgent {
  const agent = agents.get(key.appName);
  if (!agent) throw new NotFoundError(`App not found: ${key.appName}`);
  return agent;
}

type LeasedMembers = 'key' | 'invocationId' | 'idempotency' | 'webhookUrl';

/** Returns a lease with a fresh token, which is not granted yet. */
export const newLease = (
  { newId, leaseTimes }: Pick<InvocationContext, 'newId' | 'leaseTimes'>,
  { key, invocationId, idempotency, webhookUrl }: Pick<InvocationRequest, LeasedMembers>,
): Lease => ({
  key,
  invocationId,
  token: newId(),
  durationMs: leaseTimes.durationMs,
  request: idempotency,
  webhookUrl,
});

/**
 * Returns the claim of a request: the user event is stored with it, unless the request may still be refused.
 * @throws {TooLargeError} for a user event of more bytes than allowed
 */
export function toClaim(
  context: Pick<InvocationContext, 'busyPolicy' | 'leaseTimes' | 'limits' | 'newId'>,
  request: InvocationRequest,
  lease: Lease,
  signal: AbortSignal,
): ClaimRequest {
  const { busyPolicy, leaseTimes: times, limits, newId } = context;
  const events = claimedUserEvents(request, newId);
  for (const event of [...events, ...deferredUserEvents(request, newId)]) checkEventSize(event, limits.eventBytes);
  return {
    lease,
    events,
    createSession: request.createSession,
    busyPolicy: request.busyPolicy ?? busyPolicy,
    resumes: request.resumes === true,
    times,
    queueDepth: limits.queueDepth,
    signal,
    onQueued: request.onKnown,
  };
}

/** An invocation that holds its session. */
interface ClaimedInvocation {
  context: InvocationContext;
  request: InvocationRequest;
  agent: HostedAgent;
  lease: Lease;
  listener: EventListener;
}

/** A claimed invocation between its limits. */
interface RunningInvocation extends ClaimedInvocation {
  /** Signal of its fence. */
  signal: AbortSignal;
  /** User events that are not stored yet; emptied when they are. */
  userEvents: NewEvent[];
  /** Tool calls so far. */
  toolCalls: number;
  /** Use of its model calls. */
  usage: Usage;
  /** Aborted where it may not go on to call models or tools: what is open is answered, and it ends. */
  limitReached: AbortController;
  observer: InvocationObserver | undefined;
  /** From the moment on that the loop begins. */
  recorder?: TapeRecorder;
}

/** Runs {@link runFenced}; the log names session and invocation meanwhile. */
export const runClaimed: typeof runFenced = (claimed, outside) =>
  runWith({ sessionId: claimed.lease.key.sessionId, invocationId: claimed.lease.invocationId }, () =>
    runFenced(claimed, outside),
  );

/** Runs the agent inside a fence, stores how that ended and releases the session. */
async function runFenced(claimed: ClaimedInvocation, outside: AbortSignal): Promise<InvocationEnd> {
  const { context, lease } = claimed;
  const publish = () => context.notifications.publish(sessionTopic(lease.key));
  publish();
  const times = { timeoutMs: context.limits.timeoutMs, renewalMs: context.leaseTimes.renewalMs };
  const fence = fenceIn(context, lease, times, outside);
  const observer = context.observe?.(lease);
  try {
    const userEvents = deferredUserEvents(claimed.request, context.newId);
    const limits = { toolCalls: 0, usage: newUsage(), limitReached: new AbortController() };
    const running: RunningInvocation = { ...claimed, signal: fence.signal, userEvents, ...limits, observer };
    const ending = await runAndStore(running).catch((error: unknown) => toFailedEnding(running, error));
    observer?.end(ending);
    return await finish(running, ending);
  } finally {
    observer?.end(undefined);
    fence.release();
    publish();
    context.notifications.publish(freeTopic(lease.key));
  }
}

/** Runs the loop and stores each event before it goes on: a function call is stored before its tools run. */
async function runAndStore(running: RunningInvocation): Promise<InvocationEnding> {
  const { context, request, agent, lease, signal } = running;
  const { key, invocationId } = lease;
  const { limits } = context;
  const { steps: answer = runAgent } = request;
  const prepared = request.prepared ?? (await agent.prepare(request.overrides, signal, key.userId));
  try {
    const history = await persist(() => context.histories.find(context.database.db, key), lease.durationMs);
    if (!history) throw new LeaseLostError(`Session ${key.sessionId} was deleted while it was answering.`);
    const known = [...history.events, ...running.userEvents];
    const state = withDelta(history.state, request.stateDelta, running.userEvents.length > 0);
    running.recorder = new TapeRecorder(known.length, state, request.overrides);
    const steps = answer({
      agent: prepared,
      session: key,
      invocationId,
      history: known,
      runtimeEventIds: history.runtimeEventIds,
      state,
      signal: AbortSignal.any([signal, running.limitReached.signal]),
      streaming: request.streaming,
      eventBytes: limits.eventBytes,
      services: newToolServices(context, lease),
      log: context.log,
      newId: context.newId,
      observer: observeAll([running.observer, running.recorder]),
      onUse: (use) => running.usage.add(use),
    });
    try {
      for (;;) {
        const step = await steps.next();
        if (step.done) return toEnding(step.value, limits.eventBytes);
        await storeEvent(running, withNotes(request, step.value));
        // The loop answers the calls that are open and ends.
        if (running.toolCalls > limits.toolCalls) running.limitReached.abort(toolCallsLimitError(limits.toolCalls));
      }
    } finally {
      await steps.return(undefined as never);
    }
  } finally {
    if (!request.prepared) await prepared.close();
  }
}

/** Returns the error that ends an invocation with too many tool calls. */
export const toolCallsLimitError = (limit: number) =>
  new AgentError('tool_calls_limit', `Max number of tool calls limit of \`${limit}\` exceeded`);

/** Returns an event of the agent with the notes of the request: as in ADK all events but the user's have them. */
const withNotes = ({ customMetadata }: InvocationRequest, event: NewEvent): NewEvent =>
  customMetadata ? { ...event, customMetadata: { ...customMetadata, ...event.customMetadata } } : event;

/** Stores a complete event and notifies the listener; a partial event only goes to the listener. */
async function storeEvent(running: RunningInvocation, event: NewEvent): Promise<void> {
  const { context, lease, listener } = running;
  if (event.partial === true) {
    const text = JSON.stringify({ ...event, timestamp: context.now() });
    return listener({ text, event, sequence: undefined });
  }
  running.toolCalls += getFunctionCalls(event.content).length;
  checkSize(event, context.limits.eventBytes);
  for (const userEvent of running.userEvents.splice(0)) await appendOnce(context.database.db, lease, userEvent);
  const stored = await appendOnce(context.database.db, lease, event, running.usage.take());
  const over = stored[0]?.over;
  if (over) running.limitReached.abort(new AgentError('budget_exceeded', budgetText(over)));
  notifyListener(listener, stored, [event]);
  context.notifications.publish(sessionTopic(lease.key));
}

/** The part of an invocation that is not stored yet: how it ended, and its last events. */
type InvocationEnding = Omit<RunEnd, 'lastEvent'> & { events: NewEvent[] };

function toEnding({ lastEvent, ...end }: RunEnd, maxEventBytes: number): InvocationEnding {
  if (lastEvent) checkSize(lastEvent, maxEventBytes);
  return { ...end, events: lastEvent ? [lastEvent] : [] };
}

/** Returns the agent's failure for a state, a session or a user over its limit, and any other error as it is. */
export function toAgentError(error: unknown): unknown {
  const refusal = stateRefusal(error);
  if (refusal !== undefined) return new AgentError('state_too_large', refusal, { cause: error });
  const full = sizeRefusal(error);
  return full ? new AgentError(full.code, full.message, { cause: error }) : error;
}

/** Returns the ending of an invocation that threw. @throws where nothing can be written any more. */
async function toFailedEnding(
  { context, agent, lease, signal }: RunningInvocation,
  error: unknown,
): Promise<InvocationEnding> {
  const reason: unknown = signal.aborted ? signal.reason : toAgentError(error);
  if (reason instanceof LeaseLostError || isPassingFailure(reason)) throw reason;
  const isKnown = reason instanceof AgentError;
  if (!isKnown) context.log.error({ err: reason, invocationId: lease.invocationId }, 'invocation failed');
  const { code, message } = isKnown
    ? reason
    : { code: 'internal' as const, message: 'The runtime failed while it ran the agent.' };
  const stored = await listInvocationEvents(context.database.db, lease.key, lease.invocationId);
  const events = endingEvents(lease.invocationId, agent.name, stored, { code, message }, context.newId);
  return { events, output: '', error: { code, message }, paused: false, llmCalls: 0, promptTokens: 0, outputTokens: 0 };
}

/** Stores the last events, the status and the answer together; only then is the end reported. */
async function finish(running: RunningInvocation, ending: InvocationEnding): Promise<InvocationEnd> {
  const { context, request, lease, listener, signal, toolCalls } = running;
  if (signal.reason instanceof LeaseLostError) throw signal.reason;
  const { output, error, paused, llmCalls, promptTokens, outputTokens } = ending;
  const events = ending.events.map((event) => withNotes(request, event));
  if (error?.cause !== undefined) {
    context.log.error({ err: error.cause, invocationId: lease.invocationId }, 'the agent failed');
  }
  const end: InvocationEnd = { output, error: error && { code: error.code, message: error.message }, paused };
  const userEvents = isRefusal(error?.code) ? [] : running.userEvents;
  const stored = await finishOnce(context.database.db, lease, [...userEvents, ...events], {
    status: error ? (isStopped(error.code) ? error.code : 'failed') : paused ? 'paused' : 'succeeded',
    error: end.error,
    answer: request.toAnswer?.(end),
    llmCalls,
    toolCalls,
    promptTokens,
    outputTokens,
    uses: running.usage.take(),
    // Without its user event there is nothing to replay it from.
    tape: userEvents.length < running.userEvents.length ? undefined : running.recorder?.toTape(),
  });
  notifyListener(listener, stored.slice(userEvents.length), events);
  return end;
}
