import type { ModelRequest } from '../../agent/definition/model.ts';
import { AgentError, LimitError } from '../../core/errors.ts';
import type { SessionKey } from '../../core/session.ts';
import type { Database, DatabasePool } from '../../platform/db/database.ts';
import type { Log } from '../../platform/log.ts';
import { backOffMs, type QueueContext, runLeasedQueue } from '../../platform/work/leased-queue.ts';
import type { Embedder, HostedAgent } from '../apps/hosted-agent.ts';
import { spend } from '../budgets/budget-store.ts';
import { OverBudgetError } from '../budgets/budget.ts';
import { reserveCall } from '../budgets/reserve-call.ts';
import * as store from './embedding-store.ts';
import type { VectorQuery } from './memory-store.ts';
import { rememberInvocation } from './remember.ts';

export const MEMORY_TOPIC = 'memory';
const MAX_JOBS = 4;
const MAX_BATCH = 16;
/** Time-out of an embedding call, below the duration of the job's lease, so that no other process repeats the call. */
const CALL_MS = 60_000;
const LEASE_MS = 120_000;
const QUERY_MS = 3_000;
/** Maximum attempts at a memory job, in about 90 minutes with back-off. Adding to the user's memory resets them. */
const MAX_ATTEMPTS = 10;
const BACK_OFF = { firstMs: 10_000, maxMs: 3_600_000 };
/** Maximum pause between polls, because no notification tells that a job is due again. */
const MAX_PAUSE_MS = 5_000;
const MAX_DIMENSIONS = 16_000;

type User = Pick<SessionKey, 'appName' | 'userId'>;
type Agents = ReadonlyMap<string, HostedAgent>;
type MemoryContext = QueueContext & { database: DatabasePool; agents: Agents };

/** Looks for pgvector if an application configures embeddings; without it warns that only words are searched. */
export async function openEmbedders({ db }: DatabasePool, agents: Agents, log: Log): Promise<void> {
  const withEmbedder = [...agents].filter(([, { embedder }]) => embedder);
  const schema = withEmbedder.length === 0 || db.isOnCluster ? undefined : await store.findVectorSchema(db);
  for (const [app, agent] of withEmbedder) {
    const { embedder } = agent;
    agent.embedder = schema && embedder?.model.embed ? { ...embedder, schema } : undefined;
    const why = schema ? `${embedder?.model.provider} makes no vectors` : 'the database has no extension `vector`';
    if (!agent.embedder) log.warn({ app }, `memory is searched by words alone: ${why}`);
  }
}

/** Names a vector's model and number of dimensions; vectors with different names cannot be compared. */
const toVectorName = ({ modelName, dimensions }: Embedder) => [modelName, dimensions ?? []].flat().join(' ');

/** Embeds texts within the user's budgets and charges them. @throws {LimitError} if the budget is too small */
async function embed(db: Database, embedder: Embedder, user: User, texts: string[], signal: AbortSignal) {
  const { model, schema: _, ...options } = embedder;
  const { modelName } = options;
  const contents: ModelRequest['contents'] = [{ parts: texts.map((text) => ({ text })) }];
  const request = { modelName, instruction: '', contents, tools: [], sampling: { maxOutputTokens: 0 }, signal };
  const reserved = await reserveCall(db, user, request);
  if ('what' in reserved) throw new OverBudgetError(reserved);
  try {
    const answer = await model.embed?.(texts, { ...options, signal });
    const { vectors = [], tokens = Math.ceil(texts.join('').length / 4) } = answer ?? {};
    const use = { model: modelName, promptTokens: tokens, outputTokens: 0, reservation: reserved.reservation };
    await spend(db, user, [use]);
    if (vectors.every(({ length }) => length > 0 && length <= MAX_DIMENSIONS)) return vectors;
    throw new AgentError('model_bad_response', `\`${modelName}\` made no vector, or one that is too long.`);
  } finally {
    reserved.end();
  }
}

/** Embeds a search query. @returns `undefined`, after logging a warning, if the model fails */
export async function findVector(
  { database: { db }, log }: { database: DatabasePool; log: Log },
  embedder: Embedder,
  { appName, userId }: User,
  query: string,
): Promise<VectorQuery | undefined> {
  const { schema = '' } = embedder;
  const signal = AbortSignal.timeout(QUERY_MS);
  const embedding = embed(db, embedder, { appName, userId }, [query], signal).catch((reason: unknown) => {
    log.warn({ app: appName, reason: String(reason) }, 'memory was searched by words alone');
  });
  const [vector] = (await embedding) ?? [];
  return vector && { vector, model: toVectorName(embedder), schema };
}

/** Runs memory jobs until the process drains: embeds memories, and adds invocations to memory. */
export async function runMemoryJobs(context: MemoryContext): Promise<void> {
  const { agents, database } = context;
  const appNames = [...agents].flatMap(([name, { embedder, remember }]) => (embedder || remember ? [name] : []));
  if (appNames.length === 0) return;
  await runLeasedQueue<store.MemoryJob>(context, {
    name: 'memory jobs',
    topic: MEMORY_TOPIC,
    maxJobs: MAX_JOBS,
    claim: async ({ slots }) => {
      const jobs = slots > 0 ? await store.claimJobs(database.db, appNames, slots, LEASE_MS) : [];
      return { jobs, pauseMs: jobs.length > 0 ? 0 : MAX_PAUSE_MS };
    },
    run: (job) => runJob(context, job),
    toLogFields: ({ appName }) => ({ appName }),
  });
}

/** Runs a memory job. A failed job is retried later; until then its memories are found by words only. */
async function runJob({ agents, database: { db }, draining, log }: MemoryContext, job: store.MemoryJob) {
  const { embedder, remember } = agents.get(job.appName) ?? {};
  const signal = AbortSignal.any([draining, AbortSignal.timeout(CALL_MS)]);
  try {
    if (job.invocationId === '') {
      if (embedder) await embedBatch(db, embedder, job, signal);
      return;
    }
    if (remember) await rememberInvocation(db, remember, job, embedder !== undefined, signal);
    await store.endJob(db, job);
  } catch (error) {
    if (draining.aborted) return store.endJob(db, job, 0);
    log.warn({ app: job.appName, reason: String(error) }, 'memories wait for their vectors, or to be remembered');
    const pauseMs = error instanceof LimitError ? error.retryAfterSeconds * 1_000 : backOffMs(job.attempts, BACK_OFF);
    await store.endJob(db, job, job.attempts < MAX_ATTEMPTS ? pauseMs : undefined);
  }
}

async function embedBatch(db: Database, embedder: Embedder, job: store.MemoryJob, signal: AbortSignal) {
  const model = toVectorName(embedder);
  // After a failure texts are embedded one at a time, because the model may refuse a single text.
  const rows = await store.listUnembedded(db, job, model, job.attempts > 1 ? 1 : MAX_BATCH);
  if (rows.length === 0) return store.endJob(db, job);
  const texts = rows.map(({ text }) => text);
  try {
    await store.saveVectors(db, job, model, rows, await embed(db, embedder, job, texts, signal));
  } catch (error) {
    const isRefused = error instanceof AgentError && error.code === 'model_rejected' && rows.length === 1;
    if (!isRefused) throw error;
    await store.saveVectors(db, job, model, rows, []);
  }
}
