import { createHash, type Hash } from 'node:crypto';
import { z } from 'zod';
import type { AgentOverrides } from '../agent/definition/agent.ts';
import { HOOKS, type Hooks } from '../agent/definition/hooks.ts';
import type { ModelRequest, Sampling, ToolDeclaration } from '../agent/definition/model.ts';
import { findPlaceholders } from '../agent/loop/instruction.ts';
import type { ObservedAgent } from '../agent/loop/run.ts';
import { type Content, type JsonObject, getParts } from '../core/content.ts';
import { and, eq, inArray, isNotNull, lt, notInArray, sql } from 'drizzle-orm';
import { EVAL_SESSION_ID_PREFIXES, type SessionKey } from '../core/session.ts';
import { inBatches, isInBatch } from '../platform/db/batches.ts';
import type { Database } from '../platform/db/database.ts';
import { agentPrompts, invocations } from '../platform/db/schema/schema.ts';
import { isInvocation } from './invocation-store.ts';

/** What an agent passes to its model in addition to the conversation. */
export interface AgentPrompt {
  agent: string;
  /** The template of the instruction; absent if the request overrode the instruction. */
  instruction?: string;
  appendedInstruction: string;
  tools: (ToolDeclaration & { calls?: 'server' | 'agent' })[];
  modelName: string;
  sampling: Sampling;
  outputSchema?: JsonObject;
  /** The hooks as `name.hook`, those of plugins first; absent if there are none. */
  hooks?: string[];
}

/** A tape: what a replay needs besides events. Small, because large values are stored elsewhere, once. */
export interface Tape {
  /** Number of events in the session when the run began, the run's prompt included. */
  start: number;
  payload: TapePayload;
  /** The prompts of the model calls, by hash. */
  prompts: ReadonlyMap<string, AgentPrompt>;
}

/** The part of a tape that belongs to one invocation only. */
export interface TapePayload {
  version: 1;
  /** Overrides of the request without MCP servers, because their addresses and headers may contain secrets. */
  overrides: AgentOverrides;
  hasOwnServers: boolean;
  /** Values that the state keys named in instructions had when the run began; null for a key that did not exist. */
  values: JsonObject;
  /** State keys whose values were too large to store. */
  unkept: string[];
  /** The agents that called a model, each with the hash of its prompt. */
  prompts: [agent: string, hash: string][];
  /** For each model call: index in `prompts`, digest of the conversation, digest of the rendered instruction. */
  calls: [prompt: number, contents: string, instruction: string][];
}

/** A stored tape as a replay reads it. Others are left out, because an import may bring any JSON. */
const storedTape = z.object({
  start: z.int().nonnegative(),
  payload: z.object({
    version: z.literal(1),
    overrides: z.looseObject({}),
    hasOwnServers: z.boolean(),
    values: z.looseObject({}),
    unkept: z.array(z.string()),
    prompts: z.array(z.tuple([z.string(), z.string()])),
    calls: z.array(z.tuple([z.int().nonnegative(), z.string(), z.string()])),
  }),
});

/** Maximum number of model calls on a tape. A replay does not compare the requests of later calls. */
export const MAX_CALLS = 1_000;
/** Maximum size of the stored state values, in characters of JSON. */
const MAX_VALUES = 16_384;
/** Hexadecimal digits of a digest: few, because it is compared with only one other digest. */
const DIGEST_LENGTH = 16;

const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');
export const instructionDigest = (instruction: string): string => sha256(instruction).slice(0, DIGEST_LENGTH);

/** A running hash over the first contents of a conversation. */
interface KnownDigest {
  length: number;
  hash: Hash;
}

/** Running hashes by the last content that they cover. All invocations of a session share its frozen contents. */
const knownDigests = new WeakMap<Content, KnownDigest>();
/** Maximum number of contents to search backwards for a cached hash. */
const MAX_ADDED = 400;

/**
 * Digest of what a model received: authors, number of characters, calls and responses. Text is left out, because it
 * comes from stored events and each model call needs a digest. Starts from the cached hash of the frozen contents.
 */
export function contentsDigest(contents: Content[]): string {
  const frozen = contents.findLastIndex(Object.isFrozen) + 1;
  const cached = findKnownDigest(contents, frozen);
  const hash = cached ? cached.hash.copy() : createHash('sha256').update('[');
  const add = (from: number, to: number) => {
    const shapes = contents.slice(from, to).map((content) => JSON.stringify(toShape(content)));
    if (shapes.length > 0) hash.update(`${from > 0 ? ',' : ''}${shapes.join(',')}`);
  };
  add(cached?.length ?? 0, frozen);
  const last = contents[frozen - 1];
  const before = contents[(cached?.length ?? 0) - 1];
  if (before) knownDigests.delete(before);
  if (last) knownDigests.set(last, { length: frozen, hash: hash.copy() });
  add(frozen, contents.length);
  return hash.update(']').digest('hex').slice(0, DIGEST_LENGTH);
}

function findKnownDigest(contents: Content[], frozen: number): KnownDigest | undefined {
  for (let place = frozen; place > Math.max(0, frozen - MAX_ADDED); place -= 1) {
    const cached = knownDigests.get(contents[place - 1] as Content);
    if (cached?.length === place) return cached;
  }
  return undefined;
}

const toShape = (content: Content): unknown[] => [
  content.role,
  ...getParts(content).map(({ text, functionCall, functionResponse }) => {
    if (text !== undefined && text !== null) return text.length;
    return functionCall ? `call ${functionCall.name}` : functionResponse ? `response ${functionResponse.name}` : '';
  }),
];

const listHooks = (hooks: Hooks): string[] =>
  HOOKS.filter((kind) => hooks[kind]).map((kind) => `${hooks.name}.${kind}`);

export function toPrompt(
  agent: ObservedAgent,
  { modelName, sampling }: Pick<ModelRequest, 'modelName' | 'sampling'>,
): { prompt: AgentPrompt; hash: string } {
  const prompt = {
    agent: agent.name,
    instruction: agent.instruction,
    appendedInstruction: agent.appendedInstruction,
    tools: agent.tools.map(({ name, description, parameters, calls }) => ({
      name,
      description,
      parameters,
      ...(calls ? { calls: calls === 'server' ? calls : ('agent' as const) } : {}),
    })),
    modelName,
    sampling,
    ...(agent.outputSchema && { outputSchema: agent.outputSchema.schema }),
    ...(agent.hooks && { hooks: agent.hooks.flatMap(listHooks) }),
  };
  return { prompt, hash: sha256(JSON.stringify(prompt)) };
}

export class TapeRecorder {
  readonly #start: number;
  readonly #state: JsonObject;
  readonly #payload: TapePayload;
  readonly #prompts = new Map<string, AgentPrompt>();

  constructor(start: number, state: JsonObject, { mcpServers, ...overrides }: AgentOverrides) {
    this.#start = start;
    this.#state = state;
    const hasOwnServers = (mcpServers?.length ?? 0) > 0;
    // An empty list of MCP servers overrides the agent's own servers, and contains no secret.
    const servers = mcpServers && !hasOwnServers ? { mcpServers } : {};
    const empty = { values: {}, unkept: [], prompts: [], calls: [] };
    this.#payload = { version: 1, overrides: { ...overrides, ...servers }, hasOwnServers, ...empty };
  }

  request(agent: ObservedAgent, request: ModelRequest): void {
    const { calls, prompts } = this.#payload;
    if (calls.length === MAX_CALLS) return;
    const { prompt, hash } = toPrompt(agent, request);
    if (!this.#prompts.has(hash)) this.#add(hash, prompt);
    const place = prompts.findIndex(([, other]) => other === hash);
    calls.push([place, contentsDigest(request.contents), instructionDigest(request.instruction)]);
  }

  toTape(): Tape {
    return { start: this.#start, payload: this.#payload, prompts: this.#prompts };
  }

  #add(hash: string, whole: AgentPrompt): void {
    const { instruction, ...prompt } = whole;
    const { overrides, prompts } = this.#payload;
    prompts.push([whole.agent, hash]);
    this.#prompts.set(hash, overrides.instruction === instruction ? prompt : whole);
    for (const key of findPlaceholders(instruction ?? '').keys) this.#keep(key);
  }

  #keep(key: string): void {
    const { values, unkept } = this.#payload;
    if (Object.hasOwn(values, key) || unkept.includes(key)) return;
    // A key that does not exist is stored as null, because an instruction renders both alike.
    const next = { ...values, [key]: Object.hasOwn(this.#state, key) ? this.#state[key] : null };
    if (JSON.stringify(next).length <= MAX_VALUES) this.#payload.values = next;
    else unkept.push(key);
  }
}

/** Maximum size of a stored prompt, in characters of JSON. Of a larger prompt only the hash is stored. */
const MAX_PROMPT = 262_144;
/** Milliseconds for which a prompt counts as still stored: far shorter than any retention time. */
const KNOWN_MS = 3_600_000;
const MAX_KNOWN = 1_000;

/** When this process last stored each prompt, by application and hash: saves writes, because prompts rarely change. */
const storedTimes = new WeakMap<Database, Map<string, number>>();
const toName = ({ appName }: SessionKey, hash: string) => JSON.stringify([appName, hash]);

/** A prompt of a tape, to be stored with the tape. */
interface NewPrompt {
  hash: string;
  payload: AgentPrompt;
}

/** Returns the prompts of a tape that this process has not stored lately, in an order that prevents deadlocks. */
export function listNewPrompts(db: Database, key: SessionKey, tape: Tape | undefined): NewPrompt[] {
  const times = storedTimes.get(db);
  const since = performance.now() - KNOWN_MS;
  return [...(tape?.prompts ?? [])]
    .filter(([hash]) => (times?.get(toName(key, hash)) ?? -Infinity) <= since)
    .filter(([, payload]) => JSON.stringify(payload).length <= MAX_PROMPT)
    .map(([hash, payload]) => ({ hash, payload }))
    .toSorted((one, other) => (one.hash < other.hash ? -1 : 1));
}

/** Remembers that these prompts are stored now. */
export function markStored(db: Database, key: SessionKey, prompts: NewPrompt[]): void {
  const times = storedTimes.get(db) ?? new Map<string, number>();
  storedTimes.set(db, times);
  for (const { hash } of prompts) {
    const [oldest] = times.keys();
    if (times.size >= MAX_KNOWN && oldest !== undefined) times.delete(oldest);
    times.set(toName(key, hash), performance.now());
  }
}

/** An invocation's tapes in order, each with those of its prompts that are still stored. Two statements. */
export async function listTapes(db: Database, key: SessionKey, invocationId: string): Promise<Tape[]> {
  const [row] = await db
    .select({ tapes: invocations.tapes })
    .from(invocations)
    .where(isInvocation({ key, invocationId }));
  const tapes = (Array.isArray(row?.tapes) ? row.tapes : [])
    .flatMap((stored) => (storedTape.safeParse(stored).data as Omit<Tape, 'prompts'> | undefined) ?? [])
    .toSorted((one, other) => one.start - other.start);
  const hashes = [...new Set(tapes.flatMap(({ payload }) => payload.prompts.map(([, hash]) => hash)))];
  const promptRows = await db
    .select({ hash: agentPrompts.hash, payload: agentPrompts.payload })
    .from(agentPrompts)
    .where(and(eq(agentPrompts.appName, key.appName), inArray(agentPrompts.hash, hashes)));
  const prompts = new Map(promptRows.map(({ hash, payload }) => [hash, payload as AgentPrompt]));
  return tapes.map((tape) => ({ ...tape, prompts }));
}

/** A sample of invocations that ended lately and have a tape. The order by digest is random but repeatable. */
export const sampleTapes = (db: Database, appName: string, minutes: number, limit: number) => {
  const { userId, sessionId, id, agentVersion } = invocations;
  return db
    .select({ userId, sessionId, id, agentVersion })
    .from(invocations)
    .where(
      and(
        eq(invocations.appName, appName),
        sql`${invocations.createTime} >= statement_timestamp() - ${minutes} * interval '1 minute'`,
        notInArray(invocations.status, ['queued', 'running']),
        isNotNull(invocations.tapes),
        ...EVAL_SESSION_ID_PREFIXES.map((prefix) => sql`not starts_with(${sessionId}, ${prefix})`),
      ),
    )
    .orderBy(sql`md5(${id})`, userId, sessionId)
    .limit(limit);
};

/** Deletes prompts not used for `days`, in small batches. @returns the number of deleted prompts */
export function deleteOldPrompts(db: Database, days: number, signal?: AbortSignal): Promise<number> {
  const isOld = lt(agentPrompts.useTime, sql`statement_timestamp() - ${days} * interval '1 day'`);
  const isNext = isInBatch(agentPrompts, isOld, agentPrompts.useTime);
  return inBatches(() => db.delete(agentPrompts).where(isNext), signal);
}
