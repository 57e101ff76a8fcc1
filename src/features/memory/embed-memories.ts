import type { ModelRequest } from '../../agent/definition/model.ts';
import { AgentError } from '../../core/errors.ts';
import type { SessionKey } from '../../core/session.ts';
import type { Database, DatabasePool } from '../../platform/db/database.ts';
import type { Log } from '../../platform/log.ts';
import type { Job } from '../../platform/jobs/job-store.ts';
import { type JobContext, type JobEnd, runJobs } from '../../platform/jobs/run-jobs.ts';
import type { Embedder, HostedAgent } from '../../conversation/apps/hosted-agent.ts';
import { spend } from '../../conversation/budgets/budget-store.ts';
import { OverBudgetError } from '../../conversation/budgets/budget.ts';
import { reserveCall } from '../../conversation/budgets/reserve-call.ts';
import * as store from './embedding-store.ts';
import { MEMORY_JOB, MEMORY_TOPIC } from '../../invocations/memory.ts';
import { EMBEDS_USER, type VectorQuery } from './memory-store.ts';
import { rememberInvocation } from './remember.ts';

const MAX_JOBS = 4;
const MAX_BATCH = 16;
/** Maximum duration of a job. */
const JOB_MS = 60_000;
const QUERY_MS = 3_000;
/** The attempts take about 90 minutes. Adding to the user's memory begins them anew. */
const RETRY = { attempts: 10, firstMs: 10_000, maxMs: 3_600_000 };
/** Maximum pause between polls, because notifications may be lost. */
const MAX_PAUSE_MS = 5_000;
const MAX_DIMENSIONS = 16_000;

type User = Pick<SessionKey, 'appName' | 'userId'>;
type Agents = ReadonlyMap<string, HostedAgent>;
export type MemoryJobContext = JobContext & { agents: Agents };

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
export async function runMemoryJobs(context: MemoryJobContext): Promise<void> {
  const { agents, database, draining } = context;
  const appNames = [...agents].flatMap(([name, { embedder, remember }]) => (embedder || remember ? [name] : []));
  if (appNames.length === 0) return;
  await runJobs<{ job: Job }>(context, {
    kind: MEMORY_JOB,
    appNames,
    name: 'memory jobs',
    topic: MEMORY_TOPIC,
    maxJobs: MAX_JOBS,
    maxPauseMs: MAX_PAUSE_MS,
    retry: RETRY,
    run: async ({ job }, lost) => {
      const { embedder, remember } = agents.get(job.appName) ?? {};
      const signal = AbortSignal.any([lost, draining, AbortSignal.timeout(JOB_MS)]);
      if (job.id === EMBEDS_USER) return embedder ? embedBatch(database.db, embedder, job, signal) : 'done';
      const [sessionId, invocationId] = JSON.parse(job.id) as [string, string];
      const key = { appName: job.appName, userId: job.userId, sessionId, invocationId };
      if (remember) await rememberInvocation(database.db, remember, key, embedder !== undefined, signal);
      // It has added the job that embeds what it remembered.
      if (remember && embedder) context.notifications.publish(MEMORY_TOPIC);
      return 'done';
    },
  });
}

/** Embeds a batch of a user's memories. A failure leaves them found by words only, until another attempt. */
async function embedBatch(db: Database, embedder: Embedder, job: Job, signal: AbortSignal): Promise<JobEnd> {
  const model = toVectorName(embedder);
  // After a failure texts are embedded one at a time, because the model may refuse a single text.
  const rows = await store.listUnembedded(db, job, model, job.attempt > 1 ? 1 : MAX_BATCH);
  if (rows.length === 0) return 'done';
  const texts = rows.map(({ text }) => text);
  try {
    await store.saveVectors(db, job, model, rows, await embed(db, embedder, job, texts, signal));
  } catch (error) {
    const isRefused = error instanceof AgentError && error.code === 'model_rejected' && rows.length === 1;
    if (!isRefused) throw error;
    await store.saveVectors(db, job, model, rows, []);
  }
  return { againInMs: 0 };
}
