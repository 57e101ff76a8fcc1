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
import type { Slots } from '../platform/http/limits/caller-limits.ts';
import type { Content, JsonObject } from '../core/content.ts';
import type { Event, NewEvent } from '../core/event.ts';
import type { SessionKey } from '../core/session.ts';
import type { StoredEvent } from '../conversation/sessions/append-store.ts';
import type { HistoryCache } from '../conversation/sessions/history-cache.ts';
import type { Admission } from './admission.ts';
import type { BusyPolicy, Invocation, InvocationError } from './invocation.ts';
import type { JobStep } from './lock-store.ts';
import type { SessionFeeds } from './session-feed.ts';
import type { Secrets } from '../platform/secrets.ts';
import type { AnswerKind } from './stored-request.ts';
import type { WaitQueue } from './wait-queue.ts';

export interface InvocationLimits {
  /** Time limit of an invocation in milliseconds. The time that it waits for a busy session does not count. */
  timeoutMs: number;
  toolCalls: number;
  /** Maximum size of an event, in bytes of its JSON. */
  eventBytes: number;
  /** Maximum number of requests that wait for one session. */
  queueDepth: number;
  /** Maximum background invocations of this process at once; the rest of its capacity is reserved for HTTP requests. */
  backgroundRuns: number;
  /** Maximum runs of cronjobs that this process begins at once; 0: none. */
  runs: number;
  /** Maximum runs of cronjobs of one user at once, in all processes. */
  runsPerUser: number;
  /** How many processes may begin one invocation before it counts as a poison job; 1 disables resuming. */
  attempts: number;
}

/** The dependencies and settings that invocations of one process share. */
export interface InvocationContext {
  database: DatabasePool;
  histories: HistoryCache;
  /** The sessions whose events this process streams to clients. */
  feeds: SessionFeeds;
  /** The requests of this process that are queued for a busy session. */
  waitQueue: WaitQueue;
  contentStore: ContentStore;
  notifications: Notifications;
  admission: Admission;
  /** Limits the number of replays that run at once. */
  replays: Slots;
  log: Log;
  /** Records agent activity, prompts included, for the development UI. Absent if the development UI is off. */
  tracing?: Tracing | undefined;
  /** Each creates an observer of one invocation, such as one that records its trace. */
  observers: ((invocation: Pick<InvocationRequest, 'key' | 'invocationId'>) => InvocationObserver)[];
  metrics?: Metrics | undefined;
  /** Database connections under the role of transactional tools. Absent if the service has no transactional tools. */
  tools?: ToolDatabase | undefined;
  /** Encrypts credentials in stored requests. */
  secrets: Secrets;
  /** Returns false for an API key that is revoked, expired or unknown. */
  isValidKey: (id: string) => Promise<boolean>;
  /** Agents by application name. */
  agents: ReadonlyMap<string, HostedAgent>;
  newId: () => string;
  /** Current Unix time in seconds, for partial events only. Stored events get the time of the database's clock. */
  now: () => number;
  leaseTimes: LeaseTimes;
  limits: InvocationLimits;
  /** Policy for a busy session if the request names no policy. */
  busyPolicy: BusyPolicy;
  /** If true, an invocation is cancelled when the client that waits for its HTTP response disconnects. */
  cancelOnDisconnect: boolean;
  /** Aborted when shutdown begins. Open streams end then, so that their clients reconnect to another process. */
  draining: AbortSignal;
  /** Aborted at the end of shutdown's grace period: running invocations are handed over, or end as interrupted. */
  stopping: AbortSignal;
}

export const newInvocationId = ({ newId }: Pick<InvocationContext, 'newId'>): string => `e-${newId()}`;

export interface InvocationRequest {
  key: SessionKey;
  /** A new id; with `resumes`, the id of an ended invocation to resume. */
  invocationId: string;
  resumes?: boolean;
  /** The user's message; `undefined` only if the request resumes an invocation. */
  content: Content | undefined;
  /** State changes that are merged into the session state together with the user's event. */
  stateDelta?: JsonObject | undefined;
  customMetadata?: JsonObject | undefined;
  overrides: AgentOverrides;
  /** True: create the session if it is absent. `new`: create the session, and fail if it exists. */
  createSession: boolean | 'new';
  /** If true, the listener also receives partial events. */
  streaming: boolean;
  /** A text turn of a live session: its events name no node, and its last event reports the end of the turn. */
  isLive?: boolean | undefined;
  busyPolicy?: BusyPolicy | undefined;
  /** The `Idempotency-Key` of the request and the hash of its content. */
  idempotency?: IdempotentRequest | undefined;
  /** Address of a webhook that the user has registered. The webhook receives the result of the invocation. */
  webhookUrl?: string | undefined;
  /** The job of which the invocation is a step. The process of the job keeps it; if that dies, the end makes it due. */
  job?: JobStep | undefined;
  /** Format of the result that is stored for retries. Absent: a retry's result is built from the stored events. */
  answer?: AnswerKind | undefined;
  /**
   * Set only if the invocation is resumed after its process died. `sequence`: the session's last sequence when the
   * invocation began. The other members: time, model calls and tool calls that the invocation has used since then.
   */
  recovery?: { sequence: number; spentMs: number; llmCalls: number; toolCalls: number } | undefined;
  /** True if no client waits for the result: at shutdown the invocation is handed over before its next step. */
  inBackground?: boolean;
  /** True: an exhausted budget pauses the invocation until the budget is raised. False: it ends the invocation. */
  waitsForBudget?: boolean | undefined;
  /** True for a run of a cronjob, which its limit of time calls a run. */
  isRun?: boolean | undefined;
  /** Aborts the invocation, for instance when its client has disconnected. */
  signal?: AbortSignal | undefined;
  /** Called with each piece of streamed text after the text was stored. */
  onDelta?: EventListener;
  /** Called with the user event if it is stored after the claim, because the request was uncertain. */
  onPrompt?: EventListener;
  /** Called when the invocation has its database row: it is queued or has begun. */
  onAccepted?: () => void;
  /** An agent that the caller has prepared and will close. Absent: the invocation prepares an agent and closes it. */
  prepared?: PreparedAgent;
  /** The loop that produces the events. Default: `runAgent`, which calls models and tools. */
  steps?: (input: RunInput) => AsyncGenerator<NewEvent, RunEnd, void>;
}

export interface InvocationEnd {
  output: string;
  error: InvocationError | undefined;
  paused?: boolean;
  /** The model's structured output, validated against the agent's output schema. */
  value?: unknown;
  /** The invocation as it was stored. Absent if the answer to that write was lost. */
  invocation?: Invocation;
}

/** An event for a client, with its JSON text. */
export interface EventFrame {
  text: string;
  event: Event;
  /** Sequence of a stored event, or of the event before a stored delta; `undefined` if nothing is stored. */
  sequence: number | undefined;
  /** Number of the last delta, up to this frame, whose complete event is not stored yet. */
  delta?: number | undefined;
}

/** Called with each event of the agent. Complete events are passed after they were stored, partial events at once. */
export type EventListener = (frame: EventFrame) => void;

/** Passes stored events to a listener, if there is one. `delta` has the same meaning as {@link EventFrame.delta}. */
export function notifyListener(
  listener: EventListener | undefined,
  stored: StoredEvent[],
  events: NewEvent[],
  delta?: number,
): void {
  if (!listener) return;
  for (const [position, { sequence, text }] of stored.entries()) {
    const event = events[position];
    if (event) listener({ text, event, sequence, delta });
  }
}
