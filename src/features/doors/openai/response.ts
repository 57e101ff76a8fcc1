import type { Response as HttpResponse } from 'express';
import type { Response } from 'openai/resources/responses/responses';
import { HandedOverError } from '../../../core/errors.ts';
import { getFunctionResponses, getParts, type JsonObject, type Part } from '../../../core/content.ts';
import type { Event } from '../../../core/event.ts';
import type { UsageMetadata } from '../../../core/model-metadata.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import type { Invocation } from '../../../invocations/invocation.ts';
import { readTurn, type TurnStep } from '../turn.ts';
import { type ResponseRef, toConversationId, toResponseId } from './ids.ts';
import { type Item, itemReader } from './items.ts';

/** Member of the notes of a first part: what a response repeats of its request. */
const NOTE = 'openAiRequest';

/** The members that a response repeats, with what they are where the request has none. */
const DEFAULTS: JsonObject = {
  background: false,
  frequency_penalty: 0,
  instructions: null,
  max_output_tokens: null,
  max_tool_calls: null,
  metadata: {},
  parallel_tool_calls: true,
  presence_penalty: 0,
  previous_response_id: null,
  prompt_cache_key: null,
  reasoning: null,
  safety_identifier: null,
  service_tier: 'default',
  store: true,
  temperature: 1,
  text: { format: { type: 'text' } },
  tool_choice: 'auto',
  tools: [],
  top_logprobs: 0,
  top_p: 1,
  truncation: 'disabled',
};

/** Notes what a response repeats of its request on the first part of what the user says: a replay has it too. */
export function withEcho([first, ...others]: Part[], request: JsonObject): Part[] {
  const given = Object.keys(DEFAULTS).filter((name) => request[name] != null);
  const echo = Object.fromEntries(given.map((name) => [name, request[name]]));
  return [{ ...first, partMetadata: { ...first?.partMetadata, [NOTE]: echo } }, ...others];
}

function readEcho(first: Event | undefined): JsonObject {
  const echo = (getParts(first?.content)[0]?.partMetadata?.[NOTE] ?? {}) as JsonObject;
  const absent = { description: null, parameters: null, strict: null };
  const tools = ((echo['tools'] ?? []) as JsonObject[]).map((tool) => ({ ...absent, ...tool }));
  return { ...DEFAULTS, ...echo, tools };
}

/** Reasons of a model to stop that leave an answer incomplete. */
const CUT_SHORT: Record<string, string> = { MAX_TOKENS: 'max_output_tokens', SAFETY: 'content_filter' };
/** The state of a response. */
type Status = 'queued' | 'in_progress' | 'completed' | 'failed' | 'incomplete' | 'cancelled';
/** The status of a response by that of its invocation, but for one that has an answer. */
const FAILURES: Record<string, Status> = { failed: 'failed', interrupted: 'cancelled', cancelled: 'cancelled' };
/** Codes of failures that are `rate_limit_exceeded`; others are `server_error`: the protocol's list is closed. */
const LIMITS = new Set<string | undefined>(['budget_exceeded', 'model_rate_limited']);

/** A response, as far as the steps of its invocation say it: always the same of the same steps. */
export class ResponseState {
  /** The items that the user brought. */
  readonly said: Item[] = [];
  readonly output: Item[] = [];
  /** False before the answer to a call with which it begins. */
  isShown: boolean;
  isOver = false;
  /** Sequence of its last event. */
  lastSequence = 0;
  readonly #ref: ResponseRef;
  readonly #toItems: ReturnType<typeof itemReader>;
  readonly #used: UsageMetadata[] = [];
  #status: Status = 'queued';
  #error: Invocation['error'];
  #first: Event | undefined;
  #lastTime = 0;
  #finishReason: string | undefined;

  constructor(ref: ResponseRef) {
    this.#ref = ref;
    this.#toItems = itemReader(ref.key.appName);
    this.isShown = ref.answered === undefined;
  }

  /** Takes a whole event or the end. @returns the items of the output that come with it */
  take(step: TurnStep): Item[] {
    if (this.isOver || step.kind === 'text' || step.kind === 'void') return [];
    if (step.kind === 'end') {
      if (this.isShown) this.end(step.invocation);
      return [];
    }
    const { event, sequence } = step;
    const isUser = event.author === 'user';
    const answers = isUser ? getFunctionResponses(event.content) : [];
    if (answers.length > 0 && this.#first) {
      // The rest of the invocation is a response of its own.
      this.end({ status: 'paused', endTime: event.timestamp ?? undefined });
      return [];
    }
    this.isShown ||= answers.some(({ id }) => id === this.#ref.answered);
    // The calls before it may be answered in it.
    const items = this.#toItems(event);
    if (!this.isShown) return [];
    if (!this.#first) [this.#first, this.#status] = [event, 'in_progress'];
    this.lastSequence = sequence;
    this.#lastTime = event.timestamp ?? this.#lastTime;
    this.#finishReason = event.finishReason ?? this.#finishReason;
    if (event.usageMetadata) this.#used.push(event.usageMetadata);
    (isUser ? this.said : this.output).push(...items);
    return isUser ? [] : items;
  }

  /** Ends it as its invocation ended, or paused. */
  end({ status, error, endTime }: Pick<Invocation, 'status' | 'error' | 'endTime'>): void {
    const isCut = Object.hasOwn(CUT_SHORT, this.#finishReason ?? '');
    this.#status = FAILURES[status] ?? (isCut ? 'incomplete' : 'completed');
    this.#error = error;
    this.#lastTime = endTime ?? this.#lastTime;
    this.isOver = true;
  }

  /** Returns it as it is, or as it began. */
  toResponse(status = this.#status, output = this.output): Response {
    const { code, message = 'It failed.' } = this.#error ?? {};
    const failure = { code: LIMITS.has(code) ? 'rate_limit_exceeded' : 'server_error', message };
    const { key } = this.#ref;
    const isOver = status !== 'queued' && status !== 'in_progress';
    return {
      id: toResponseId(this.#ref),
      object: 'response',
      created_at: Math.floor(this.#first?.timestamp ?? 0),
      completed_at: isOver ? Math.floor(this.#lastTime) : null,
      status,
      error: status === 'failed' ? failure : null,
      incomplete_details: status === 'incomplete' ? { reason: CUT_SHORT[this.#finishReason ?? ''] } : null,
      model: key.appName,
      conversation: { id: toConversationId(key) },
      ...readEcho(this.#first),
      output: [...output],
      usage: isOver ? toUsage(this.#used) : null,
    } as unknown as Response;
  }
}

function toUsage(used: readonly UsageMetadata[]): Response['usage'] {
  type Count = 'promptTokenCount' | 'cachedContentTokenCount' | 'candidatesTokenCount' | 'thoughtsTokenCount';
  const sum = (name: Count) => used.reduce((total, each) => total + (each[name] ?? 0), 0);
  const [input, reasoning] = [sum('promptTokenCount'), sum('thoughtsTokenCount')];
  const output = sum('candidatesTokenCount') + reasoning;
  return {
    input_tokens: input,
    input_tokens_details: { cached_tokens: sum('cachedContentTokenCount'), cache_write_tokens: 0 },
    output_tokens: output,
    output_tokens_details: { reasoning_tokens: reasoning },
    total_tokens: input + output,
  };
}

/** Reads a response as far as it has come or, with a signal, to its end; not to that where it is left before. */
export async function readResponse(context: InvocationContext, ref: ResponseRef, signal?: AbortSignal) {
  const state = new ResponseState(ref);
  const turn = { ...ref, withText: false, isSoFar: signal === undefined };
  for await (const step of readTurn(context, turn, signal ?? new AbortController().signal)) {
    state.take(step);
    if (state.isOver) break;
  }
  return state;
}

/** Waits for the end of a response. @throws {HandedOverError} where this process stops before */
export async function waitForEnd(context: InvocationContext, ref: ResponseRef, client: HttpResponse) {
  const left = new AbortController();
  client.once('close', () => left.abort());
  const state = await readResponse(context, ref, AbortSignal.any([left.signal, context.draining]));
  if (!state.isOver) throw new HandedOverError(ref.invocationId);
  return state.toResponse();
}
