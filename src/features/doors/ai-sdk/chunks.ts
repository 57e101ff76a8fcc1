import { CONFIRMATION_CALL, isConfirmed } from '../../../agent/loop/confirmation.ts';
import {
  type FunctionResponse,
  getFunctionResponses,
  getParts,
  type JsonObject,
  type Part,
} from '../../../core/content.ts';
import type { Event } from '../../../core/event.ts';
import type { Invocation } from '../../../invocations/invocation.ts';
import type { TurnStep } from '../turn.ts';

/** A chunk of the UI message stream; its `type` says which members it has. */
export type UiChunk = { type: string } & JsonObject;

/** Major versions of the package `ai` whose clients are served: each refuses a stream with a type that it lacks. */
export type AiVersion = '5' | '6' | '7';

/** Versions before it know no approvals. */
const APPROVALS_SINCE = '6';
/** Versions before it can neither take a step back nor be told of a decision. */
const RESETS_SINCE = '7';
const BEGAN_AGAIN = 'The answer began again. Resume the stream to read it.';
/** The step that is open without an event: what came of its event was taken back. */
const RESET = '';

/** Converts the steps of an invocation to chunks, as a pure function of them: clients go on by counting chunks. */
export class ChunkWriter {
  readonly #version: AiVersion;
  /** Id of the event that the open step began with. */
  #step: string | undefined;
  /** The text that is open. */
  #text: { id: string; kind: string } | undefined;
  /** Ids of the calls so far. */
  readonly #calls = new Set<string>();
  /** Calls that wait for a person, by the id of the request. */
  readonly #asked = new Map<string, string>();
  readonly #denied = new Set<string>();
  #isTakenBack = false;
  #finishReason: string | undefined;

  constructor(version: AiVersion) {
    this.#version = version;
  }

  *take(step: TurnStep): Generator<UiChunk> {
    if (this.#isTakenBack && step.kind !== 'end') {
      // The next attempt: it would show the text of both.
      yield { type: 'error', errorText: BEGAN_AGAIN };
      yield { type: 'finish', finishReason: 'other' };
    } else if (step.kind === 'text') yield* this.#takeText(step);
    else if (step.kind === 'void') yield* this.#takeBack();
    else if (step.kind === 'event') yield* this.#takeEvent(step.event);
    else yield* this.#end(step.invocation);
  }

  *#takeText({ eventId, part, isThought, text: delta }: TurnStep & { kind: 'text' }): Generator<UiChunk> {
    yield* this.#beginStep(eventId);
    const id = `${eventId}.${part}`;
    const kind = isThought ? 'reasoning' : 'text';
    if (this.#text?.id !== id) {
      yield* this.#endText();
      yield { type: `${kind}-start`, id };
      this.#text = { id, kind };
    }
    yield { type: `${kind}-delta`, id, delta };
  }

  *#takeBack(): Generator<UiChunk> {
    if (this.#version >= RESETS_SINCE) {
      this.#text = undefined;
      this.#step = RESET;
      yield { type: 'reset-step' };
    } else this.#isTakenBack = true;
  }

  *#takeEvent(event: Event): Generator<UiChunk> {
    yield* this.#endText();
    const { id: eventId = '', author, content, actions, finishReason } = event;
    if (author === 'user') {
      for (const answer of getFunctionResponses(content)) yield* this.#takeAnswer(answer);
      return;
    }
    this.#finishReason = finishReason ?? this.#finishReason;
    for (const [index, part] of getParts(content).entries()) yield* this.#takePart(part, index, event);
    yield* toSources(event);
    for (const [name, data] of [
      ['state', actions?.stateDelta],
      ['artifacts', actions?.artifactDelta],
    ] as const)
      if (Object.keys(data ?? {}).length > 0) yield { type: `data-${name}`, id: eventId ?? '', data };
  }

  *#takePart(part: Part, index: number, event: Event): Generator<UiChunk> {
    const {
      functionCall,
      functionResponse,
      inlineData,
      fileData,
      text: _,
      thought: __,
      thoughtSignature: ___,
      ...rest
    } = part;
    const eventId = event.id ?? '';
    if (functionCall) {
      const { id, name, args } = functionCall;
      const original = args?.['originalFunctionCall'] as { id?: string } | undefined;
      if (name === CONFIRMATION_CALL && id && event.longRunningToolIds?.includes(id)) {
        yield* this.#ask(id, original?.id ?? '');
        return;
      }
      yield* this.#beginStep(eventId);
      this.#calls.add(id ?? '');
      yield {
        type: 'tool-input-available',
        toolCallId: id ?? '',
        toolName: name ?? '',
        input: args ?? {},
        dynamic: true,
      };
    } else if (functionResponse) {
      const { id } = functionResponse;
      // The answer until a person has decided says only that.
      const isProvisional = Object.hasOwn(event.actions?.requestedToolConfirmations ?? {}, id ?? '');
      if (!isProvisional && !this.#denied.has(id ?? '')) yield* this.#takeOutput(functionResponse);
    } else if (inlineData?.data || fileData?.fileUri) {
      yield* this.#beginStep(eventId);
      const mediaType = inlineData?.mimeType ?? fileData?.mimeType ?? 'application/octet-stream';
      yield {
        type: 'file',
        mediaType,
        url: inlineData ? `data:${mediaType};base64,${inlineData.data}` : fileData?.fileUri,
      };
    } else if (Object.keys(rest).length > 0) {
      yield* this.#beginStep(eventId);
      yield { type: 'data-part', id: `${eventId}.${index}`, data: rest };
    }
  }

  *#ask(approvalId: string, toolCallId: string): Generator<UiChunk> {
    if (!this.#calls.has(toolCallId)) return;
    this.#asked.set(approvalId, toolCallId);
    if (this.#version >= APPROVALS_SINCE) yield { type: 'tool-approval-request', approvalId, toolCallId };
    else yield { type: 'data-approval', id: approvalId, data: { approvalId, toolCallId } };
  }

  *#takeAnswer(answer: FunctionResponse): Generator<UiChunk> {
    const approvalId = answer.id ?? '';
    const toolCallId = this.#asked.get(approvalId);
    const approved = isConfirmed(answer);
    if (toolCallId === undefined) yield* this.#takeOutput(answer);
    else if (this.#version >= RESETS_SINCE) yield { type: 'tool-approval-response', approvalId, approved };
    if (toolCallId === undefined || approved || this.#version < APPROVALS_SINCE) return;
    this.#denied.add(toolCallId);
    yield { type: 'tool-output-denied', toolCallId };
  }

  *#takeOutput({ id, response }: FunctionResponse): Generator<UiChunk> {
    const toolCallId = id ?? '';
    if (!this.#calls.has(toolCallId)) return;
    const error = response?.['error'];
    if (error === undefined) yield { type: 'tool-output-available', toolCallId, output: response ?? {}, dynamic: true };
    else {
      const errorText = typeof error === 'string' ? error : JSON.stringify(error);
      yield { type: 'tool-output-error', toolCallId, errorText, dynamic: true };
    }
  }

  *#beginStep(eventId: string): Generator<UiChunk> {
    if (this.#step === eventId) return;
    if (this.#step) yield { type: 'finish-step' };
    if (this.#step !== RESET) yield { type: 'start-step' };
    this.#step = eventId;
  }

  *#endText(): Generator<UiChunk> {
    if (this.#text) yield { type: `${this.#text.kind}-end`, id: this.#text.id };
    this.#text = undefined;
  }

  *#end({ status, error }: Invocation): Generator<UiChunk> {
    yield* this.#endText();
    // A step that waits goes on with the answer: what a reader has counted then is counted again.
    if (this.#step && status !== 'paused') yield { type: 'finish-step' };
    if (status === 'failed') yield { type: 'error', errorText: error?.message ?? 'The invocation failed.' };
    else if (status !== 'succeeded' && status !== 'paused')
      yield { type: 'abort', reason: error?.message ?? `It was ${status}.` };
    yield { type: 'finish', finishReason: toFinishReason(status, this.#finishReason) };
  }
}

function toFinishReason(status: Invocation['status'], reason: string | undefined): string {
  if (status === 'failed') return 'error';
  if (status === 'paused') return 'tool-calls';
  if (status !== 'succeeded') return 'other';
  if (reason === 'MAX_TOKENS') return 'length';
  return reason === undefined || reason === 'STOP' ? 'stop' : 'other';
}

function* toSources({ id, groundingMetadata, citationMetadata }: Event): Generator<UiChunk> {
  const found = [
    ...(groundingMetadata?.groundingChunks ?? []).map(
      ({ web, maps, retrievedContext }) => web ?? maps ?? retrievedContext,
    ),
    ...(citationMetadata?.citations ?? []),
  ];
  for (const [index, source] of found.entries()) {
    const sourceId = `${id}.${index}`;
    const title = source?.title ?? undefined;
    if (source?.uri) yield { type: 'source-url', sourceId, url: source.uri, ...(title === undefined ? {} : { title }) };
    else if (title !== undefined) yield { type: 'source-document', sourceId, mediaType: 'text/plain', title };
  }
}
