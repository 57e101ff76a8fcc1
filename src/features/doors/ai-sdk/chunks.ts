import { isConfirmed } from '../../../agent/loop/confirmation.ts';
import { CONFIRMATION_CALL } from '../../../core/names.ts';
import {
  type Content,
  type FunctionResponse,
  getFunctionResponses,
  getParts,
  type JsonObject,
  type Part,
} from '../../../core/content.ts';
import { type Event, getResult, isSteer } from '../../../core/event.ts';
import type { Invocation } from '../../../invocations/invocation.ts';
import { isProvisional } from '../open-calls.ts';
import type { TurnStep } from '../turn.ts';

/** A chunk of the AI SDK's UI message stream. `type` determines the chunk's other properties. */
export type UiChunk = { type: string } & JsonObject;

/** Major version of the client's package `ai`. A client rejects a stream with a chunk type that its version lacks. */
export type AiVersion = '5' | '6' | '7';

const APPROVALS_SINCE = '6';
/** First version of the package `ai` that can drop a step's content, and accepts chunks with decisions on approvals. */
const RESETS_SINCE = '7';
const BEGAN_AGAIN = 'The answer began again. Resume the stream to read it.';
/** Value of the current step's event id after a reset: the step is open but has no event. */
const RESET = '';

/** The same steps always give the same chunks, because clients resume by the number of received chunks. */
export class ChunkWriter {
  readonly #version: AiVersion;
  /** Id of the event that opened the current step. */
  #step: string | undefined;
  #text: { id: string; kind: string } | undefined;
  readonly #calls = new Set<string>();
  /** Ids of calls that wait for approval, by the id of the approval. */
  readonly #approvals = new Map<string, string>();
  readonly #denied = new Set<string>();
  #isTakenBack = false;
  #finishReason: string | undefined;

  constructor(version: AiVersion) {
    this.#version = version;
  }

  *take(step: TurnStep): Generator<UiChunk> {
    // After streamed text was taken back, an error is sent once, with the end of the invocation.
    if (this.#isTakenBack && step.kind === 'event' && step.event.errorCode) return;
    if (this.#isTakenBack && step.kind !== 'end') {
      // The model call is retried, but an AI SDK client cannot drop text. This stream ends; the client's next one has
      // the new text.
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
    this.#isTakenBack = this.#version < RESETS_SINCE;
    if (this.#isTakenBack) return;
    this.#text = undefined;
    this.#step = RESET;
    yield { type: 'reset-step' };
  }

  *#takeEvent(event: Event): Generator<UiChunk> {
    yield* this.#endText();
    const { id, author, content, actions, finishReason } = event;
    if (author === 'user') {
      // The protocol has no chunk for what a user says.
      if (isSteer(event))
        yield {
          type: 'data-message',
          id: toMessageId(id),
          data: { id: toMessageId(id), role: 'user', parts: toUserParts(content), ...toMetadata(event) },
        };
      for (const answer of getFunctionResponses(content)) yield* this.#takeAnswer(answer);
      return;
    }
    this.#finishReason = finishReason ?? this.#finishReason;
    for (const [index, part] of getParts(content).entries()) yield* this.#takePart(part, index, event);
    yield* toSources(event);
    if (event.output != null) yield { type: 'data-output', id: id ?? '', data: event.output };
    const changes = { state: actions?.stateDelta, artifacts: actions?.artifactDelta };
    for (const [name, data] of Object.entries(changes))
      if (Object.keys(data ?? {}).length > 0) yield { type: `data-${name}`, id: id ?? '', data };
  }

  *#takePart(part: Part, index: number, event: Event): Generator<UiChunk> {
    const { functionCall: call, functionResponse: answer } = part;
    const toolCallId = call?.id ?? '';
    const eventId = event.id ?? '';
    if (answer) {
      if (!isProvisional(event, answer.id) && !this.#denied.has(answer.id ?? '')) yield* this.#takeOutput(answer);
    } else if (call?.name === CONFIRMATION_CALL && event.longRunningToolIds?.includes(toolCallId)) {
      yield* this.#requestApproval(
        toolCallId,
        (call.args?.['originalFunctionCall'] as { id?: string } | undefined)?.id ?? '',
      );
    } else if (call) {
      yield* this.#beginStep(eventId);
      this.#calls.add(toolCallId);
      const { name: toolName = '', args } = call;
      yield { type: 'tool-input-available', toolCallId, toolName, input: args ?? {}, dynamic: true };
    } else {
      const chunk = toFile(part) ?? toData(part, `${eventId}.${index}`);
      if (chunk) yield* this.#beginStep(eventId);
      if (chunk) yield chunk;
    }
  }

  *#requestApproval(approvalId: string, toolCallId: string): Generator<UiChunk> {
    if (!this.#calls.has(toolCallId)) return;
    this.#approvals.set(approvalId, toolCallId);
    if (this.#version >= APPROVALS_SINCE) yield { type: 'tool-approval-request', approvalId, toolCallId };
    else yield { type: 'data-approval', id: approvalId, data: { approvalId, toolCallId } };
  }

  *#takeAnswer(answer: FunctionResponse): Generator<UiChunk> {
    const approvalId = answer.id ?? '';
    const toolCallId = this.#approvals.get(approvalId);
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
    const { error } = response ?? {};
    const errorText = typeof error === 'string' ? error : JSON.stringify(error);
    if (error === undefined) yield { type: 'tool-output-available', toolCallId, output: response ?? {}, dynamic: true };
    else yield { type: 'tool-output-error', toolCallId, errorText, dynamic: true };
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
    // A pause sends no `finish-step`, because a client that reads the whole invocation later must get the same chunks.
    if (this.#step && status !== 'paused') yield { type: 'finish-step' };
    const reason = error?.message ?? `It was ${status}.`;
    if (status === 'failed') yield { type: 'error', errorText: reason };
    else if (status !== 'succeeded' && status !== 'paused') yield { type: 'abort', reason };
    const ended = status === 'succeeded' ? (this.#finishReason ?? 'STOP') : status;
    yield { type: 'finish', finishReason: FINISH_REASONS.get(ended) ?? 'other' };
  }
}

/** The AI SDK's finish reasons, by the model's finish reason or by the status of an invocation that did not succeed. */
const FINISH_REASONS = new Map(
  Object.entries({ STOP: 'stop', MAX_TOKENS: 'length', failed: 'error', paused: 'tool-calls' }),
);

/** A message part with a file has the same properties. */
function toFile({ inlineData, fileData }: Part): UiChunk | undefined {
  const mediaType = (inlineData ?? fileData)?.mimeType ?? 'application/octet-stream';
  const url = inlineData?.data ? `data:${mediaType};base64,${inlineData.data}` : fileData?.fileUri;
  return url ? { type: 'file', mediaType, url } : undefined;
}

/** Id of a message that steered: the id of its event is that of the answer behind it. */
export const toMessageId = (eventId: string | null | undefined): string => `${eventId ?? ''}.message`;

/** The `metadata` of a message that has the result of an agent in the background. */
export function toMetadata(event: Event): { metadata?: { result: JsonObject } } {
  const result = getResult(event);
  return result ? { metadata: { result } } : {};
}

/** The parts of a user's message. */
export const toUserParts = (content: Content | null | undefined): JsonObject[] =>
  getParts(content).flatMap((part): JsonObject[] => {
    if (part.text) return [{ type: 'text', text: part.text }];
    const file = toFile(part);
    const filename = (part.inlineData ?? part.fileData)?.displayName;
    return file ? [{ ...file, ...(filename ? { filename } : {}) }] : [];
  });

/** A `data-` chunk for content without a chunk type in the AI SDK; `undefined` if the part contains only text. */
function toData(part: Part, id: string): UiChunk | undefined {
  const { text: _, thought: __, thoughtSignature: ___, ...data } = part;
  return Object.keys(data).length > 0 ? { type: 'data-part', id, data } : undefined;
}

function* toSources({ id, groundingMetadata, citationMetadata }: Event): Generator<UiChunk> {
  const grounds = (groundingMetadata?.groundingChunks ?? []).map(
    (each) => each.web ?? each.maps ?? each.retrievedContext,
  );
  for (const [index, source] of [...grounds, ...(citationMetadata?.citations ?? [])].entries()) {
    const { uri: url, title } = source ?? {};
    const sourceId = `${id}.${index}`;
    const titleMember = title == null ? {} : { title };
    if (url) yield { type: 'source-url', sourceId, url, ...titleMember };
    else if (title != null) yield { type: 'source-document', sourceId, mediaType: 'text/plain', title };
  }
}
