import type { RunEnd } from '../agent/loop/run.ts';
import type { HostedAgent } from '../apps/hosted-agent.ts';
import { sessionTopic } from '../core/topics.ts';
import { runAgent } from '../agent/loop/run-agent.ts';
import type { InvocationTrace } from '../traces/invocation-trace.ts';
import {
  AgentError,
  isPassingFailure,
  isStateTooLarge,
  LeaseLostError,
  NotFoundError,
  STATE_TOO_LARGE,
} from '../core/errors.ts';
import { keepLease, takeSession } from './session-lock.ts';
import { appendOnce, finishOnce, persist } from './persist.ts';
import type { Lease } from './lock-store.ts';
import { functionCallsOf, type JsonObject } from '../core/content.ts';
import { eventBytes, type NewEvent } from '../core/event.ts';
import { findHistory, type StoredEvent } from '../sessions/session-store.ts';
import type { EventListener, InvocationContext, InvocationEnd, InvocationRequest } from './context.ts';
import { endingEvents, isStopped } from './invocation.ts';
import { listInvocationEvents } from './invocation-store.ts';
import { newToolServices } from './tool-services.ts';

/**
 * Runs one invocation from its prompt to its answer. The session is held by a lease meanwhile; no connection, lock or transaction
 * is held across a model or tool call. Every failure of the agent is stored as an event and returned as `error`.
 * @throws {NotFoundError} for an absent application or session. @throws {BusyError} when the session stays busy.
 * @throws {RepeatedInvocationError} when its idempotency key was used before. @throws {UnavailableError} when there is no room.
 * @throws {LeaseLostError} when another process took the session over.
 */
export async function invoke(
  context: InvocationContext,
  request: InvocationRequest,
  listener: EventListener = () => undefined,
): Promise<InvocationEnd> {
  const agent = context.agents.get(request.key.appName);
  if (!agent) throw new NotFoundError(`App not found: ${request.key.appName}`);
  return await context.admission.admit(() => invokeAdmitted(context, request, agent, listener));
}

async function invokeAdmitted(
  context: InvocationContext,
  request: InvocationRequest,
  agent: HostedAgent,
  listener: EventListener,
): Promise<InvocationEnd> {
  const outside = AbortSignal.any([context.stopping, ...(request.signal ? [request.signal] : [])]);
  const lease = await begin(context, request, outside);
  context.notifications.publish(sessionTopic(lease.key));
  const held = keepLease(context, lease, context.leaseTimes);
  const limit = timeLimit(context.limits.timeoutMs);
  try {
    const signal = AbortSignal.any([held.signal, limit.signal, outside]);
    const trace = context.tracing?.startInvocation(lease);
    const running: Running = { context, request, agent, lease, signal, listener, toolCalls: 0, trace };
    const ending = await runAndStore(running).catch((error: unknown) => toFailedEnding(running, error));
    trace?.end(ending.error);
    return await finish(running, ending);
  } finally {
    limit.stop();
    held.stop();
    context.notifications.publish(sessionTopic(lease.key));
  }
}

/** Takes the session and stores the user's event with the claim. */
async function begin(context: InvocationContext, request: InvocationRequest, signal: AbortSignal): Promise<Lease> {
  const { newId, leaseTimes } = context;
  const { key, invocationId, content, stateDelta, customMetadata, idempotency } = request;
  const lease: Lease = { key, invocationId, token: newId(), durationMs: leaseTimes.durationMs, request: idempotency };
  const event: NewEvent = {
    id: newId(),
    invocationId,
    author: 'user',
    ...(content ? { content: { ...content, role: content.role ?? 'user' } } : {}),
    ...(customMetadata ? { customMetadata } : {}),
    actions: {
      stateDelta: stateDelta ?? {},
      artifactDelta: {},
      requestedAuthConfigs: {},
      requestedToolConfirmations: {},
    },
  };
  const claim = {
    lease,
    events: content || stateDelta ? [event] : [],
    createSession: request.createSession,
    doubleTexting: request.doubleTexting ?? context.doubleTexting,
    resumes: request.resumes === true,
    times: leaseTimes,
    queueDepth: context.limits.queueDepth,
    signal,
    onQueued: request.onKnown,
  };
  await persist(() => takeSession(context, claim), BEGIN_PATIENCE_MS);
  request.onKnown?.();
  return lease;
}

/** How long the start of an invocation outlasts an absence of the database: nothing is lost yet, so the caller hears soon. */
const BEGIN_PATIENCE_MS = 1_000;

interface Running {
  context: InvocationContext;
  request: InvocationRequest;
  agent: HostedAgent;
  lease: Lease;
  signal: AbortSignal;
  listener: EventListener;
  toolCalls: number;
  trace: InvocationTrace | undefined;
}

/** Runs the loop and stores each event before the loop goes on, so that a function call is stored before its tools run. */
async function runAndStore(running: Running): Promise<Ending> {
  const { context, request, agent, lease, signal } = running;
  const { key, invocationId } = lease;
  const { db } = context.database;
  const prepared = await agent.prepare(request.overrides, signal);
  try {
    const history = await persist(() => findHistory(db, key), lease.durationMs);
    if (!history) throw new LeaseLostError(`Session ${key.sessionId} was deleted while it was answering.`);
    const limit = new AbortController();
    const steps = runAgent({
      agent: prepared,
      session: key,
      invocationId,
      history: history.events,
      state: withTemporary(history.state, request.stateDelta),
      signal: AbortSignal.any([signal, limit.signal]),
      streaming: request.streaming,
      services: newToolServices(context, lease),
      newId: context.newId,
      observer: running.trace,
    });
    try {
      for (;;) {
        const step = await steps.next();
        if (step.done) return toEnding(step.value, context.limits.eventBytes);
        await take(running, step.value);
        // The loop answers the calls that are open and ends.
        if (running.toolCalls > context.limits.toolCalls) limit.abort(tooManyToolCalls(context.limits.toolCalls));
      }
    } finally {
      await steps.return(undefined as never);
    }
  } finally {
    await prepared.close();
  }
}

const tooManyToolCalls = (limit: number) =>
  new AgentError('tool_calls_limit', `Max number of tool calls limit of \`${limit}\` exceeded`);

/** Stores a complete event and tells it; a piece of a stream is only told. */
async function take(running: Running, event: NewEvent): Promise<void> {
  const { context, lease, listener } = running;
  if (event.partial === true) {
    const text = JSON.stringify({ ...event, timestamp: context.now() });
    return listener({ text, event, sequence: undefined });
  }
  running.toolCalls += functionCallsOf(event.content).length;
  checkSize(event, context.limits.eventBytes);
  tell(await appendOnce(context.database.db, lease, event), [event], listener);
  context.notifications.publish(sessionTopic(lease.key));
}

function tell(stored: StoredEvent[], events: NewEvent[], listener: EventListener): void {
  for (const [position, { sequence, text }] of stored.entries()) {
    const event = events[position];
    if (event) listener({ text, event, sequence });
  }
}

function checkSize(event: NewEvent, most: number): void {
  const size = eventBytes(event);
  if (size > most)
    throw new AgentError('event_too_large', `An event of ${size} bytes is over the limit of ${most} bytes.`);
}

/** The state with the `temp:` keys of the request, which this invocation sees and nobody stores. */
function withTemporary(state: JsonObject, delta: JsonObject | undefined): JsonObject {
  const temporary = Object.entries(delta ?? {}).filter(([name]) => name.startsWith('temp:'));
  return { ...state, ...Object.fromEntries(temporary) };
}

/** What is left to store of an invocation: how it ended, and the events that say so. */
type Ending = Omit<RunEnd, 'lastEvent'> & { events: NewEvent[] };

function toEnding({ lastEvent, ...end }: RunEnd, mostBytes: number): Ending {
  if (lastEvent) checkSize(lastEvent, mostBytes);
  return { ...end, events: lastEvent ? [lastEvent] : [] };
}

/** A state over its limit is the agent's failure, not the runtime's. */
const toAgentError = (error: unknown) =>
  isStateTooLarge(error) ? new AgentError('state_too_large', STATE_TOO_LARGE, { cause: error }) : error;

/** The ending of an invocation that threw: what the agent could not do is its answer; a lost lease leaves nothing to write. */
async function toFailedEnding({ context, agent, lease, signal }: Running, error: unknown): Promise<Ending> {
  const reason: unknown = signal.aborted ? signal.reason : toAgentError(error);
  if (reason instanceof LeaseLostError || isPassingFailure(reason)) throw reason;
  const known = reason instanceof AgentError;
  if (!known) context.log.error({ err: reason, invocationId: lease.invocationId }, 'invocation failed');
  const { code, message } = known
    ? reason
    : { code: 'internal', message: 'The runtime failed while it ran the agent.' };
  const stored = await listInvocationEvents(context.database.db, lease.key, lease.invocationId);
  const events = endingEvents(lease.invocationId, agent.name, stored, { code, message }, context.newId);
  return { events, output: '', error: { code, message }, paused: false, llmCalls: 0, promptTokens: 0, outputTokens: 0 };
}

/** Stores the last events, the status and the answer together; only then is the end told. */
async function finish(
  { context, request, lease, listener, signal, toolCalls }: Running,
  ending: Ending,
): Promise<InvocationEnd> {
  if (signal.reason instanceof LeaseLostError) throw signal.reason;
  const { events, output, error, paused, llmCalls, promptTokens, outputTokens } = ending;
  if (error?.cause !== undefined) {
    context.log.error({ err: error.cause, invocationId: lease.invocationId }, 'the agent failed');
  }
  const end: InvocationEnd = { output, error: error && { code: error.code, message: error.message }, paused };
  const stored = await finishOnce(context.database.db, lease, events, {
    status: error ? (isStopped(error.code) ? error.code : 'failed') : paused ? 'paused' : 'succeeded',
    error: end.error,
    answer: request.toAnswer?.(end),
    llmCalls,
    toolCalls,
    promptTokens,
    outputTokens,
  });
  tell(stored, events, listener);
  return end;
}

/** A signal that aborts when the invocation has taken too long. */
function timeLimit(timeoutMs: number): { signal: AbortSignal; stop(): void } {
  const limit = new AbortController();
  const message = `The invocation took longer than its limit of ${timeoutMs / 1000} s.`;
  const timer = setTimeout(() => limit.abort(new AgentError('time_limit', message)), timeoutMs);
  return { signal: limit.signal, stop: () => clearTimeout(timer) };
}
