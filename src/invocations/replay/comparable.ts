import { type Content, getFunctionResponses, type JsonObject, type Part, getParts } from '../../core/content.ts';
import type { Event, EventActions } from '../../core/event.ts';

/** Ids of calls as numbers in order of appearance: two runs have other ids for the same calls. */
export class CallNumbers {
  readonly #numbers = new Map<string, number>();

  of(id: string | null | undefined): number | null {
    if (id == null) return null;
    const number = this.#numbers.get(id) ?? this.#numbers.size + 1;
    this.#numbers.set(id, number);
    return number;
  }
}

/** Reduces an event to its comparable members: without ids, time, token counts, and notes of the request. */
export function toComparable(event: Event, calls: CallNumbers): JsonObject {
  const { author, branch, finishReason, errorCode, errorMessage, interrupted, modelVersion } = event;
  const content = event.content ? toComparableContent(event.content, calls) : undefined;
  const longRunning = (event.longRunningToolIds ?? []).map((id) => calls.of(id));
  return withoutAbsent({
    author,
    branch,
    content,
    errorCode,
    errorMessage,
    interrupted: interrupted === true ? true : undefined,
    longRunningToolIds: longRunning.length > 0 ? longRunning : undefined,
    actions: toComparableActions(event.actions ?? {}, calls),
    finishReason,
    modelVersion,
    groundingMetadata: event.groundingMetadata,
    citationMetadata: event.citationMetadata,
  });
}

const toComparableContent = ({ role, parts }: Content, calls: CallNumbers) => ({
  role,
  parts: (parts ?? []).map((part) => toComparablePart(part, calls)),
});

/** Signatures differ in every answer of a provider. */
function toComparablePart({ thoughtSignature: _signature, ...part }: Part, calls: CallNumbers): JsonObject {
  const { functionCall: call, functionResponse: response } = part;
  if (call)
    return { ...part, functionCall: { ...call, args: toComparableArgs(call.args, calls), id: calls.of(call.id) } };
  return response ? { ...part, functionResponse: { ...response, id: calls.of(response.id) } } : part;
}

/** A request for a confirmation carries the call that it is about, with its id. */
function toComparableArgs(args: JsonObject | null | undefined, calls: CallNumbers): JsonObject {
  const original = args?.['originalFunctionCall'] as { id?: string } | undefined;
  return original?.id === undefined
    ? (args ?? {})
    : { ...args, originalFunctionCall: { ...original, id: calls.of(original.id) } };
}

/** Empty actions say nothing. Times of a compaction are those of events that are compared themselves. */
function toComparableActions(actions: EventActions, calls: CallNumbers): JsonObject | undefined {
  const { compaction, requestedToolConfirmations, ...others } = actions;
  const requested = Object.entries(requestedToolConfirmations ?? {}).map(([id, value]) => [calls.of(id), value]);
  const all = withoutAbsent({
    ...others,
    requestedToolConfirmations: requested.length > 0 ? requested : undefined,
    compaction: compaction?.compactedContent,
  });
  const said = Object.entries(all).filter(([, value]) => !isEmptyObject(value));
  return said.length > 0 ? Object.fromEntries(said) : undefined;
}

const isEmptyObject = (value: unknown) =>
  typeof value === 'object' && value !== null && Object.keys(value).length === 0;

const withoutAbsent = (members: JsonObject): JsonObject =>
  Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined && value !== null));

/** True for an event that answers calls. */
export const answersCalls = (event: Event): boolean => getFunctionResponses(event.content).length > 0;

/** True for an event of an agent that has nothing in it. */
export const isBare = (event: Event): boolean => getParts(event.content).length === 0;
