import { z } from 'zod';
import type { AgentOverrides, McpServer, PreparedAgent } from '../agent/definition/agent.ts';
import { type harnessOverridesSchema, toAgentOverrides } from '../agent/definition/overrides.ts';
import type { Loan, RunEnd, RunInput } from '../agent/loop/run.ts';
import type { IdempotentRequest } from '../conversation/idempotency/idempotency.ts';
import type { InvocationCounts, StoredEvent } from '../conversation/sessions/append-store.ts';
import {
  type Content,
  contentSchema,
  getFunctionCalls,
  getFunctionResponses,
  type JsonObject,
} from '../core/content.ts';
import { emptyActions, type Event, type NewEvent, RESULT, STEER_NOTES } from '../core/event.ts';
import { onlyTemporary, type SessionKey } from '../core/session.ts';
import type { RunLink } from '../observability/traces/span.ts';
import { currentContext, type RequestContext } from '../platform/context.ts';
import type { Secrets } from '../platform/secrets.ts';
import type { BusyPolicy, Invocation, InvocationError } from './invocation.ts';
import type { JobStep } from './lock-store.ts';

export const newInvocationId = ({ newId }: { newId: () => string }): string => `e-${newId()}`;

export interface InvocationRequest {
  key: SessionKey;
  /** A new id; with `resumes`, the id of an ended invocation to resume. */
  invocationId: string;
  resumes?: boolean;
  /** The user's message; `undefined` only if the request resumes an invocation. */
  content: Content | undefined;
  /** State changes that are merged into the session state together with the user's event. */
  stateDelta?: JsonObject | undefined;
  customMetadata?: JsonObject | undefined;
  overrides: AgentOverrides;
  /** True: create the session if it is absent. `new`: create the session, and fail if it exists. */
  createSession: boolean | 'new';
  /** If true, the listener also receives partial events. */
  streaming: boolean;
  /** A text turn of a live session: its events name no node, and its last event reports the end of the turn. */
  isLive?: boolean | undefined;
  busyPolicy?: BusyPolicy | undefined;
  /** The `Idempotency-Key` of the request and the hash of its content. */
  idempotency?: IdempotentRequest | undefined;
  /** Address of a webhook that the user has registered. The webhook receives the result of the invocation. */
  webhookUrl?: string | undefined;
  /** The job of which the invocation is a step. The process of the job keeps it; if that dies, the end makes it due. */
  job?: JobStep | undefined;
  /** Format of the result that is stored for retries. Absent: a retry's result is built from the stored events. */
  answer?: AnswerKind | undefined;
  /**
   * Set only if the invocation is resumed after its process died. `sequence`: the session's last sequence when the
   * invocation began. The other members: time, model calls and tool calls that the invocation has used since then.
   */
  recovery?: ({ sequence: number; spentMs: number } & InvocationCounts) | undefined;
  /** The run that the request goes on from, for its trace. */
  earlier?: RunLink | undefined;
  /** Runs of other invocations to which each run of this one is linked, such as that which made it. */
  links?: RunLink[] | undefined;
  /** True if no client waits for the result: at shutdown the invocation is handed over before its next step. */
  inBackground?: boolean;
  /** True: an exhausted budget pauses the invocation until the budget is raised. False: it ends the invocation. */
  waitsForBudget?: boolean | undefined;
  /** True for a run of a cronjob, which its limit of time calls a run. */
  isRun?: boolean | undefined;
  /** Aborts the invocation, for instance when its client has disconnected. */
  signal?: AbortSignal | undefined;
  /** Called with each piece of streamed text after the text was stored. */
  onDelta?: EventListener;
  /** Called with the user event if it is stored after the claim, because the request was uncertain. */
  onPrompt?: EventListener;
  /** Called when the invocation has its database row: it is queued or has begun. */
  onAccepted?: () => void;
  /** Set only for a child: the call of an agent that another one uses as a tool. */
  child?: ChildOf | undefined;
  /** What earlier runs of the invocation have lent to agents in the background. */
  loans?: Loan | undefined;
  /** Whose result the message is: that of an agent in the background. It begins a turn. */
  result?: (JsonObject & { turns?: number | undefined }) | undefined;
  /** The prepared agent of a child whose parent runs in this process, which closes it. */
  lent?: PreparedAgent | undefined;
  /** Given with `lent`: notes each request to a model on the tape of the parent, because a child has none of its own. */
  onRequest?: RunInput['onRequest'];
  /** An agent that the caller has prepared and will close. Absent: the invocation prepares an agent and closes it. */
  prepared?: PreparedAgent;
  /** The loop that produces the events. Default: `runAgent`, which calls models and tools. */
  steps?: (input: RunInput) => AsyncGenerator<NewEvent, RunEnd, void>;
}

export interface InvocationEnd {
  output: string;
  error: InvocationError | undefined;
  paused?: boolean;
  /** The model's structured output, validated against the agent's output schema. */
  value?: unknown;
  /** The invocation as it was stored. Absent if the answer to that write was lost. */
  invocation?: Invocation;
}

/** An event for a client, with its JSON text. */
export interface EventFrame {
  text: string;
  event: Event;
  /** Sequence of a stored event, or of the event before a stored delta; `undefined` if nothing is stored. */
  sequence: number | undefined;
  /** Number of the last delta, up to this frame, whose complete event is not stored yet. */
  delta?: number | undefined;
}

/** Called with each event of the agent. Complete events are passed after they were stored, partial events at once. */
export type EventListener = (frame: EventFrame) => void;

/** Passes stored events to a listener, if there is one. `delta` has the same meaning as {@link EventFrame.delta}. */
export function notifyListener(
  listener: EventListener | undefined,
  stored: StoredEvent[],
  events: NewEvent[],
  delta?: number,
): void {
  if (!listener) return;
  for (const [position, { sequence, text }] of stored.entries()) {
    const event = events[position];
    if (event) listener({ text, event, sequence, delta });
  }
}

/** Returns the user events that are stored together with the claim of the session. */
export const claimedUserEvents = (request: InvocationRequest, newId: () => string): NewEvent[] =>
  isUncertain(request) ? [] : toUserEvents(request, newId);

/**
 * True if the request overrides tools, skills, the model or the output schema, which may turn out invalid only when the
 * agent is prepared. The user event of such a request is stored with the first event of the agent. An invalid request
 * thus leaves no prompt in the session, which its correction would repeat.
 */
export const isUncertain = ({
  overrides: { tools, skills, modelName, outputSchema },
  child,
}: InvocationRequest): boolean =>
  // The agent of a child is prepared already.
  child === undefined &&
  (tools !== undefined || skills !== undefined || modelName !== undefined || outputSchema !== undefined);

/**
 * True if the request is a message that a running invocation can take, if that has the same overrides
 * (`messages_to_take`). It can take neither a change of the state nor answers to calls, and its end is not told to another
 * webhook.
 */
export function maySteer(request: InvocationRequest): boolean {
  const { content, stateDelta, customMetadata, webhookUrl, job, isLive, prepared, steps } = request;
  const more = [stateDelta, customMetadata, webhookUrl, job, isLive, prepared, steps];
  return (
    content !== undefined &&
    request.resumes !== true &&
    more.every((member) => member === undefined) &&
    getFunctionCalls(content).length + getFunctionResponses(content).length === 0
  );
}

/**
 * The event of a message that steers. `take_messages` adds the content, and the invocation that takes it. It has the id
 * of the message's row, by which those who wait for it find its place in the session.
 */
const toSteerEvent = (invocationId: string): JsonObject => ({
  id: invocationId,
  author: 'user',
  nodeInfo: { path: '' },
  actions: emptyActions(),
  customMetadata: STEER_NOTES,
});

/** Returns the event with the user's message. Returns no event if the request only resumes an invocation. */
export function toUserEvents(request: InvocationRequest, newId: () => string): NewEvent[] {
  const { invocationId, content, stateDelta, result } = request;
  if (!content && !stateDelta) return [];
  const event: NewEvent = {
    id: newId(),
    invocationId,
    author: 'user',
    nodeInfo: { path: '' },
    ...(content ? { content: { ...content, role: content.role ?? 'user' } } : {}),
    actions: { ...emptyActions(), stateDelta: stateDelta ?? {} },
    ...(result && { customMetadata: { [RESULT]: result } }),
  };
  return [event];
}

/** Adds the request's `customMetadata`. In a live session also removes the node from the event, as ADK does. */
export const withNotes = ({ customMetadata, isLive }: InvocationRequest, event: NewEvent): NewEvent => ({
  ...event,
  ...(isLive && { nodeInfo: { path: '' } }),
  ...(customMetadata && { customMetadata: { ...customMetadata, ...event.customMetadata } }),
});

/**
 * Error in the stored result of a paused invocation: callers take a null `error` for success and would wait for ever.
 */
const WAITS_FOR_A_PERSON =
  'The invocation waits for a person. Answer its task in the console, with `agent-runtime tasks answer`, or by ' +
  'PATCH /tasks/{id}; or answer its open function call with /run.';

/** Builds the result that is stored for retries when an invocation ends. */
export function toAnswer(kind: AnswerKind, { output, error, paused, value }: InvocationEnd): string {
  if (kind.kind === 'output') return output;
  const { harnessName: harness_name, overwrite } = kind;
  const why = error?.message ?? (paused === true && output === '' ? WAITS_FOR_A_PERSON : null);
  const structured = value === undefined ? {} : { structured_output: value };
  return JSON.stringify({ harness_name, overwrite, output, ...structured, error: why });
}

/** Version of stored requests: one in another version ends with an error instead of being misread. */
const VERSION = 1;

/** Reasons why a request cannot be resumed, as ends of sentences. */
const MADE_HERE = 'it answers in a live conversation with sound, or with stored answers, which no other can go on with';
const HAS_CREDENTIALS = 'its MCP servers have credentials, which are not stored';
const UNREADABLE = 'its request was stored by another version and cannot be read';
const LOCKED = 'its MCP servers have credentials, which no key of RUNTIME_SECRET_KEY decrypts';

const object = z.record(z.string(), z.unknown());
const MAX_LINKS = 8;

/** Authenticated context of the encrypted secrets, so that they can be decrypted for this invocation only. */
const toPlace = ({
  key: { appName, userId, sessionId },
  invocationId,
}: Pick<InvocationRequest, 'key' | 'invocationId'>): string[] => [appName, userId, sessionId, invocationId];

const loanSchema = z.object({ llmCalls: z.number(), toolCalls: z.number(), tokens: z.number() });

/** A request as it is stored in the invocation's row, for the process that begins or resumes the invocation. */
const storedRequestSchema = z.object({
  version: z.literal(VERSION),
  content: contentSchema.optional(),
  stateDelta: object.optional(),
  customMetadata: object.optional(),
  overrides: z.custom<AgentOverrides>((value) => object.safeParse(value).success),
  streaming: z.boolean(),
  isLive: z.boolean().optional(),
  waitsForBudget: z.boolean().optional(),
  isRun: z.boolean().optional(),
  /** The event of a message that waits for the running invocation, without its content. Removed by the claim. */
  steer: object.optional(),
  answer: z
    .discriminatedUnion('kind', [
      z.object({ kind: z.literal('harness'), harnessName: z.string(), overwrite: z.boolean() }),
      z.object({ kind: z.literal('output') }),
    ])
    .optional(),
  /** Of a child session: the call that it belongs to, the session of the user, and which agent runs. */
  child: z
    .object({
      sessionId: z.string(),
      invocationId: z.string(),
      callId: z.string(),
      rootSessionId: z.string(),
      depth: z.number(),
      agent: z.string(),
      /** Calls of tools that its parent had left. */
      toolCallsAtMost: z.number(),
      /** Of an agent in the background: what its parent lent it, and the longest answer that goes into its result. */
      loan: loanSchema.optional(),
      charactersAtMost: z.number().optional(),
      /** Turns before it that results of agents began, one after the other. */
      turns: z.number().optional(),
    })
    .optional(),
  loans: loanSchema.optional(),
  result: z.looseObject({ turns: z.number().optional() }).optional(),
  /** Of a cronjob's run that has not begun: the overrides as its cronjob has them. */
  harness: z.custom<z.output<typeof harnessOverridesSchema> | null>().optional(),
  /** The MCP servers of the request's overrides, encrypted; present only if the servers have credentials. */
  secrets: z.string().optional(),
  /** The user to whose rows the database restricts the request. */
  userId: z.string().optional(),
  /** Id of the API key that made the request. */
  keyId: z.string().optional(),
  callerTrace: z.string().optional(),
  links: z
    .array(z.object({ trace: z.string(), reason: z.string() }))
    .max(MAX_LINKS)
    .optional(),
  /** Added by the claim: trace context of the last run; and by what put the invocation back or woke it: why it ended. */
  trace: z.string().optional(),
  left: z.string().optional(),
  /** Added by the claim: last sequence and counters when the run began, and the time spent since then. */
  began: z
    .object({ spentMs: z.number(), sequence: z.number(), llmCalls: z.number(), toolCalls: z.number() })
    .optional(),
});

const NOTHING: z.output<typeof storedRequestSchema> = { version: VERSION, overrides: {}, streaming: false };

/** What the session and the invocation contained when a run began. */
export type Beginning = NonNullable<z.output<typeof storedRequestSchema>['began']>;

/** The call of an agent used as a tool, whose invocation runs in a child session. */
export type ChildOf = NonNullable<z.output<typeof storedRequestSchema>['child']>;

/** Format of the result that is stored with an invocation. */
export type AnswerKind = NonNullable<z.output<typeof storedRequestSchema>['answer']>;

/** Encrypts MCP servers with credentials. @returns `undefined` if no encryption key is configured for them */
export function toQueuedRequest(request: InvocationRequest, secrets: Secrets, steers = false): JsonObject | undefined {
  const { stateDelta, customMetadata, streaming, isLive, waitsForBudget, isRun, answer, links, child, result } =
    request;
  const { userId, keyId, callerTrace } = currentContext();
  const content = steers ? { ...request.content, role: request.content?.role ?? 'user' } : request.content;
  const own = {
    content,
    stateDelta,
    customMetadata,
    streaming,
    isLive,
    waitsForBudget,
    isRun,
    answer,
    links,
    child,
    result,
  };
  const steer = steers ? { steer: toSteerEvent(request.invocationId) } : {};
  const members = { ...own, userId, keyId, callerTrace, ...steer };
  const { mcpServers, ...overrides } = request.overrides;
  if (!mcpServers?.some(hasCredential)) return { version: VERSION, ...members, overrides: request.overrides };
  if (!secrets.canSeal) return undefined;
  return {
    version: VERSION,
    ...members,
    overrides,
    secrets: secrets.seal(JSON.stringify(mcpServers), toPlace(request)),
  };
}

/**
 * Returns the members of a request that another process needs to resume the invocation, without the members that the
 * claim stores as an event. If the invocation cannot be resumed, `endsBecause` contains the reason.
 */
export function toClaimedRequest(
  request: InvocationRequest,
  secrets: Secrets,
  whole = toQueuedRequest(request, secrets),
): JsonObject {
  if (request.prepared) return { version: VERSION, endsBecause: MADE_HERE };
  if (!whole) return { version: VERSION, endsBecause: HAS_CREDENTIALS, child: request.child };
  if (isUncertain(request)) return whole;
  return { ...whole, content: undefined, stateDelta: onlyTemporary(request.stateDelta) };
}

function hasCredential({ url, headers = {} }: McpServer): boolean {
  const { username, password, search } = URL.parse(url ?? '') ?? {};
  return Object.keys(headers).length > 0 || Boolean(username || password || search);
}

/** `refusal` is the reason why the request cannot run in this process, as the end of a sentence. */
export function readStoredRequest(
  stored: unknown,
  secrets: Secrets,
  place: Pick<InvocationRequest, 'key' | 'invocationId'>,
) {
  const { success, data = NOTHING } = storedRequestSchema.safeParse(stored);
  const { version: _, content, harness, secrets: sealed, userId, keyId, callerTrace, began, ...more } = data;
  const { trace, left = 'take_over', steer, ...members } = more;
  const opened = sealed === undefined ? undefined : secrets.open(sealed, toPlace(place));
  const servers = opened === undefined ? {} : { mcpServers: JSON.parse(opened) as McpServer[] };
  const requestContext: RequestContext = { userId, keyId, callerTrace };
  const locked = sealed !== undefined && opened === undefined ? LOCKED : undefined;
  const overrides = { ...toAgentOverrides(harness), ...data.overrides, ...servers };
  const earlier = trace === undefined ? undefined : { trace, reason: left };
  const request = { ...members, content, overrides, earlier };
  return { request, requestContext, began, steers: steer !== undefined, refusal: success ? locked : UNREADABLE };
}

/** What a run that goes on with an invocation knows of the time before: its beginning, and the counts of its row. */
export function toRecovery(
  began: Beginning | undefined,
  counts: InvocationCounts,
): NonNullable<InvocationRequest['recovery']> {
  const { spentMs = 0, sequence = 0, llmCalls = 0, toolCalls = 0 } = began ?? {};
  const { promptTokens, outputTokens } = counts;
  const used = { llmCalls: counts.llmCalls - llmCalls, toolCalls: counts.toolCalls - toolCalls };
  // Tokens count from the first run on, because the limit on them is that of the invocation.
  return { sequence, spentMs, ...used, promptTokens, outputTokens };
}
