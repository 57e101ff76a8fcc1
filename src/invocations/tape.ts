import { createHash, type Hash } from 'node:crypto';
import type { AgentOverrides } from '../agent/definition/agent.ts';
import { HOOKS, type Hooks } from '../agent/definition/hooks.ts';
import type { ModelRequest, Sampling, ToolDeclaration } from '../agent/definition/model.ts';
import { findPlaceholders } from '../agent/loop/instruction.ts';
import { type ObservedAgent, type ObservedStep, type RunObserver, UNOBSERVED } from '../agent/loop/run.ts';
import { type Content, type JsonObject, getParts } from '../core/content.ts';

/** The prompt of an agent: what it gave its model beside the conversation. */
export interface AgentPrompt {
  agent: string;
  /** The template; absent where the request of the invocation replaced it. */
  instruction?: string;
  appendedInstruction: string;
  tools: (ToolDeclaration & { calls?: 'server' | 'agent' })[];
  modelName: string;
  sampling: Sampling;
  outputSchema?: JsonObject;
  /** Its hooks as `name.hook`, those of plugins first; absent where it has none. */
  hooks?: string[];
}

/** One run of an invocation as a replay needs it beside the events. Small: what is large stands elsewhere once. */
export interface Tape {
  /** Number of events of the session when the run began, its prompt included. */
  start: number;
  payload: TapePayload;
  /** The prompts of the model calls, by hash. */
  prompts: ReadonlyMap<string, AgentPrompt>;
}

/** The part of a tape that is the invocation's own. */
export interface TapePayload {
  version: 1;
  /** Overrides of the request without MCP servers: their addresses and headers may hold secrets. */
  overrides: AgentOverrides;
  hasOwnServers: boolean;
  /** Values of the state at the start that the instructions name; null for those that were absent. */
  values: JsonObject;
  /** State keys with values too large to keep here. */
  unkept: string[];
  /** The agents that called their models, each with the hash of a prompt of its. */
  prompts: [agent: string, hash: string][];
  /** One for each model call in order: its prompt's place in `prompts`, digests of contents and whole instruction. */
  calls: [prompt: number, contents: string, instruction: string][];
}

/** Maximum of model calls that a tape has; later ones are replayed without comparing their requests. */
export const MAX_CALLS = 1_000;
/** Maximum size of the values that a tape keeps, characters of JSON. */
const MAX_VALUES = 16_384;
/** Length of a digest in a tape, hexadecimal digits: it is compared with one other only. */
const DIGEST_LENGTH = 16;

const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');
/** A short digest of an instruction as the model was given it. */
export const instructionDigest = (instruction: string): string => sha256(instruction).slice(0, DIGEST_LENGTH);

/** The digest of contents up to one of them, as it was when that was the last frozen one. */
interface KnownDigest {
  length: number;
  hash: Hash;
}

/** By the last content: those that are frozen are the same for every invocation of a session. */
const knownDigests = new WeakMap<Content, KnownDigest>();
/** Maximum of contents that are searched for known ones. */
const MAX_ADDED = 400;

/**
 * A digest of what a model was shown of the conversation: who said how much, and which calls and responses. Not of
 * every byte: the words come from stored events, and this is computed for each model call. It goes on from what is
 * known of frozen contents.
 */
export function contentsDigest(contents: Content[]): string {
  const frozen = contents.findLastIndex((content) => Object.isFrozen(content)) + 1;
  const known = findKnownDigest(contents, frozen);
  const hash = known ? known.hash.copy() : createHash('sha256').update('[');
  const add = (from: number, to: number) => {
    const shapes = contents.slice(from, to).map((content) => JSON.stringify(toShape(content)));
    if (shapes.length > 0) hash.update(`${from > 0 ? ',' : ''}${shapes.join(',')}`);
  };
  add(known?.length ?? 0, frozen);
  const last = contents[frozen - 1];
  const before = contents[(known?.length ?? 0) - 1];
  if (before) knownDigests.delete(before);
  if (last) knownDigests.set(last, { length: frozen, hash: hash.copy() });
  add(frozen, contents.length);
  return hash.update(']').digest('hex').slice(0, DIGEST_LENGTH);
}

function findKnownDigest(contents: Content[], frozen: number): KnownDigest | undefined {
  for (let place = frozen; place > Math.max(0, frozen - MAX_ADDED); place -= 1) {
    const known = knownDigests.get(contents[place - 1] as Content);
    if (known?.length === place) return known;
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

/** Returns the prompt of an agent, and its hash. */
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

/** Gathers the tape of one run while it runs. */
export class TapeRecorder implements RunObserver {
  readonly #start: number;
  readonly #state: JsonObject;
  readonly #payload: TapePayload;
  readonly #prompts = new Map<string, AgentPrompt>();

  constructor(start: number, state: JsonObject, { mcpServers, ...overrides }: AgentOverrides) {
    this.#start = start;
    this.#state = state;
    const hasOwnServers = (mcpServers?.length ?? 0) > 0;
    const empty = { values: {}, unkept: [], prompts: [], calls: [] };
    this.#payload = { version: 1, overrides: { ...overrides, ...noServers(mcpServers) }, hasOwnServers, ...empty };
  }

  request(agent: ObservedAgent, request: ModelRequest): void {
    const { calls, prompts } = this.#payload;
    if (calls.length === MAX_CALLS) return;
    const { prompt, hash } = toPrompt(agent, request);
    if (!this.#prompts.has(hash)) this.#add(hash, prompt);
    const place = prompts.findIndex(([, known]) => known === hash);
    calls.push([place, contentsDigest(request.contents), instructionDigest(request.instruction)]);
  }

  modelCall(): ObservedStep<unknown> {
    return UNOBSERVED;
  }

  toolCall(): ObservedStep<unknown> {
    return UNOBSERVED;
  }

  event(): void {
    // Events are stored themselves.
  }

  /** The tape so far. */
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
    // What was absent is kept as null, which an instruction does not tell from it.
    const kept = { ...values, [key]: Object.hasOwn(this.#state, key) ? this.#state[key] : null };
    if (JSON.stringify(kept).length <= MAX_VALUES) this.#payload.values = kept;
    else unkept.push(key);
  }
}

/** That a request took all servers away is kept: it names none. */
const noServers = (servers: AgentOverrides['mcpServers']) => (servers?.length === 0 ? { mcpServers: [] } : {});
