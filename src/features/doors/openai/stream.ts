import { hash } from 'node:crypto';
import type { ResponseStreamEvent } from 'openai/resources/responses/responses';
import type { JsonObject } from '../../../core/content.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { readTurn, type TurnStep } from '../turn.ts';
import type { ResponseRef } from './ids.ts';
import { type Item, toTextItem } from './items.ts';
import { ResponseState } from './response.ts';

/** The names of a text's events, and the members that these have. */
const TEXTS = {
  message: { text: 'output_text', part: 'content_part', place: { content_index: 0 }, more: { logprobs: [] } },
  reasoning: { text: 'reasoning_summary_text', part: 'reasoning_summary_part', place: { summary_index: 0 }, more: {} },
};

/** The members that items do not have yet when they begin, by their type. */
const BEGINNINGS: Record<string, JsonObject> = {
  message: { content: [], status: 'in_progress' },
  reasoning: { summary: [] },
  function_call: { arguments: '', status: 'in_progress' },
  mcp_call: { arguments: '', output: null, error: null, status: 'in_progress' },
};

/** Returns the event that ends a stream whose text was taken back. */
export function toBrokenEvent(sequence_number: number): ResponseStreamEvent {
  const message = 'The answer began again, as the process that made it is gone: read it from its first event.';
  return { type: 'error', sequence_number, code: 'server_error', message, param: null };
}

/**
 * Converts the steps of an invocation to the events of a response, as a pure function of the steps: a client that comes
 * back goes on by their numbers. Those jump, by the id of the event to come, where text of one begins: the numbers of
 * text that was taken back are nobody else's.
 */
class EventWriter {
  readonly #state: ResponseState;
  /** The item of the last event, and its place in the output. */
  #item: Item | undefined;
  #index = -1;
  #number = -1;
  #text: { id: string; isThought: boolean; text: string } | undefined;
  #textOf: string | undefined;

  constructor(state: ResponseState) {
    this.#state = state;
  }

  *take(step: TurnStep): Generator<ResponseStreamEvent> {
    const state = this.#state;
    const items = state.take(step);
    if (!state.isShown) return;
    if (this.#number < 0)
      for (const type of ['created', 'in_progress'])
        yield this.#event(type, { response: state.toResponse('in_progress', []) });
    if (step.kind === 'void') {
      // What was sent of it will not come again.
      state.isOver = true;
      yield toBrokenEvent(this.#number + 1);
    } else if (step.kind === 'text') yield* this.#takeText(step);
    else {
      yield* this.#closeText();
      // The pieces of its texts have come before.
      for (const item of items) if (!(item.type in TEXTS)) yield* this.#takeItem(item);
      if (!state.isOver) return;
      const response = state.toResponse();
      // There is no event for a cancelled one.
      yield this.#event(response.status === 'cancelled' ? 'incomplete' : `${response.status}`, { response });
    }
  }

  *#takeText({ eventId, part, isThought, text: delta }: TurnStep & { kind: 'text' }): Generator<ResponseStreamEvent> {
    const { text, part: partName, place, more } = TEXTS[isThought ? 'reasoning' : 'message'];
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
    yield this.#ofItem(`${text}.delta`, { ...place, delta, ...more });
  }

  *#closeText(): Generator<ResponseStreamEvent> {
    if (!this.#text) return;
    const { id, isThought, text } = this.#text;
    const { text: textName, part: partName, place, more } = TEXTS[isThought ? 'reasoning' : 'message'];
    const item = toTextItem(id, isThought, text);
    yield this.#ofItem(`${textName}.done`, { ...place, text, ...more });
    yield this.#ofItem(`${partName}.done`, { ...place, part: getPart(item) });
    yield this.#event('output_item.done', { output_index: this.#index, item });
    this.#text = undefined;
  }

  /** Takes an item that comes at once. */
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
    const begun = { ...item, ...BEGINNINGS[item.type] };
    return this.#event('output_item.added', { output_index: this.#index, item: begun });
  }

  #ofItem(type: string, members: JsonObject): ResponseStreamEvent {
    return this.#event(type, { item_id: this.#item?.id, output_index: this.#index, ...members });
  }

  #event(type: string, members: JsonObject): ResponseStreamEvent {
    this.#number += 1;
    return { type: `response.${type}`, sequence_number: this.#number, ...members } as unknown as ResponseStreamEvent;
  }
}

/** Returns the one part of a text. */
const getPart = (item: Item) => (item.type === 'reasoning' ? item.summary[0] : 'content' in item && item.content?.[0]);

/** Yields the events of a response, the same each time. Without a last one it goes on elsewhere. */
export async function* readEvents(context: InvocationContext, ref: ResponseRef, signal: AbortSignal) {
  const state = new ResponseState(ref);
  const writer = new EventWriter(state);
  for await (const step of readTurn(context, ref, signal)) {
    yield* writer.take(step);
    if (state.isOver) return;
  }
}
