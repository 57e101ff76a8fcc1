import type { AgentOverrides, PreparedAgent, RunEnd } from '../agent/agent.ts';
import { runAgent } from '../agent/run-agent.ts';
import type { DatabasePool } from '../db/database.ts';
import { AgentError, LeaseLostError, NotFoundError } from '../errors.ts';
import type { Log } from '../log.ts';
import type { Content, JsonObject } from '../sessions/content.ts';
import type { Event, NewEvent } from '../sessions/event.ts';
import type { SessionKey } from '../sessions/session.ts';
import { appendEvents, findHistory } from '../sessions/store.ts';
import { endingEvents, type InvocationError, type InvocationStatus } from './invocation.ts';
import { keepLease, type LeaseTimes, takeSession } from './lease.ts';
import { finishInvocation, type Lease, listInvocationEvents } from './store.ts';
import { newToolServices } from './tool-services.ts';

/** An application that this process serves. */
export interface HostedAgent {
  /** Author of events that the runtime itself writes for it. */
  name: string;
  /**
   * Makes it ready for one invocation.
   * @throws {AgentError} for an unknown tool or skill, or an MCP server that does not answer.
   */
  prepare(overrides: AgentOverrides, signal: AbortSignal): Promise<PreparedAgent>;
}

/** What invocations need of the process. */
export interface InvocationContext {
  database: DatabasePool;
  log: Log;
  /** By application name. */
  agents: ReadonlyMap<string, HostedAgent>;
  newId: () => string;
  /** Unix time in seconds, for pieces of a stream only; what is stored gets the database's clock. */
  now: () => number;
  leaseTimes: LeaseTimes;
  /** Longest time of one invocation. */
  timeoutMs: number;
  /** Aborted when the process has to stop: what still runs ends as interrupted. */
  stopping: AbortSignal;
}

/** One prompt and how to answer it. */
export interface InvocationRequest {
  key: SessionKey;
  /** What the user says; `undefined` only to resume. */
  content: Content | undefined;
  /** Merged into the state with the user's event. */
  stateDelta?: JsonObject | undefined;
  overrides: AgentOverrides;
  /** Create the session where it is absent. */
  createSession: boolean;
  /** True: partial events reach the listener too. */
  streaming: boolean;
  /** The answer to keep with the invocation, made from its end. */
  toAnswer: (end: InvocationEnd) => string;
}

/** How an invocation ended. */
export interface InvocationEnd {
  invocationId: string;
  output: string;
  error: InvocationError | undefined;
}

/** Hears each event as JSON text: stored ones after they were stored, partial ones as they come. */
export type EventListener = (text: string, event: Event) => void;

/**
 * Runs one invocation from its prompt to its answer. The session is held by a lease meanwhile; no connection, lock or transaction
 * is held across a model or tool call. Every failure of the agent is stored as an event and returned as `error`.
 * @throws {NotFoundError} for an absent application or session. @throws {BusyError} when the session stays busy.
 * @throws {LeaseLostError} when another process took the session over.
 */
export async function invoke(
  context: InvocationContext,
  request: InvocationRequest,
  listener: EventListener = () => undefined,
): Promise<InvocationEnd> {
  const agent = context.agents.get(request.key.appName);
  if (!agent) throw new NotFoundError(`App not found: ${request.key.appName}`);
  const lease = await begin(context, request);
  const held = keepLease(context.database, lease, context.leaseTimes);
  const limit = timeLimit(context.timeoutMs);
  try {
    const signal = AbortSignal.any([held.signal, limit.signal, context.stopping]);
    const ending = await runAndStore({ context, request, agent, lease, signal, listener }).catch((error: unknown) =>
      toFailedEnding(context, agent, lease, error),
    );
    return await finish(context, request, lease, ending, listener);
  } finally {
    limit.stop();
    held.stop();
  }
}

/** Claims the session and stores the user's event with the claim. */
async function begin(context: InvocationContext, request: InvocationRequest): Promise<Lease> {
  const { newId, leaseTimes } = context;
  const invocationId = `e-${newId()}`;
  const lease: Lease = { key: request.key, invocationId, token: newId(), durationMs: leaseTimes.durationMs };
  const { content, stateDelta } = request;
  const event: NewEvent = {
    id: newId(),
    invocationId,
    author: 'user',
    ...(content ? { content: { role: 'user', ...content } } : {}),
    actions: {
      stateDelta: stateDelta ?? {},
      artifactDelta: {},
      requestedAuthConfigs: {},
      requestedToolConfirmations: {},
    },
  };
  await takeSession(context.database, {
    lease,
    events: [event],
    createSession: request.createSession,
    waitMs: leaseTimes.waitMs,
    newId,
  });
  return lease;
}

interface Running {
  context: InvocationContext;
  request: InvocationRequest;
  agent: HostedAgent;
  lease: Lease;
  signal: AbortSignal;
  listener: EventListener;
}

/** Runs the loop and stores each event before the loop goes on, so that a function call is stored before its tools run. */
async function runAndStore({ context, request, agent, lease, signal, listener }: Running): Promise<Ending> {
  const { key, invocationId, token } = lease;
  const prepared = await agent.prepare(request.overrides, signal);
  try {
    const history = await findHistory(context.database.db, key);
    if (!history) throw new LeaseLostError(`Session ${key.sessionId} was deleted while it was answering.`);
    const run = runAgent({
      agent: prepared,
      session: key,
      invocationId,
      history: history.events,
      state: withTemporary(history.state, request.stateDelta),
      signal,
      streaming: request.streaming,
      services: newToolServices(context.database.db, key),
      newId: context.newId,
    });
    for (;;) {
      const step = await run.next();
      if (step.done) return toEnding(step.value);
      if (step.value.partial === true)
        listener(JSON.stringify({ ...step.value, timestamp: context.now() }), step.value);
      else
        for (const { text } of await appendEvents(context.database.db, key, [step.value], token))
          listener(text, step.value);
    }
  } finally {
    await prepared.close();
  }
}

/** The state with the `temp:` keys of the request, which this invocation sees and nobody stores. */
function withTemporary(state: JsonObject, delta: JsonObject | undefined): JsonObject {
  const temporary = Object.entries(delta ?? {}).filter(([name]) => name.startsWith('temp:'));
  return { ...state, ...Object.fromEntries(temporary) };
}

/** What is left to store of an invocation: how it ended, and the events that say so. */
type Ending = Omit<RunEnd, 'lastEvent'> & { events: NewEvent[] };

const toEnding = ({ lastEvent, ...end }: RunEnd): Ending => ({ ...end, events: lastEvent ? [lastEvent] : [] });

/** The ending of an invocation that threw: what the agent could not do is its answer; a lost lease leaves nothing to write. */
async function toFailedEnding(
  context: InvocationContext,
  agent: HostedAgent,
  lease: Lease,
  error: unknown,
): Promise<Ending> {
  if (error instanceof LeaseLostError) throw error;
  const known = error instanceof AgentError;
  if (!known) context.log.error({ err: error, invocationId: lease.invocationId }, 'invocation failed');
  const { code, message } = known ? error : { code: 'internal', message: 'The runtime failed while it ran the agent.' };
  const stored = await listInvocationEvents(context.database.db, lease.key, lease.invocationId);
  const events = endingEvents(lease.invocationId, agent.name, stored, { code, message }, context.newId);
  return { events, output: '', error: { code, message }, paused: false, llmCalls: 0, promptTokens: 0, outputTokens: 0 };
}

/** Stores the last events, the status and the answer together; only then is the end told. */
async function finish(
  context: InvocationContext,
  request: InvocationRequest,
  lease: Lease,
  ending: Ending,
  listener: EventListener,
): Promise<InvocationEnd> {
  const { events, output, error, llmCalls, promptTokens, outputTokens } = ending;
  const end: InvocationEnd = { invocationId: lease.invocationId, output, error };
  const texts = await finishInvocation(context.database.db, lease, events, {
    status: toStatus(ending),
    error,
    answer: request.toAnswer(end),
    llmCalls,
    promptTokens,
    outputTokens,
  });
  for (const [position, event] of events.entries()) listener(texts[position] ?? '', event);
  return end;
}

function toStatus({ error, paused }: Ending): InvocationStatus {
  if (error) return error.code === 'interrupted' || error.code === 'cancelled' ? error.code : 'failed';
  return paused ? 'paused' : 'succeeded';
}

/** A signal that aborts when the invocation has taken too long. */
function timeLimit(timeoutMs: number): { signal: AbortSignal; stop(): void } {
  const limit = new AbortController();
  const message = `The invocation took longer than its limit of ${timeoutMs / 1000} s.`;
  const timer = setTimeout(() => limit.abort(new AgentError('time_limit', message)), timeoutMs);
  return { signal: limit.signal, stop: () => clearTimeout(timer) };
}
