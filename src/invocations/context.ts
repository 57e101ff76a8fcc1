import type { HostedAgent } from '../conversation/apps/hosted-agent.ts';
import type { InvocationObserver } from '../agent/loop/run.ts';
import type { ContentStore } from '../conversation/artifacts/artifact.ts';
import type { DatabasePool } from '../platform/db/database.ts';
import type { ToolDatabase } from '../platform/db/tool-database.ts';
import type { Notifications } from '../platform/db/notifications.ts';
import type { TracedInvocation } from '../observability/traces/invocation-trace.ts';
import type { Tracing } from '../observability/traces/tracing.ts';
import type { LeaseTimes } from './lock-store.ts';
import type { ListInvokers } from '../platform/http/access/key-ring.ts';
import type { Log } from '../platform/log.ts';
import type { Metrics } from '../platform/metrics.ts';
import type { Slots } from '../platform/http/limits/caller-limits.ts';
import type { HistoryCache } from '../conversation/sessions/history.ts';
import type { Admission } from './admission.ts';
import type { BusyPolicy } from './invocation.ts';
import type { DeltaBatches } from './delta-batches.ts';
import type { SessionFeeds } from './session-feed.ts';
import type { UserMemory } from './memory.ts';
import type { Secrets } from '../platform/secrets.ts';
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
  /** Stores the text that invocations of this process stream. */
  deltas: DeltaBatches;
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
  observers: ((invocation: TracedInvocation) => InvocationObserver)[];
  metrics?: Metrics | undefined;
  /** Database connections under the role of transactional tools. Absent if the service has no transactional tools. */
  tools?: ToolDatabase | undefined;
  /** Absent if the service has no memory. */
  memory?: UserMemory | undefined;
  /** Encrypts credentials in stored requests. */
  secrets: Secrets;
  /** Lists the API keys that may begin or steer a session's invocations now: not revoked, not expired, of its user. */
  listInvokers: ListInvokers;
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
