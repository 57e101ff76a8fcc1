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
import type { Slots } from '../platform/http/limits/request-limits.ts';
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

/** Limits of every invocation. */
export interface InvocationLimits {
  /** Time limit in milliseconds, the wait for the session left out. */
  timeoutMs: number;
  /** Maximum of tool calls. */
  toolCalls: number;
  /** Maximum size of an event, bytes of its JSON. */
  eventBytes: number;
  /** Maximum of requests that wait for one session. */
  queueDepth: number;
  /** Maximum of invocations that this process takes up from the database and runs at once: requests have the rest. */
  takenUp: number;
  /** Maximum of processes that begin one invocation, each after the death of the one before. */
  attempts: number;
}

/** The resources and settings of invocations in a process. */
export interface InvocationContext {
  database: DatabasePool;
  histories: HistoryCache;
  /** The sessions that streams of this process follow. */
  feeds: SessionFeeds;
  /** The requests of this process that wait for busy sessions. */
  waitQueue: WaitQueue;
  /** Where the bytes of artifacts are. */
  contentStore: ContentStore;
  notifications: Notifications;
  admission: Admission;
  /** Counts replays. */
  replays: Slots;
  log: Log;
  /** Keeps what the agent does, prompts included: in development UI mode only. */
  tracing?: Tracing | undefined;
  /** Begins to observe an invocation: for its trace, for metrics. */
  observe?: ((invocation: Pick<InvocationRequest, 'key' | 'invocationId'>) => InvocationObserver) | undefined;
  metrics?: Metrics | undefined;
  /** Where transactional tools work [there are none]. */
  tools?: ToolDatabase | undefined;
  /** Encrypts what is secret in stored requests. */
  secrets: Secrets;
  /** False for a key that was revoked, has expired or is unknown. */
  isValidKey: (id: string) => Promise<boolean>;
  /** By application name. */
  agents: ReadonlyMap<string, HostedAgent>;
  newId: () => string;
  /** Unix time in seconds, for partial events only; what is stored gets the database's clock. */
  now: () => number;
  leaseTimes: LeaseTimes;
  limits: InvocationLimits;
  /** Policy of requests for a busy session that name none. */
  busyPolicy: BusyPolicy;
  /** True: an invocation ends as cancelled when the client that waits for it goes away. */
  cancelOnDisconnect: boolean;
  /** Aborted when the process begins to stop: open streams end, so that clients go on elsewhere. */
  draining: AbortSignal;
  /** Aborted when the process has to stop: another one goes on with what still runs, or it ends as interrupted. */
  stopping: AbortSignal;
}

/** A fresh id of an invocation, as ADK spells them. */
export const newInvocationId = ({ newId }: Pick<InvocationContext, 'newId'>): string => `e-${newId()}`;

/** One prompt and how to answer it. */
export interface InvocationRequest {
  key: SessionKey;
  /** Fresh, or that of an ended invocation which goes on (`resumes`). */
  invocationId: string;
  resumes?: boolean;
  /** The user's message; `undefined` only to resume. */
  content: Content | undefined;
  /** Merged into the state with the user's event. */
  stateDelta?: JsonObject | undefined;
  customMetadata?: JsonObject | undefined;
  overrides: AgentOverrides;
  /** Create the session where it is absent; `new`: it has to be. */
  createSession: boolean | 'new';
  /** True: partial events reach the listener too. */
  streaming: boolean;
  /** True for a turn of a live session in text: its events name no node, and one more says that it is over. */
  isLive?: boolean | undefined;
  busyPolicy?: BusyPolicy | undefined;
  /** The `Idempotency-Key` of the request and the hash of its content. */
  idempotency?: IdempotentRequest | undefined;
  /** Address of the webhook that is sent how it ends: one that its user has registered. */
  webhookUrl?: string | undefined;
  /** The answer to keep with the invocation; without it a retry's answer is made from its events. */
  answer?: AnswerKind | undefined;
  /** Where it goes on whose process died: its last event when it began, and what it has used since. */
  goesOn?: { sequence: number; spentMs: number; llmCalls: number; toolCalls: number } | undefined;
  /** True where no client waits: a process that stops hands it over at its next step. */
  inBackground?: boolean;
  /** True where a budget that has nothing left does not end it: it waits for those who may change that. */
  waitsForBudget?: boolean | undefined;
  /** Aborted when the invocation is not wanted any more. */
  signal?: AbortSignal | undefined;
  /** Called with text once it is stored, where it streams. */
  onDelta?: EventListener;
  /** Called when the invocation has its row: it waits in the queue, or it has begun. */
  onKnown?: () => void;
  /** The agent, made ready; it stays so after the invocation [made ready for it]. */
  prepared?: PreparedAgent;
  /** How the agent answers [the loop of models and tools]. */
  steps?: (input: RunInput) => AsyncGenerator<NewEvent, RunEnd, void>;
}

/** The end of an invocation. */
export interface InvocationEnd {
  output: string;
  error: InvocationError | undefined;
  /** True where it waits for a person. */
  paused?: boolean;
  /** The checked value of an answer that has a form. */
  value?: unknown;
}

/** An event on its way to a client: JSON text. */
export interface EventFrame {
  text: string;
  event: Event;
  /** Its own where it is stored; that of the event before a stored delta; none for a partial event as it comes. */
  sequence: number | undefined;
  /** Number of the last delta before or at its place whose event is still to come. */
  delta?: number | undefined;
}

/** Called with each event of the agent: stored ones after they were stored, partial ones as they come. */
export type EventListener = (frame: EventFrame) => void;

/** Calls a listener with events as they were stored; `delta` as in a frame. */
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
