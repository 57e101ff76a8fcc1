import { hash } from 'node:crypto';
import type { Response as HttpResponse } from 'express';
import type { Response, ResponseStatus, ResponseStreamEvent } from 'openai/resources/responses/responses';
import { HandedOverError } from '../../../core/errors.ts';
import { getParts, type JsonObject, type Part as ContentPart } from '../../../core/content.ts';
import type { Event } from '../../../core/event.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { type Invocation, isActive } from '../../../invocations/invocation.ts';
import { toTokens } from '../../../observability/tokens.ts';
import { untilGone } from '../door.ts';
import type { InvocationRef } from '../handle.ts';
import { Part, readTurn, type TurnStep } from '../turn.ts';
import { toConversationId, toResponseId } from './ids.ts';
import { type Item, createItemReader, toTextItem } from './items.ts';

/** Key in `partMetadata` of the message's first part. Its value is the request's parameters that a response repeats. */
const NOTE = 'openAiRequest';

/** Parameters that a response repeats from its request, with their defaults. */
const SAMPLING = { temperature: 1, top_p: 1, presence_penalty: 0, frequency_penalty: 0, top_logprobs: 0 };
const FORM = { instructions: null, reasoning: null, text: { format: { type: 'text' } }, max_output_tokens: null };
const TOOLS = { tools: [], tool_choice: 'auto', parallel_tool_calls: true, max_tool_calls: null };
const PLACE = { store: true, background: false, previous_response_id: null, metadata: {} };
const IGNORED = { prompt_cache_key: null, safety_identifier: null, service_tier: 'default', truncation: 'disabled' };
const DEFAULTS: JsonObject = { ...SAMPLING, ...FORM, ...TOOLS, ...PLACE, ...IGNORED };

/** Stores the request's parameters in the user's first message part, for later reads of the response. */
export function withEcho([first, ...others]: ContentPart[], request: JsonObject): ContentPart[] {
  const names = Object.keys(DEFAULTS).filter((name) => request[name] != null);
  const echo = Object.fromEntries(names.map((name) => [name, request[name]]));
  return [{ ...first, partMetadata: { ...first?.partMetadata, [NOTE]: echo } }, ...others];
}

function readEcho(first: Event | undefined): JsonObject {
  const echo = (getParts(first?.content)[0]?.partMetadata?.[NOTE] ?? {}) as JsonObject;
  const absent = { description: null, parameters: null, strict: null };
  const tools = ((echo['tools'] ?? []) as JsonObject[]).map((tool) => ({ ...absent, ...tool }));
  return { ...DEFAULTS, ...echo, tools };
}

/** Reasons for which a response is incomplete, by the model's finish reason. */
const CUT_SHORT: Record<string, string> = { MAX_TOKENS: 'max_output_tokens', SAFETY: 'content_filter' };
/**
 * Status of a response whose invocation did not succeed, by the status of the invocation. `cancelled` is for what a client
 * cancels; what a stop of the service or a newer message interrupts has failed.
 */
const FAILURES: Record<string, ResponseStatus> = { failed: 'failed', interrupted: 'failed', cancelled: 'cancelled' };
/** Error codes for `rate_limit_exceeded`; all others are `server_error`, because the API has a closed list of codes. */
const LIMITS = new Set<string | undefined>(['budget_exceeded', 'model_rate_limited']);

/** Builds a response from the steps of its invocation; the same steps always give the same response. */
export class ResponseState {
  readonly input: Item[] = [];
  readonly output: Item[] = [];
  lastSequence = 0;
  /** End of the response: the end of its invocation, or a pause. `undefined` while the response continues. */
  end: Pick<Invocation, 'status' | 'error' | 'endTime'> | undefined;
  readonly #events: Event[] = [];
  readonly #ref: InvocationRef;
  readonly part: Part;
  readonly #toItems: ReturnType<typeof createItemReader>;

  constructor(ref: InvocationRef) {
    this.#ref = ref;
    this.part = new Part(ref);
    this.#toItems = createItemReader(ref.key.appName);
  }

  /** Takes a step; only complete events and the end have an effect. @returns the output items that it adds */
  take(step: TurnStep): Item[] {
    if (this.end || step.kind === 'text' || step.kind === 'void') return [];
    const place = this.part.take(step);
    if (step.kind === 'end') {
      if (place !== 'before') this.end = step.invocation;
      return [];
    }
    const { event, sequence } = step;
    if (place === 'after') {
      this.end = { status: 'paused', endTime: event.timestamp ?? undefined };
      return [];
    }
    // Earlier events are converted too, because this response may answer their calls.
    const items = this.#toItems(event);
    if (place === 'before') return [];
    const isUser = event.author === 'user';
    this.lastSequence = sequence;
    this.#events.push(event);
    (isUser ? this.input : this.output).push(...items);
    return isUser ? [] : items;
  }

  /** Returns the response in its current state or, if `hasBegun`, as it was when the invocation began. */
  toResponse(hasBegun = false): Response {
    const { key } = this.#ref;
    const events = this.#events;
    const end = hasBegun ? undefined : this.end;
    const { code, message = 'It failed.' } = end?.error ?? {};
    const kind = LIMITS.has(code) ? 'rate_limit_exceeded' : 'server_error';
    // The AI SDK ignores an error without `type` and `param`; OpenAI's own packages ignore these two members.
    const failure = { code: kind, message, type: kind, param: null };
    const reason = CUT_SHORT[events.findLast(({ finishReason }) => finishReason)?.finishReason ?? ''];
    const stands = events.length > 0 ? 'in_progress' : 'queued';
    const status = end ? (FAILURES[end.status] ?? (reason ? 'incomplete' : 'completed')) : stands;
    return {
      id: toResponseId(this.#ref),
      object: 'response',
      created_at: Math.floor(events[0]?.timestamp ?? 0),
      completed_at: end ? Math.floor(end.endTime ?? events.at(-1)?.timestamp ?? 0) : null,
      status,
      error: status === 'failed' ? failure : null,
      incomplete_details: status === 'incomplete' ? { reason } : null,
      model: key.appName,
      conversation: { id: toConversationId(key) },
      ...readEcho(events[0]),
      output: hasBegun ? [] : [...this.output],
      usage: end ? toUsage(events) : null,
    } as unknown as Response;
  }
}

/** Returns a response with its status but without its content. */
export function toState(ref: InvocationRef, invocation: Invocation): Response {
  const state = new ResponseState(ref);
  if (!isActive(invocation)) state.end = invocation;
  const response = state.toResponse();
  const status = invocation.status === 'running' ? 'in_progress' : response.status;
  return { ...response, status, created_at: Math.floor(invocation.createTime), usage: null } as unknown as Response;
}

function toUsage(events: readonly Event[]): Response['usage'] {
  const tokens = events.map(toTokens);
  const sum = (name: keyof (typeof tokens)[number]) => tokens.reduce((total, each) => total + each[name], 0);
  const input = sum('input_tokens');
  const output = sum('output_tokens');
  return {
    input_tokens: input,
    input_tokens_details: { cached_tokens: sum('cache_read.input_tokens'), cache_write_tokens: 0 },
    output_tokens: output,
    output_tokens_details: { reasoning_tokens: sum('reasoning.output_tokens') },
    total_tokens: input + output,
  };
}

/**
 * Reads a response: with `client` at its end, otherwise in its current state.
 * @throws {HandedOverError} if the client disconnects or this process stops before the end
 */
export async function readResponse(context: InvocationContext, ref: InvocationRef, client?: HttpResponse) {
  const signal = client ? untilGone(context, client) : new AbortController().signal;
  const state = new ResponseState(ref);
  for await (const step of readTurn(context, { ...ref, withText: false, isSoFar: !client }, signal)) {
    state.take(step);
    if (state.end) return state;
  }
  if (client) throw new HandedOverError(ref, client.req.headers['idempotency-key'] !== undefined);
  return state;
}

/** Names of the events that stream a text, and the properties of these events, by the type of the item. */
const TEXTS = {
  message: { text: 'output_text', part: 'content_part', place: { content_index: 0 }, extra: { logprobs: [] } },
  reasoning: { text: 'reasoning_summary_text', part: 'reasoning_summary_part', place: { summary_index: 0 }, extra: {} },
};

/** Properties that are still empty when an item starts, by the type of the item. */
const BEGINNINGS: Record<string, JsonObject> = {
  message: { content: [], status: 'in_progress' },
  reasoning: { summary: [] },
  function_call: { arguments: '', status: 'in_progress' },
  mcp_call: { arguments: '', output: null, error: null, status: 'in_progress' },
};

/** Builds the event that ends a stream whose text was retracted. */
export function toBrokenEvent(sequence_number: number): ResponseStreamEvent {
  const message = 'The answer began again, as the process that made it is gone: read it from its first event.';
  return { type: 'error', sequence_number, code: 'server_error', message, param: null };
}

/**
 * The same steps always give the same event numbers, because clients resume by number. When a text starts, a hash of
 * the event's id is added, so that numbers of retracted text are not used again.
 */
class EventWriter extends ResponseState {
  /** The item that is being sent, and its index in the output. */
  #item: Item | undefined;
  #index = -1;
  #number = -1;
  #text: { id: string; isThought: boolean; text: string } | undefined;
  #textOf: string | undefined;

  *write(step: TurnStep): Generator<ResponseStreamEvent> {
    const items = this.take(step);
    if (this.part.place === 'before') return;
    if (this.#number < 0)
      for (const type of ['created', 'in_progress']) yield this.#event(type, { response: this.toResponse(true) });
    // The stream ends, because the protocol cannot retract text that was sent.
    if (step.kind === 'void') yield toBrokenEvent(this.#number + 1);
    else if (step.kind === 'text') yield* this.#takeText(step);
    else {
      yield* this.#closeText();
      // Items with text are skipped, because their text has already been sent in pieces.
      for (const item of items) if (!(item.type in TEXTS)) yield* this.#takeItem(item);
      if (!this.end) return;
      const response = this.toResponse();
      // A cancelled response ends with the event `incomplete`, because the API has no event for a cancellation.
      yield this.#event(response.status === 'cancelled' ? 'incomplete' : `${response.status}`, { response });
    }
  }

  *#takeText({ eventId, part, isThought, text: delta }: TurnStep & { kind: 'text' }): Generator<ResponseStreamEvent> {
    const { text, part: partName, place, extra } = TEXTS[isThought ? 'reasoning' : 'message'];
    const id = `${eventId}_${part}`;
    if (this.#text?.id !== id) {
      yield* this.#closeText();
      if (this.#textOf !== eventId) this.#number += parseInt(hash('sha1', eventId).slice(0, 8), 16);
      this.#textOf = eventId;
      this.#text = { id, isThought, text: '' };
      const item = toTextItem(id, isThought, '');
      yield this.#begin(item);
      yield this.#ofItem(`${partName}.added`, { ...place, part: getPart(item) });
    }
    this.#text.text += delta;
    yield this.#ofItem(`${text}.delta`, { ...place, delta, ...extra });
  }

  *#closeText(): Generator<ResponseStreamEvent> {
    if (!this.#text) return;
    const { id, isThought, text } = this.#text;
    const { text: textName, part: partName, place, extra } = TEXTS[isThought ? 'reasoning' : 'message'];
    const item = toTextItem(id, isThought, text);
    yield this.#ofItem(`${textName}.done`, { ...place, text, ...extra });
    yield this.#ofItem(`${partName}.done`, { ...place, part: getPart(item) });
    yield this.#event('output_item.done', { output_index: this.#index, item });
    this.#text = undefined;
  }

  /** Yields all events of an item that is already complete. */
  *#takeItem(item: Item): Generator<ResponseStreamEvent> {
    yield this.#begin(item);
    if (item.type === 'function_call' || item.type === 'mcp_call') {
      const { type, name, arguments: text, status } = item;
      const isOwn = type === 'mcp_call';
      if (isOwn) yield this.#ofItem('mcp_call.in_progress', {});
      yield this.#ofItem(`${type}_arguments.delta`, { delta: text });
      yield this.#ofItem(`${type}_arguments.done`, isOwn ? { arguments: text } : { name, arguments: text });
      if (isOwn) yield this.#ofItem(`mcp_call.${status}`, {});
    }
    yield this.#event('output_item.done', { output_index: this.#index, item });
  }

  #begin(item: Item): ResponseStreamEvent {
    this.#item = item;
    this.#index += 1;
    const started = { ...item, ...BEGINNINGS[item.type] };
    return this.#event('output_item.added', { output_index: this.#index, item: started });
  }

  #ofItem(type: string, members: JsonObject): ResponseStreamEvent {
    return this.#event(type, { item_id: this.#item?.id, output_index: this.#index, ...members });
  }

  #event(type: string, members: JsonObject): ResponseStreamEvent {
    this.#number += 1;
    return { type: `response.${type}`, sequence_number: this.#number, ...members } as unknown as ResponseStreamEvent;
  }
}

const getPart = (item: Item) => (item.type === 'reasoning' ? item.summary[0] : 'content' in item && item.content?.[0]);

/** Every reader of a response gets the same events. If the last is not terminal, the client can reconnect. */
export async function* readEvents(context: InvocationContext, ref: InvocationRef, signal: AbortSignal) {
  const writer = new EventWriter(ref);
  for await (const step of readTurn(context, ref, signal)) {
    yield* writer.write(step);
    if (writer.end || (step.kind === 'void' && writer.part.place !== 'before')) return;
  }
}
