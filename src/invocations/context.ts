import type { HostedAgent } from '../conversation/apps/hosted-agent.ts';
import type { IdempotentRequest } from '../conversation/idempotency/operations.ts';
import type { AgentOverrides, PreparedAgent } from '../agent/definition/agent.ts';
import type { InvocationObserver, RunEnd, RunInput } from '../agent/loop/run.ts';
import type { ContentStore } from '../conversation/artifacts/content-store.ts';
import type { DatabasePool } from '../platform/db/database.ts';
import type { ToolDatabase } from '../platform/db/tool-database.ts';
import type { Notifications } from '../platform/db/notifications.ts';
import type { Tracing } from '../observability/traces/tracing.ts';
import type { LeaseTimes } from './session-lock.ts';
import type { Log } from '../platform/log.ts';
import type { Metrics } from '../platform/metrics.ts';
import type { Slots } from '../platform/http/limits/slots.ts';
import type { Content, JsonObject } from '../core/content.ts';
import type { Event, NewEvent } from '../core/event.ts';
import type { SessionKey } from '../core/session.ts';
import type { StoredEvent } from '../conversation/sessions/append-store.ts';
import type { HistoryCache } from '../conversation/sessions/history-cache.ts';
import type { Admission } from './admission.ts';
import type { BusyPolicy, InvocationError } from './invocation.ts';
import type { SessionFeeds } from './session-feed.ts';
import type { Secrets } from '../platform/secrets.ts';
import type { AnswerKind } from './stored-request.ts';
import type { WaitQueue } from './wait-queue.ts';

export interface InvocationLimits {
  /** Time limit in milliseconds; the wait for a busy session does not count. */
  timeoutMs: number;
  toolCalls: number;
  /** Maximum size of an event, in bytes of its JSON. */
  eventBytes: number;
  /** Maximum number of requests that wait for one session. */
  queueDepth: number;
  /** Maximum number of background invocations that this process runs at once; the rest of its room is for requests. */
  backgroundRuns: number;
  /** Maximum number of processes that begin one invocation before it counts as a poison job; 1 disables resuming. */
  attempts: number;
}

/** The dependencies and settings that invocations of one process share. */
export interface InvocationContext {
  database: DatabasePool;
  histories: HistoryCache;
  /** The sessions that open streams of this process follow. */
  feeds: SessionFeeds;
  /** The requests of this process that queue for a busy session. */
  waitQueue: WaitQueue;
  contentStore: ContentStore;
  notifications: Notifications;
  admission: Admission;
  /** Limits how many replays run at once. */
  replays: Slots;
  log: Log;
  /** Records agent activity, prompts included, for the development UI. Absent outside that mode. */
  tracing?: Tracing | undefined;
  /** Creates the observer of one invocation, for traces and metrics. */
  observe?: ((invocation: Pick<InvocationRequest, 'key' | 'invocationId'>) => InvocationObserver) | undefined;
  metrics?: Metrics | undefined;
  /** The database role of transactional tools. Absent: the service has no such tools. */
  tools?: ToolDatabase | undefined;
  /** Encrypts credentials in stored requests. */
  secrets: Secrets;
  /** False for an API key that is revoked, expired or unknown. */
  isValidKey: (id: string) => Promise<boolean>;
  /** Agents by application name. */
  agents: ReadonlyMap<string, HostedAgent>;
  newId: () => string;
  /** Unix time in seconds, for partial events only. Stored events get the database's clock. */
  now: () => number;
  leaseTimes: LeaseTimes;
  limits: InvocationLimits;
  /** Policy for a busy session if the request names none. */
  busyPolicy: BusyPolicy;
  /** If true, an invocation is cancelled when the client that waits for its answer disconnects. */
  cancelOnDisconnect: boolean;
  /** Aborted when shutdown begins. Open streams end then, so that clients reconnect to another process. */
  draining: AbortSignal;
  /** Aborted when the grace period of shutdown is over. Running invocations are handed over, or end as interrupted. */
  stopping: AbortSignal;
}

export const newInvocationId = ({ newId }: Pick<InvocationContext, 'newId'>): string => `e-${newId()}`;

export interface InvocationRequest {
  key: SessionKey;
  /** A new id, or the id of an ended invocation to resume (`resumes`). */
  invocationId: string;
  resumes?: boolean;
  /** The user's message; `undefined` only if the request resumes an invocation. */
  content: Content | undefined;
  /** Merged into the session state with the user's event. */
  stateDelta?: JsonObject | undefined;
  customMetadata?: JsonObject | undefined;
  overrides: AgentOverrides;
  /** True: create the session if it is absent. `new`: fail if it exists. */
  createSession: boolean | 'new';
  /** If true, the listener gets partial events too. */
  streaming: boolean;
  /** True for a text turn of a live session. Its events name no node, and a last event reports the end of the turn. */
  isLive?: boolean | undefined;
  busyPolicy?: BusyPolicy | undefined;
  /** The `Idempotency-Key` of the request and the hash of its content. */
  idempotency?: IdempotentRequest | undefined;
  /** Address of a registered webhook of the user. It is sent the result. */
  webhookUrl?: string | undefined;
  /** Form of the answer to store for retries. Absent: a retry's answer is built from the stored events. */
  answer?: AnswerKind | undefined;
  /** Set after the process of the invocation died: the last sequence when it began, and what it has used since. */
  recovery?: { sequence: number; spentMs: number; llmCalls: number; toolCalls: number } | undefined;
  /**
   * True if no client waits for the answer: a process that shuts down hands the invocation over before its next step.
   */
  inBackground?: boolean;
  /** If true, an exhausted budget pauses the invocation until somebody raises the budget, instead of ending it. */
  waitsForBudget?: boolean | undefined;
  /** Aborts the invocation, for instance when its client has left. */
  signal?: AbortSignal | undefined;
  /** Called with each piece of streamed text after it was stored. */
  onDelta?: EventListener;
  /** Called when the invocation has its database row, that is, when it is queued or has begun. */
  onAccepted?: () => void;
  /** An agent that the caller prepared and will close. Absent: the invocation prepares one and closes it. */
  prepared?: PreparedAgent;
  /** The loop that produces the events. Default: models and tools, `runAgent`. */
  steps?: (input: RunInput) => AsyncGenerator<NewEvent, RunEnd, void>;
}

export interface InvocationEnd {
  output: string;
  error: InvocationError | undefined;
  paused?: boolean;
  /** The structured answer, checked against the output schema. */
  value?: unknown;
}

/** An event for a client, with its JSON text. */
export interface EventFrame {
  text: string;
  event: Event;
  /**
   * Sequence of a stored event; for a stored delta that of the event before it; `undefined` for an unstored partial
   * event.
   */
  sequence: number | undefined;
  /** Number of the last delta, up to this frame, whose complete event is not stored yet. */
  delta?: number | undefined;
}

/** Called with each event of the agent: complete events after they were stored, partial events at once. */
export type EventListener = (frame: EventFrame) => void;

/** Passes stored events to a listener. `delta` has the meaning of {@link EventFrame}'s. */
export function notifyListener(
  listener: EventListener,
  stored: StoredEvent[],
  events: NewEvent[],
  delta?: number,
): void {
  for (const [position, { sequence, text }] of stored.entries()) {
    const event = events[position];
    if (event) listener({ text, event, sequence, delta });
  }
}
