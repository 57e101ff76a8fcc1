import { MAX_DIMENSIONS, type ModelRequest } from '../../agent/definition/model.ts';
import { AgentError, LimitError } from '../../core/errors.ts';
import type { SessionKey } from '../../core/session.ts';
import type { Database, DatabasePool } from '../../platform/db/database.ts';
import type { Log } from '../../platform/log.ts';
import { backOffMs, type QueueContext, runLeasedQueue } from '../../platform/work/leased-queue.ts';
import type { Embedder, HostedAgent } from '../apps/hosted-agent.ts';
import { spend } from '../budgets/budget-store.ts';
import { overBudgetError } from '../budgets/budget.ts';
import { reserveCall } from '../budgets/reserve-call.ts';
import {
  claimJobs,
  endJob,
  type EmbeddingJob,
  findVectorSchema,
  listUnembedded,
  putBackJob,
  saveVectors,
} from './embedding-store.ts';
import type { Near } from './memory-store.ts';

/** Published when memories were added that are to get vectors. */
export const EMBEDDINGS_TOPIC = 'embeddings';
/** Users whose memories this process embeds at once, and memories of one call. */
const MAX_JOBS = 4;
const MAX_BATCH = 16;
/** A call is ended well before its lease, so that no other process makes it too. */
const CALL_MS = 60_000;
const LEASE_MS = 120_000;
/** How long a search waits for the vector of its words, before it does without. */
const QUERY_MS = 3_000;
/** About two hours; the next addition to the memory of the user begins anew. */
const MAX_ATTEMPTS = 10;
const BACK_OFF = { firstMs: 10_000, maxMs: 3_600_000 };
/** Longest pause between two looks: nothing tells of what was put back. */
const MAX_PAUSE_MS = 5_000;

interface EmbeddingContext {
  database: DatabasePool;
  agents: ReadonlyMap<string, HostedAgent>;
  log: Log;
}
type User = Pick<SessionKey, 'appName' | 'userId'>;

/** Looks for pgvector where an application asks for embeddings; warns where its memory is searched by words alone. */
export async function openEmbedders(
  { db }: DatabasePool,
  agents: EmbeddingContext['agents'],
  log: Log,
): Promise<EmbeddingContext['agents']> {
  if (![...agents.values()].some(({ embedder }) => embedder)) return agents;
  const schema = db.isOnCluster ? undefined : await findVectorSchema(db);
  return new Map(
    [...agents].map(([name, agent]) => {
      const { embedder } = agent;
      if (!embedder) return [name, agent];
      if (schema && embedder.model.embed) return [name, { ...agent, embedder: { ...embedder, schema } }];
      const why = schema ? `${embedder.model.provider} makes no vectors` : 'the database has no extension `vector`';
      log.warn({ app: name }, `memory is searched by words alone: ${why}`);
      return [name, { ...agent, embedder: undefined }];
    }),
  );
}

/** Names what makes two vectors comparable. */
const toVectorName = ({ modelName, dimensions }: Embedder) => [modelName, dimensions ?? []].flat().join(' ');

/** Makes vectors of texts within the budgets of a user, and counts them. @throws {LimitError} for less that is left */
async function embed(db: Database, embedder: Embedder, user: User, texts: string[], signal: AbortSignal) {
  const { model, modelName, dimensions } = embedder;
  const contents: ModelRequest['contents'] = [{ role: 'user', parts: texts.map((text) => ({ text })) }];
  const request = { modelName, instruction: '', contents, tools: [], sampling: { maxOutputTokens: 0 }, signal };
  const reserved = await reserveCall(db, user, request);
  if ('what' in reserved) throw overBudgetError(reserved);
  try {
    const length = dimensions === undefined ? {} : { dimensions };
    const answer = await model.embed?.({ modelName, texts, signal, ...length });
    const { vectors = [], tokens = Math.ceil(texts.join('').length / 4) } = answer ?? {};
    const use = { model: modelName, promptTokens: tokens, outputTokens: 0, reservation: reserved.reservation };
    await spend(db, user, [use]);
    if (vectors.every((vector) => vector.length > 0 && vector.length <= MAX_DIMENSIONS)) return vectors;
    throw new AgentError('model_bad_response', `\`${modelName}\` made no vector, or one that is too long.`);
  } finally {
    reserved.end();
  }
}

/** Returns the vector of a search by an application's model; `undefined`, with a warning, where it is not to be had. */
export async function findVector(
  { database: { db }, log }: Pick<EmbeddingContext, 'database' | 'log'>,
  embedder: Embedder,
  user: User,
  query: string,
): Promise<Near | undefined> {
  try {
    const [vector = []] = await embed(db, embedder, user, [query], AbortSignal.timeout(QUERY_MS));
    return { vector, model: toVectorName(embedder), schema: embedder.schema ?? '' };
  } catch (error) {
    log.warn({ app: user.appName, reason: toReason(error) }, 'memory was searched by words alone');
    return undefined;
  }
}

/** Makes the vectors of memories until the process drains, where an application asks for them. */
export async function embedMemories(context: EmbeddingContext & QueueContext): Promise<void> {
  const { agents, database } = context;
  const appNames = [...agents].flatMap(([name, { embedder }]) => (embedder ? [name] : []));
  if (appNames.length === 0) return;
  await runLeasedQueue<EmbeddingJob>(context, {
    name: 'embeddings',
    topic: EMBEDDINGS_TOPIC,
    maxJobs: MAX_JOBS,
    claim: async ({ slots }) => {
      const jobs = slots > 0 ? await claimJobs(database.db, appNames, slots, LEASE_MS) : [];
      return { jobs, pauseMs: jobs.length > 0 ? 0 : MAX_PAUSE_MS };
    },
    run: (job) => embedBatch(context, job),
    toLogFields: ({ appName }) => ({ appName }),
  });
}

/** Embeds some memories of a user; a failure puts them back, and search goes on without their vectors. */
async function embedBatch(
  { agents, database: { db }, draining, log }: EmbeddingContext & QueueContext,
  job: EmbeddingJob,
): Promise<void> {
  const embedder = agents.get(job.appName)?.embedder;
  if (!embedder) return;
  const model = toVectorName(embedder);
  // One alone after a failure: it may be what the model refuses.
  const rows = await listUnembedded(db, job, model, job.attempts > 1 ? 1 : MAX_BATCH);
  if (rows.length === 0) return endJob(db, job);
  const signal = AbortSignal.any([draining, AbortSignal.timeout(CALL_MS)]);
  const texts = rows.map(({ text }) => text);
  try {
    await saveVectors(db, job, model, rows, await embed(db, embedder, job, texts, signal));
  } catch (error) {
    if (draining.aborted) return putBackJob(db, job, 0);
    const isRefused = error instanceof AgentError && error.code === 'model_rejected' && rows.length === 1;
    if (isRefused) return saveVectors(db, job, model, rows, []);
    log.warn({ app: job.appName, reason: toReason(error) }, 'memories wait for their vectors');
    if (job.attempts >= MAX_ATTEMPTS) return endJob(db, job);
    const pauseMs = error instanceof LimitError ? error.retryAfterSeconds * 1_000 : backOffMs(job.attempts, BACK_OFF);
    await putBackJob(db, job, pauseMs);
  }
}

const toReason = (error: unknown) => (error instanceof Error ? error.message : String(error));
