import { z } from 'zod';
import {
  contentSchema,
  freeForm,
  getFunctionCalls,
  getFunctionResponses,
  getParts,
  type JsonObject,
  transcriptionSchema,
} from './content.ts';
import { ERROR_CODES } from './error-codes.ts';
import { citationMetadata, groundingMetadataSchema, logprobsResult, usageMetadataSchema } from './model-metadata.ts';
import {
  bodyList,
  flag,
  name,
  number,
  object,
  openEnum,
  optional,
  text,
  texts,
  keepingObject,
  strictObject,
} from './members.ts';

/**
 * Event and EventActions of the specification. Every member is optional, except in objects that ADK's clients refuse as
 * a whole if one of their members is missing.
 */

/** An identifier of at most 256 characters, because PostgreSQL limits the size of the index rows that contain it. */
const identifier = (meaning: string) => z.string().max(256).nullish().describe(meaning);

const present = (meaning: string) => z.string().max(1_024).describe(meaning);

const compaction = z.strictObject({
  startTimestamp: z.number().describe('`timestamp` of the oldest event that is summarised, Unix seconds.'),
  endTimestamp: z.number().describe('`timestamp` of the newest event that is summarised, Unix seconds.'),
  compactedContent: contentSchema.describe('The summary.'),
});

const uiWidget = z.strictObject({
  id: present('Identifier of the widget.'),
  provider: present('Who draws the widget, for example `mcp`.'),
  payload: freeForm('What the provider needs to draw it.'),
});

export const eventActionsSchema = strictObject('What an event does beside saying something.', {
  skipSummarization: flag('True: the function response is the answer, the model is not called again.'),
  stateDelta: freeForm(
    'Keys to merge into the state; `app:` and `user:` choose the scope, `temp:` keys are not stored.',
  ),
  artifactDelta: freeForm('Artifact name to the version that the event saved.'),
  transferToAgent: name('Name of the agent that goes on with the invocation.'),
  transferReason: text('Why it goes on there; written by ADK 2.13, kept as sent.'),
  escalate: flag('True ends the round of the `loop` agent above, and the loop.'),
  requestedAuthConfigs: freeForm(
    'Credentials that tools need, by the id of the function call; this runtime writes `{}`.',
  ),
  requestedToolConfirmations: freeForm(
    'Function calls that wait for a person, by id: `{hint, confirmed}`, of a form also `payload` and `schema`.',
  ),
  compaction: optional(
    compaction,
    'A summary that stands for older events in later model calls; the events themselves stay.',
  ),
  endOfAgent: flag('True where an agent that can be resumed has ended; kept as sent, this runtime writes none.'),
  agentState: freeForm('Checkpoint of an agent that can be resumed; kept as sent, this runtime writes none.'),
  rewindBeforeInvocationId: name(
    'The event takes this invocation and all after it back: later model calls do not see them.',
  ),
  route: flag('The edge that a workflow graph takes next; kept as sent, this runtime writes none.'),
  renderUiWidgets: optional(
    bodyList(uiWidget),
    'Widgets for the client to draw; kept as sent, this runtime writes none.',
  ),
  setModelResponse: z.unknown().optional().describe('`null` in the specification; any JSON value is kept.'),
});

const liveSessionResumptionUpdate = z.strictObject({
  newHandle: text('Handle to resume the live session with; empty where `resumable` is false.'),
  resumable: flag('True where the live session can be resumed at this point.'),
  lastConsumedClientMessageIndex: number("Index of the client's last input that the handle covers."),
});

// The only object in a session's JSON whose members are in snake_case (specification, table Event).
const cacheMetadata = z.strictObject({
  fingerprint: present('Hash of the instruction, tools and contents that are cached.'),
  contents_count: z.int().describe('Number of contents that `fingerprint` covers.'),
  cache_name: name("The provider's name of the cache; absent before there is one."),
  expire_time: number('When the cache ends, Unix seconds.'),
  invocations_used: z.int().nullish().describe('Number of invocations that the cache has served.'),
  created_at: number('When the cache was made, Unix seconds.'),
});

const nodeInfo = keepingObject('A node.', {
  path: text('Path of the node in the workflow, for example `team@1/poet@1`.'),
  outputFor: texts('Paths of the nodes whose output this event is.'),
  messageAsOutput: flag("True where `content` is the node's output."),
});

const CODES = Object.keys(ERROR_CODES).join(', ');

export const eventSchema = keepingObject(
  "One step of a conversation. A session's events are ordered by their sequence, never by `timestamp`.",
  {
    modelVersion: name('The model that answered, as the provider names it; `offline` for the built-in one.'),
    content: contentSchema.nullish().describe('What was said; absent on events that only change something.'),
    groundingMetadata: groundingMetadataSchema.nullish().describe('Sources of the answer; from Google models only.'),
    partial: flag('True for a partial event of a stream: a fragment of text that a whole event repeats. Never stored.'),
    turnComplete: flag("True at the end of a model's turn in a live session."),
    turnCompleteReason: openEnum('TURN_COMPLETE_REASON_UNSPECIFIED', 'Why a turn of a live session ended.'),
    finishReason: openEnum(
      'FINISH_REASON_UNSPECIFIED',
      'Why the model stopped: `STOP`, `MAX_TOKENS`, `SAFETY`, `OTHER` or another value of a Google model.',
    ),
    errorCode: name(
      `Stable code of what ended the invocation; absent while all is well. The runtime writes ${CODES}, which ` +
        '`Invocation` explains; events from elsewhere may carry others.',
    ),
    errorMessage: text('The sentence for people that goes with `errorCode`.'),
    interrupted: flag(
      'True where the invocation was interrupted or cancelled, or the user spoke into an answer of a live session.',
    ),
    customMetadata: freeForm('Free-form notes of the client; those of a run request stand on all events of the agent.'),
    usageMetadata: usageMetadataSchema.nullish().describe('Tokens of the model call that made this event.'),
    liveSessionResumptionUpdate: optional(
      liveSessionResumptionUpdate,
      'How to resume a live session; kept as sent, this runtime writes none.',
    ),
    liveSessionId: name('Identifier of a live session; kept as sent, this runtime writes none.'),
    goAway: object('Says that a live connection ends soon; kept as sent, this runtime writes none.', {
      timeLeft: name('Time until the connection ends, seconds with an `s`, for example `10s`.'),
    }),
    inputTranscription: transcriptionSchema.nullish().describe('Text of what the user spoke; live sessions only.'),
    outputTranscription: transcriptionSchema.nullish().describe('Text of what the model spoke; live sessions only.'),
    avgLogprobs: number('Mean log probability of the tokens of the answer; kept as sent, this runtime writes none.'),
    logprobsResult: optional(
      logprobsResult,
      'Log probabilities token by token; kept as sent, this runtime writes none.',
    ),
    cacheMetadata: optional(
      cacheMetadata,
      "State of a provider's context cache, members in snake_case; kept as sent, this runtime writes none.",
    ),
    citationMetadata: citationMetadata.nullish().describe('Sources that the provider names for the answer.'),
    interactionId: name("The provider's identifier of a stateful exchange; kept as sent, this runtime writes none."),
    invocationId: identifier('The invocation that this event belongs to; `p-…` on a change of state over HTTP.'),
    author: name('`user` or the name of an agent; `user` where a client that appends leaves it out.'),
    actions: eventActionsSchema.nullish().describe('What the event does beside saying something.'),
    output: z.unknown().optional().describe('`null` in the specification; any JSON value is kept.'),
    nodeInfo: optional(nodeInfo, 'The workflow node that made the event; kept as sent, this runtime writes none.'),
    longRunningToolIds: texts(
      'Ids of function calls in this event that a later request answers; the invocation pauses until then.',
    ),
    branch: text('Names of agents joined by `.`: the agents of a parallel group do not see what the others of it say.'),
    isolationScope: text('Scope of a workflow whose events others do not see; kept as sent, this runtime writes none.'),
    id: identifier('Unique within its session; made by the server where a client that appends leaves it out.'),
    timestamp: number("Unix time in seconds; the database's clock where a client that appends leaves it out."),
  },
);

/** The four empty maps that events of ADK always have. */
export const emptyActions = (): EventActions => ({
  stateDelta: {},
  artifactDelta: {},
  requestedAuthConfigs: {},
  requestedToolConfirmations: {},
});

/** Member of `customMetadata` in a message of the user that a running invocation took. */
const STEER = 'agent-runtime/steer';
export const STEER_NOTES = { [STEER]: true };

/** Member of `customMetadata` in a message that an agent in the background has sent with its result: whose it is. */
export const RESULT = 'agent-runtime/result';

/** True for a message that the running invocation took: unlike a prompt, it begins no turn. */
export const isSteer = ({ author, customMetadata }: Event): boolean =>
  author === 'user' && customMetadata?.[STEER] === true;

/** Whose result a message is that an agent in the background has sent; `undefined` for any other event. */
export const getResult = ({ author, customMetadata }: Event): (JsonObject & { agent: string }) | undefined =>
  author === 'user' ? (customMetadata?.[RESULT] as (JsonObject & { agent: string }) | undefined) : undefined;

/** What an event, or a tool with its function response, does beside saying something. */
export type EventActions = z.infer<typeof eventActionsSchema>;
/** One step of a session. */
export type Event = z.infer<typeof eventSchema>;
/** An event that is to be stored. If it has no `timestamp`, the database's clock sets it. */
export type NewEvent = Event & { id: string; invocationId: string; author: string };

/** Returns the bytes that `MAX_EVENT_BYTES` limits. Media in a user's message are uploads, which do not count. */
export function eventBytes(event: Event): number {
  const bytes = Buffer.byteLength(JSON.stringify(event));
  if (event.author !== 'user') return bytes;
  return getParts(event.content).reduce((sum, { inlineData }) => sum - (inlineData?.data?.length ?? 0), bytes);
}

/** True if the event ends an agent's answer, by ADK's rule: no function call, no function response, not partial. */
export function isFinalResponse(event: Event): boolean {
  if (event.actions?.skipSummarization === true || (event.longRunningToolIds?.length ?? 0) > 0) return true;
  return (
    getFunctionCalls(event.content).length === 0 &&
    getFunctionResponses(event.content).length === 0 &&
    event.partial !== true &&
    !event.content?.parts?.at(-1)?.codeExecutionResult
  );
}

/** Returns the events without those of rewound invocations and without the rewind events themselves, in linear time. */
export function withoutRewound(events: Event[]): Event[] {
  if (!events.some(({ actions }) => actions?.rewindBeforeInvocationId)) return [...events];
  const firstIndexes = new Map<unknown, number>();
  for (const [index, { invocationId }] of events.entries())
    if (!firstIndexes.has(invocationId)) firstIndexes.set(invocationId, index);
  const kept: Event[] = [];
  for (let index = events.length - 1; index >= 0; index -= 1) {
    const event = events[index] as Event;
    const target = event.actions?.rewindBeforeInvocationId;
    if (!target) {
      kept.push(event);
      continue;
    }
    const first = firstIndexes.get(target);
    if (first !== undefined && first < index) index = first;
  }
  return kept.toReversed();
}
