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
import type { Invocation } from '../../../invocations/invocation.ts';
import { isProvisional } from '../open-calls.ts';
import type { TurnStep } from '../turn.ts';
import { toFailureCode } from './errors.ts';
import { type ResponseRef, toResponseId } from './ids.ts';
import { readEcho } from './echo.ts';

/** An event of a streamed response. */
export type ResponseEvent = { type: string; sequence_number: number; response?: JsonObject } & JsonObject;

/** How a response stands. */
type Status = 'queued' | 'in_progress' | 'completed' | 'failed' | 'incomplete' | 'cancelled';

/** An open text item, of an answer or of reasoning. */
interface OpenText {
  id: string;
  isThought: boolean;
  text: string;
}

/** Reasons of a model to stop that leave an answer incomplete. */
const CUT_SHORT: Record<string, string> = { MAX_TOKENS: 'max_output_tokens', SAFETY: 'content_filter' };
const BEGAN_AGAIN = 'The answer began again, as the process that made it is gone: read it from its first event.';

/** Returns the event that ends a stream whose text was taken back. */
export const toBrokenEvent = (sequence_number: number): ResponseEvent => ({
  type: 'error',
  sequence_number,
  code: 'server_error',
  message: BEGAN_AGAIN,
  param: null,
});

/**
 * Converts the steps of an invocation to the events of a response and to the response itself, as a pure function of
 * the steps: a client that comes back goes on by their numbers. Those jump, by the id of the event to come, where text
 * of one begins: the numbers of text that was taken back are nobody else's.
 */
export class ResponseWriter {
  readonly #ref: ResponseRef;
  readonly #output: JsonObject[] = [];
  readonly #calls = new Map<string, FunctionCall>();
  readonly #usage = { prompt: 0, cached: 0, output: 0, reasoning: 0 };
  #number = -1;
  #text: OpenText | undefined;
  #textOf: string | undefined;
  #first: Event | undefined;
  #finishReason: string | undefined;
  #lastTime = 0;
  #isBroken = false;

  constructor(ref: ResponseRef) {
    this.#ref = ref;
  }

  /** True once the first step was taken. */
  get hasBegun(): boolean {
    return this.#first !== undefined;
  }

  /** The items so far. */
  get output(): readonly JsonObject[] {
    return this.#output;
  }

  /** Takes a step for its items alone. */
  takeAll(step: TurnStep): void {
    for (const _ of this.take(step));
  }

  /** Looks at a step that belongs to an earlier response of the same invocation. */
  note(step: TurnStep): void {
    if (step.kind === 'event') this.#noteCalls(step.event);
  }

  /** Takes a step. */
  *take(step: TurnStep): Generator<ResponseEvent> {
    if (this.#isBroken) return;
    if (step.kind === 'void') {
      // What was sent of it will not come again.
      this.#isBroken = true;
      yield toBrokenEvent(this.#number + 1);
    } else if (step.kind === 'end') yield* this.end(step.invocation);
    else if (step.kind === 'text') yield* this.#takeText(step);
    else yield* this.#takeEvent(step.event);
  }

  /** Ends the response as its invocation ended, or paused. */
  *end(end: Pick<Invocation, 'status' | 'error' | 'endTime'>): Generator<ResponseEvent> {
    yield* this.#closeText();
    if (end.endTime !== undefined) this.#lastTime = end.endTime;
    const status = this.#toStatus(end.status);
    // There is no event for a cancelled one.
    const type = status === 'cancelled' ? 'incomplete' : status;
    yield this.#event(`response.${type}`, { response: this.toResponse(status, end.error) });
  }

  /** Returns the response as far as it has come. */
  toResponse(status: Status, error?: Invocation['error']): JsonObject {
    const { key } = this.#ref;
    const { prompt, cached, output, reasoning } = this.#usage;
    const isOver = status !== 'queued' && status !== 'in_progress';
    const cut = status === 'incomplete' ? CUT_SHORT[this.#finishReason ?? ''] : undefined;
    const usage = {
      input_tokens: prompt,
      input_tokens_details: { cached_tokens: cached },
      output_tokens: output,
      output_tokens_details: { reasoning_tokens: reasoning },
      total_tokens: prompt + output,
    };
    return {
      id: toResponseId(this.#ref),
      object: 'response',
      created_at: Math.floor(this.#first?.timestamp ?? 0),
      completed_at: isOver ? Math.floor(this.#lastTime) : null,
      status,
      error:
        status === 'failed'
          ? { code: toFailureCode(error?.code ?? ''), message: error?.message ?? 'It failed.' }
          : null,
      incomplete_details: cut === undefined ? null : { reason: cut },
      ...readEcho(key, this.#first),
      output: [...this.#output],
      usage: isOver ? usage : null,
    };
  }

  #toStatus(status: Invocation['status']): Status {
    if (status === 'failed') return 'failed';
    if (status === 'interrupted' || status === 'cancelled') return 'cancelled';
    return this.#finishReason && Object.hasOwn(CUT_SHORT, this.#finishReason) ? 'incomplete' : 'completed';
  }

  *#begin(event: Event): Generator<ResponseEvent> {
    if (this.#first) return;
    this.#first = event;
    for (const type of ['response.created', 'response.in_progress'])
      yield this.#event(type, { response: this.toResponse('in_progress') });
  }

  *#takeText(step: TurnStep & { kind: 'text' }): Generator<ResponseEvent> {
    const { eventId, part, isThought, text: delta } = step;
    // Text without a request before it: the invocation goes on from an earlier one.
    yield* this.#begin({ timestamp: 0 });
    const id = `${isThought ? 'rs' : 'msg'}_${eventId}_${part}`;
    if (this.#text?.id !== id) {
      yield* this.#closeText();
      if (this.#textOf !== eventId) this.#number += parseInt(hash('sha1', eventId).slice(0, 8), 16);
      this.#textOf = eventId;
      yield* this.#openText({ id, isThought, text: '' });
    }
    const open = this.#text as OpenText;
    open.text += delta;
    if (isThought) yield this.#ofItem('response.reasoning_summary_text.delta', { summary_index: 0, delta });
    else yield this.#ofItem('response.output_text.delta', { content_index: 0, delta, logprobs: [] });
  }

  *#openText(text: OpenText): Generator<ResponseEvent> {
    this.#text = text;
    yield this.#add(toTextItem(text, 'in_progress'));
    if (text.isThought)
      yield this.#ofItem('response.reasoning_summary_part.added', { summary_index: 0, part: toTextPart(text, '') });
    else yield this.#ofItem('response.content_part.added', { content_index: 0, part: toTextPart(text, '') });
  }

  *#closeText(): Generator<ResponseEvent> {
    const open = this.#text;
    if (!open) return;
    const { text } = open;
    if (open.isThought) {
      yield this.#ofItem('response.reasoning_summary_text.done', { summary_index: 0, text });
      yield this.#ofItem('response.reasoning_summary_part.done', { summary_index: 0, part: toTextPart(open, text) });
    } else {
      yield this.#ofItem('response.output_text.done', { content_index: 0, text, logprobs: [] });
      yield this.#ofItem('response.content_part.done', { content_index: 0, part: toTextPart(open, text) });
    }
    yield this.#done(toTextItem(open, 'completed'));
    this.#text = undefined;
  }

  *#takeEvent(event: Event): Generator<ResponseEvent> {
    yield* this.#begin(event);
    yield* this.#closeText();
    this.#lastTime = event.timestamp ?? this.#lastTime;
    this.#count(event);
    this.#noteCalls(event);
    if (event.author === 'user') return;
    this.#finishReason = event.finishReason ?? this.#finishReason;
    for (const [index, { functionCall, inlineData }] of getParts(event.content).entries()) {
      if (functionCall) yield* this.#takeCall(functionCall, event);
      if (inlineData?.data && inlineData.mimeType?.startsWith('image/'))
        yield* this.#whole({
          id: `ig_${event.id}_${index}`,
          type: 'image_generation_call',
          status: 'completed',
          result: inlineData.data,
        });
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
    yield this.#add({ ...item, arguments: '', status: 'in_progress' });
    yield this.#ofItem('response.function_call_arguments.delta', { delta: text });
    yield this.#ofItem('response.function_call_arguments.done', { name: item.name, arguments: text });
    yield this.#done({ ...item, arguments: text, status: 'completed' });
  }

  *#takeResult(id: string, response: JsonObject): Generator<ResponseEvent> {
    const call = this.#calls.get(id);
    if (!call) return;
    const { error } = response;
    const text = JSON.stringify(call.args ?? {});
    const item = { id: `mcp_${id}`, type: 'mcp_call', server_label: this.#ref.key.appName, name: call.name ?? '' };
    const begun = { ...item, arguments: '', output: null, error: null, approval_request_id: null };
    yield this.#add({ ...begun, status: 'in_progress' });
    yield this.#ofItem('response.mcp_call.in_progress', {});
    yield this.#ofItem('response.mcp_call_arguments.delta', { delta: text });
    yield this.#ofItem('response.mcp_call_arguments.done', { arguments: text });
    yield this.#ofItem(error === undefined ? 'response.mcp_call.completed' : 'response.mcp_call.failed', {});
    const result =
      error === undefined
        ? { status: 'completed', output: JSON.stringify(response) }
        : { status: 'failed', error: typeof error === 'string' ? error : JSON.stringify(error) };
    yield this.#done({ ...begun, arguments: text, ...result });
  }

  /** Calls that the service answers by itself, of an agent as a tool too. */
  #noteCalls({ content, longRunningToolIds, author }: Event): void {
    if (author === 'user') return;
    for (const call of getFunctionCalls(content))
      if (call.id && !longRunningToolIds?.includes(call.id)) this.#calls.set(call.id, call);
  }

  #count({ usageMetadata: used }: Event): void {
    const usage = this.#usage;
    usage.prompt += used?.promptTokenCount ?? 0;
    usage.cached += used?.cachedContentTokenCount ?? 0;
    usage.reasoning += used?.thoughtsTokenCount ?? 0;
    usage.output += (used?.candidatesTokenCount ?? 0) + (used?.thoughtsTokenCount ?? 0);
  }

  *#whole(item: JsonObject): Generator<ResponseEvent> {
    yield this.#add(item);
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

const toTextPart = ({ isThought }: OpenText, text: string): JsonObject =>
  isThought ? { type: 'summary_text', text } : { type: 'output_text', text, annotations: [], logprobs: [] };

function toTextItem(text: OpenText, status: 'in_progress' | 'completed'): JsonObject {
  const parts = status === 'completed' ? [toTextPart(text, text.text)] : [];
  if (text.isThought) return { id: text.id, type: 'reasoning', summary: parts };
  return { id: text.id, type: 'message', status, role: 'assistant', content: parts };
}
