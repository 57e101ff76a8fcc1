import { hash } from 'node:crypto';
import { CONFIRMATION_CALL } from '../../../agent/loop/confirmation.ts';
import {
  type FunctionCall,
  getFunctionCalls,
  getFunctionResponses,
  getParts,
  type JsonObject,
} from '../../../core/content.ts';
import type { Event } from '../../../core/event.ts';
import type { UsageMetadata } from '../../../core/model-metadata.ts';
import type { Invocation } from '../../../invocations/invocation.ts';
import { isProvisional } from '../open-calls.ts';
import type { TurnStep } from '../turn.ts';
import { toFailureCode } from './errors.ts';
import { type ResponseRef, toResponseId } from './ids.ts';
import { readEcho } from './echo.ts';

/** An event of a streamed response. */
export type ResponseEvent = { type: string; sequence_number: number; response?: JsonObject } & JsonObject;

/** The state of a response. */
type Status = 'queued' | 'in_progress' | 'completed' | 'failed' | 'incomplete' | 'cancelled';

/** An open text item, of an answer or of reasoning. */
interface OpenText {
  type: 'message' | 'reasoning';
  id: string;
  text: string;
}

/** The names of a text's events, and the members that these have. */
const TEXTS = {
  message: { text: 'output_text', part: 'content_part', place: { content_index: 0 }, more: { logprobs: [] } },
  reasoning: { text: 'reasoning_summary_text', part: 'reasoning_summary_part', place: { summary_index: 0 }, more: {} },
};

/** Reasons of a model to stop that leave an answer incomplete. */
const CUT_SHORT: Record<string, string> = { MAX_TOKENS: 'max_output_tokens', SAFETY: 'content_filter' };
const BEGUN = 'in_progress';
/** The status of a response by that of its invocation, but for one that has an answer. */
const FAILURES: Record<string, Status> = { failed: 'failed', interrupted: 'cancelled', cancelled: 'cancelled' };

/** Returns the event that ends a stream whose text was taken back. */
export function toBrokenEvent(sequence_number: number): ResponseEvent {
  const message = 'The answer began again, as the process that made it is gone: read it from its first event.';
  return { type: 'error', sequence_number, code: 'server_error', message, param: null };
}

/**
 * Converts the steps of an invocation to the events of a response and to the response itself, as a pure function of
 * the steps: a client that comes back goes on by their numbers. Those jump, by the id of the event to come, where text
 * of one begins: the numbers of text that was taken back are nobody else's.
 */
export class ResponseWriter {
  /** The words of the user in it. */
  readonly said: Event[] = [];
  /** Sequence of its last event. */
  lastSequence = 0;
  /** True behind the last event. */
  isOver = false;
  readonly #ref: ResponseRef;
  readonly #isWhole: boolean;
  readonly #output: JsonObject[] = [];
  readonly #calls = new Map<string, FunctionCall>();
  readonly #used: UsageMetadata[] = [];
  #number = -1;
  #open: OpenText | undefined;
  #textOf: string | undefined;
  #isShown: boolean;
  #first: Event | undefined;
  #finishReason: string | undefined;
  #lastTime = 0;
  #ended: JsonObject | undefined;

  /** @param isWhole - true: it goes on behind answers to calls, with which a response of its own begins [false] */
  constructor(ref: ResponseRef, isWhole = false) {
    this.#ref = ref;
    this.#isWhole = isWhole;
    this.#isShown = ref.answered === undefined;
  }

  /** The items so far. */
  get output(): readonly JsonObject[] {
    return this.#output;
  }

  /** Takes a step of the invocation: of those before the response only the calls count, of those behind it none. */
  *take(step: TurnStep): Generator<ResponseEvent> {
    if (this.isOver) return;
    const event = step.kind === 'event' ? step.event : undefined;
    const answers = event?.author === 'user' ? getFunctionResponses(event.content) : [];
    if (answers.length > 0 && this.#first && !this.#isWhole) {
      yield* this.end({ status: 'paused', endTime: event?.timestamp ?? undefined });
      return;
    }
    this.#isShown ||= answers.some(({ id }) => id === this.#ref.answered);
    if (!this.#isShown) {
      // The calls before it may be answered in it.
      if (event) this.#noteCalls(event);
    } else if (step.kind === 'void') {
      // What was sent of it will not come again.
      this.isOver = true;
      yield toBrokenEvent(this.#number + 1);
    } else if (step.kind === 'end') yield* this.end(step.invocation);
    else if (step.kind === 'text') yield* this.#takeText(step);
    else yield* this.#takeEvent(step);
  }

  /** Ends the response as its invocation ended, or paused. */
  *end(end: Pick<Invocation, 'status' | 'error' | 'endTime'>): Generator<ResponseEvent> {
    yield* this.#closeText();
    if (end.endTime !== undefined) this.#lastTime = end.endTime;
    const isCut = Object.hasOwn(CUT_SHORT, this.#finishReason ?? '');
    const status = FAILURES[end.status] ?? (isCut ? 'incomplete' : 'completed');
    this.isOver = true;
    this.#ended = this.#toResponse(status, end.error);
    // There is no event for a cancelled one.
    yield this.#event(`response.${status === 'cancelled' ? 'incomplete' : status}`, { response: this.#ended });
  }

  /** The response as far as it has come. */
  get response(): JsonObject {
    return this.#ended ?? this.#toResponse(this.#first ? 'in_progress' : 'queued');
  }

  #toResponse(status: Status, error?: Invocation['error']): JsonObject {
    const { key } = this.#ref;
    const cut = status === 'incomplete' ? CUT_SHORT[this.#finishReason ?? ''] : undefined;
    const failure = { code: toFailureCode(error?.code ?? ''), message: error?.message ?? 'It failed.' };
    return {
      id: toResponseId(this.#ref),
      object: 'response',
      created_at: Math.floor(this.#first?.timestamp ?? 0),
      completed_at: this.isOver ? Math.floor(this.#lastTime) : null,
      status,
      error: status === 'failed' ? failure : null,
      incomplete_details: cut === undefined ? null : { reason: cut },
      ...readEcho(key, this.#first),
      output: [...this.#output],
      usage: this.isOver ? toUsage(this.#used) : null,
    };
  }

  *#begin(event: Event): Generator<ResponseEvent> {
    if (this.#first) return;
    this.#first = event;
    const response = this.#toResponse('in_progress');
    for (const type of ['response.created', 'response.in_progress']) yield this.#event(type, { response });
  }

  *#takeText(step: TurnStep & { kind: 'text' }): Generator<ResponseEvent> {
    const { eventId, part, isThought, text: delta } = step;
    // Text without a request before it: the invocation goes on from an earlier one.
    yield* this.#begin({ timestamp: 0 });
    const type = isThought ? 'reasoning' : 'message';
    const { text, part: partName, place, more } = TEXTS[type];
    const id = `${isThought ? 'rs' : 'msg'}_${eventId}_${part}`;
    if (this.#open?.id !== id) {
      yield* this.#closeText();
      if (this.#textOf !== eventId) this.#number += parseInt(hash('sha1', eventId).slice(0, 8), 16);
      this.#textOf = eventId;
      this.#open = { type, id, text: '' };
      yield this.#add(toTextItem(this.#open, BEGUN));
      yield this.#ofItem(`response.${partName}.added`, { ...place, part: toTextPart(this.#open) });
    }
    this.#open.text += delta;
    yield this.#ofItem(`response.${text}.delta`, { ...place, delta, ...more });
  }

  *#closeText(): Generator<ResponseEvent> {
    const open = this.#open;
    if (!open) return;
    const { text, part, place, more } = TEXTS[open.type];
    yield this.#ofItem(`response.${text}.done`, { ...place, text: open.text, ...more });
    yield this.#ofItem(`response.${part}.done`, { ...place, part: toTextPart(open) });
    yield this.#done(toTextItem(open, 'completed'));
    this.#open = undefined;
  }

  *#takeEvent({ event, sequence }: TurnStep & { kind: 'event' }): Generator<ResponseEvent> {
    yield* this.#begin(event);
    yield* this.#closeText();
    this.lastSequence = sequence;
    this.#lastTime = event.timestamp ?? this.#lastTime;
    if (event.usageMetadata) this.#used.push(event.usageMetadata);
    this.#noteCalls(event);
    if (event.author === 'user') {
      this.said.push(event);
      return;
    }
    this.#finishReason = event.finishReason ?? this.#finishReason;
    for (const [index, { functionCall, inlineData }] of getParts(event.content).entries()) {
      if (functionCall) yield* this.#takeCall(functionCall, event);
      if (!inlineData?.data || !inlineData.mimeType?.startsWith('image/')) continue;
      const image = { type: 'image_generation_call', status: 'completed', result: inlineData.data };
      yield* this.#whole({ id: `ig_${event.id}_${index}`, ...image });
    }
    for (const response of getFunctionResponses(event.content))
      if (!isProvisional(event, response.id)) yield* this.#takeResult(response.id ?? '', response.response ?? {});
  }

  /** A call that the client answers; those that the service runs are shown once they have answered. */
  *#takeCall({ id, name, args }: FunctionCall, { longRunningToolIds }: Event): Generator<ResponseEvent> {
    if (!id || !longRunningToolIds?.includes(id)) return;
    if (name === CONFIRMATION_CALL) {
      const original = (args?.['originalFunctionCall'] ?? {}) as FunctionCall;
      const asked = { name: original.name ?? '', arguments: JSON.stringify(original.args ?? {}) };
      yield* this.#whole({ id, type: 'mcp_approval_request', server_label: this.#ref.key.appName, ...asked });
      return;
    }
    const item = { id: `fc_${id}`, type: 'function_call', call_id: id, name: name ?? '' };
    const text = JSON.stringify(args ?? {});
    yield* this.#whole({ ...item, arguments: text, status: 'completed' }, { ...item, arguments: '', status: BEGUN }, [
      ['response.function_call_arguments.delta', { delta: text }],
      ['response.function_call_arguments.done', { name: item.name, arguments: text }],
    ]);
  }

  *#takeResult(id: string, response: JsonObject): Generator<ResponseEvent> {
    const call = this.#calls.get(id);
    if (!call) return;
    const { error } = response;
    const text = JSON.stringify(call.args ?? {});
    const item = { id: `mcp_${id}`, type: 'mcp_call', server_label: this.#ref.key.appName, name: call.name ?? '' };
    const begun = { ...item, arguments: '', output: null, error: null, approval_request_id: null };
    const result =
      error === undefined
        ? { status: 'completed', output: JSON.stringify(response) }
        : { status: 'failed', error: typeof error === 'string' ? error : JSON.stringify(error) };
    yield* this.#whole({ ...begun, arguments: text, ...result }, { ...begun, status: BEGUN }, [
      ['response.mcp_call.in_progress', {}],
      ['response.mcp_call_arguments.delta', { delta: text }],
      ['response.mcp_call_arguments.done', { arguments: text }],
      [`response.mcp_call.${result.status}`, {}],
    ]);
  }

  /** Calls that the service answers by itself, of an agent as a tool too. */
  #noteCalls({ content, longRunningToolIds, author }: Event): void {
    if (author === 'user') return;
    for (const call of getFunctionCalls(content))
      if (call.id && !longRunningToolIds?.includes(call.id)) this.#calls.set(call.id, call);
  }

  /** An item that comes at once, with the events between its beginning and its end. */
  *#whole(item: JsonObject, begun = item, between: [string, JsonObject][] = []): Generator<ResponseEvent> {
    yield this.#add(begun);
    for (const [type, members] of between) yield this.#ofItem(type, members);
    yield this.#done(item);
  }

  #add(item: JsonObject): ResponseEvent {
    this.#output.push(item);
    return this.#event('response.output_item.added', { output_index: this.#output.length - 1, item });
  }

  #done(item: JsonObject): ResponseEvent {
    this.#output[this.#output.length - 1] = item;
    return this.#event('response.output_item.done', { output_index: this.#output.length - 1, item });
  }

  #ofItem(type: string, members: JsonObject): ResponseEvent {
    const index = this.#output.length - 1;
    return this.#event(type, { item_id: this.#output[index]?.['id'], output_index: index, ...members });
  }

  #event(type: string, members: JsonObject): ResponseEvent {
    this.#number += 1;
    return { type, sequence_number: this.#number, ...members };
  }
}

const toTextPart = ({ type, text }: OpenText): JsonObject =>
  type === 'reasoning' ? { type: 'summary_text', text } : { type: 'output_text', text, annotations: [], logprobs: [] };

function toTextItem(open: OpenText, status: typeof BEGUN | 'completed'): JsonObject {
  const { type, id } = open;
  const parts = status === BEGUN ? [] : [toTextPart(open)];
  return type === 'reasoning' ? { id, type, summary: parts } : { id, type, status, role: 'assistant', content: parts };
}

function toUsage(used: readonly UsageMetadata[]) {
  type Count = 'promptTokenCount' | 'cachedContentTokenCount' | 'candidatesTokenCount' | 'thoughtsTokenCount';
  const sum = (name: Count) => used.reduce((total, each) => total + (each[name] ?? 0), 0);
  const [input, reasoning] = [sum('promptTokenCount'), sum('thoughtsTokenCount')];
  const output = sum('candidatesTokenCount') + reasoning;
  return {
    input_tokens: input,
    input_tokens_details: { cached_tokens: sum('cachedContentTokenCount') },
    output_tokens: output,
    output_tokens_details: { reasoning_tokens: reasoning },
    total_tokens: input + output,
  };
}
