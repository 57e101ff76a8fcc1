import { z } from 'zod';
import { contentSchema, functionCallsOf, functionResponsesOf, jsonObject, openEnum } from './content.ts';
import { groundingMetadataSchema } from './grounding.ts';

/** Event and all that hangs on it, as the specification's "Event" section lists it. Every member is optional. */

const text = () => z.string().nullish();
const flag = () => z.boolean().nullish();
const number = () => z.number().nullish();
/** An identifier inside an event: it stands in an index, whose rows are bounded. */
const identifier = () => z.string().max(256).nullish();

const candidate = z
  .looseObject({ logProbability: number(), token: text(), tokenId: number() })
  .describe('One token that the model considered.');

const transcription = z.looseObject({ text: text(), finished: flag(), languageCode: text() });

const modalityTokenCounts = () =>
  z.array(z.looseObject({ modality: openEnum('MODALITY_UNSPECIFIED'), tokenCount: number() })).nullish();

export const usageMetadataSchema = z
  .looseObject({
    cachedContentTokenCount: number(),
    candidatesTokenCount: number().describe('Tokens of the answer, thoughts left out.'),
    promptTokenCount: number().describe('Tokens of the prompt, cached ones included.'),
    thoughtsTokenCount: number(),
    toolUsePromptTokenCount: number(),
    totalTokenCount: number(),
    trafficType: openEnum('TRAFFIC_TYPE_UNSPECIFIED'),
    cacheTokensDetails: modalityTokenCounts(),
    candidatesTokensDetails: modalityTokenCounts(),
    promptTokensDetails: modalityTokenCounts(),
    toolUsePromptTokensDetails: modalityTokenCounts(),
  })
  .describe('Tokens that one model call used.');

const citationMetadata = z.looseObject({
  citations: z
    .array(
      z.looseObject({
        startIndex: number(),
        endIndex: number(),
        license: text(),
        title: text(),
        uri: text(),
        publicationDate: z.looseObject({ day: number(), month: number(), year: number() }).nullish(),
      }),
    )
    .nullish(),
});

export const eventActionsSchema = z
  .looseObject({
    skipSummarization: flag(),
    stateDelta: jsonObject
      .nullish()
      .describe('Keys to merge into the state; `app:`, `user:` and `temp:` choose the scope.'),
    artifactDelta: jsonObject.nullish().describe('Artifact name to the version that was saved.'),
    transferToAgent: text(),
    escalate: flag(),
    requestedAuthConfigs: jsonObject.nullish(),
    requestedToolConfirmations: jsonObject.nullish(),
    compaction: z
      .looseObject({ startTimestamp: number(), endTimestamp: number(), compactedContent: contentSchema.nullish() })
      .nullish(),
    endOfAgent: flag(),
    agentState: jsonObject.nullish(),
    rewindBeforeInvocationId: text(),
    route: flag(),
    renderUiWidgets: z.array(z.looseObject({ id: text(), provider: text(), payload: jsonObject.nullish() })).nullish(),
    setModelResponse: z.unknown().optional().describe('`null` in the specification; any JSON value is kept.'),
  })
  .describe('What an event does beside saying something.');

export const eventSchema = z
  .looseObject({
    modelVersion: text(),
    content: contentSchema.nullish(),
    groundingMetadata: groundingMetadataSchema.nullish(),
    partial: flag().describe('True for a piece of a stream; such events are never stored.'),
    turnComplete: flag(),
    turnCompleteReason: openEnum('TURN_COMPLETE_REASON_UNSPECIFIED'),
    finishReason: openEnum('FINISH_REASON_UNSPECIFIED'),
    errorCode: text(),
    errorMessage: text(),
    interrupted: flag(),
    customMetadata: jsonObject.nullish(),
    usageMetadata: usageMetadataSchema.nullish(),
    liveSessionResumptionUpdate: z
      .looseObject({ newHandle: text(), resumable: flag(), lastConsumedClientMessageIndex: number() })
      .nullish(),
    liveSessionId: text(),
    goAway: z.looseObject({ timeLeft: text() }).nullish(),
    inputTranscription: transcription.nullish(),
    outputTranscription: transcription.nullish(),
    avgLogprobs: number(),
    logprobsResult: z
      .looseObject({
        chosenCandidates: z.array(candidate).nullish(),
        topCandidates: z.array(z.looseObject({ candidates: z.array(candidate).nullish() })).nullish(),
        logProbabilitySum: number(),
      })
      .nullish(),
    // The one place of the session wire whose members are snake_case (specification, Event table).
    cacheMetadata: z
      .looseObject({
        fingerprint: text(),
        contents_count: z.int().nullish(),
        cache_name: text(),
        expire_time: number(),
        invocations_used: z.int().nullish(),
        created_at: number(),
      })
      .nullish(),
    citationMetadata: citationMetadata.nullish(),
    interactionId: text(),
    invocationId: identifier().describe('The invocation that this event belongs to.'),
    author: text().describe('`user` or the name of an agent.'),
    actions: eventActionsSchema.nullish(),
    output: z.unknown().optional().describe('`null` in the specification; any JSON value is kept.'),
    nodeInfo: z
      .looseObject({ path: text(), outputFor: z.array(z.string()).nullish(), messageAsOutput: flag() })
      .nullish(),
    longRunningToolIds: z.array(z.string()).nullish(),
    branch: text(),
    isolationScope: text(),
    id: identifier().describe('Unique within its session.'),
    timestamp: number().describe('Unix time in seconds.'),
  })
  .describe("One step of a conversation. A session's events are ordered by their sequence, never by `timestamp`.");

export type UsageMetadata = z.infer<typeof usageMetadataSchema>;
export type EventActions = z.infer<typeof eventActionsSchema>;
export type Event = z.infer<typeof eventSchema>;
/** An event on its way into the store: the store adds `timestamp` (the database's clock) where it has none. */
export type NewEvent = Event & { id: string; invocationId: string; author: string };

/** Size of an event: the bytes of its JSON, which `MAX_EVENT_BYTES` bounds. */
export const eventBytes = (event: Event): number => Buffer.byteLength(JSON.stringify(event));

/** True for an event that ends an answer: no open calls, no tool responses, not a piece of a stream (inventory §2.2, rule 3). */
export function isFinalResponse(event: Event): boolean {
  if (event.actions?.skipSummarization === true || (event.longRunningToolIds?.length ?? 0) > 0) return true;
  return (
    functionCallsOf(event.content).length === 0 &&
    functionResponsesOf(event.content).length === 0 &&
    event.partial !== true &&
    !event.content?.parts?.at(-1)?.codeExecutionResult
  );
}

/** Events without the invocations that a rewind took back, and without the rewind events themselves (`rewindBeforeInvocationId`). */
export function withoutRewound(events: Event[]): Event[] {
  const kept: Event[] = [];
  for (let index = events.length - 1; index >= 0; index -= 1) {
    const event = events[index] as Event;
    const target = event.actions?.rewindBeforeInvocationId;
    if (!target) {
      kept.push(event);
      continue;
    }
    const first = events.findIndex(({ invocationId }) => invocationId === target);
    if (first >= 0 && first < index) index = first;
  }
  return kept.toReversed();
}
