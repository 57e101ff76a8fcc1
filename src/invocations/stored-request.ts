import { z } from 'zod';
import type { AgentOverrides, McpServer } from '../agent/definition/agent.ts';
import { type harnessOverridesSchema, toAgentOverrides } from '../agent/definition/overrides.ts';
import { contentSchema, type JsonObject } from '../core/content.ts';
import { onlyTemporary } from '../core/session.ts';
import { currentContext, type RequestContext } from '../platform/context.ts';
import type { Secrets } from '../platform/secrets.ts';
import type { InvocationRequest } from './context.ts';
import { isUncertain } from './invocation.ts';

/** Version of stored requests: one in another version ends with an error instead of being misread. */
const VERSION = 1;

/** Reasons why a request cannot be resumed, as ends of sentences. */
const MADE_HERE = 'it answers in a live conversation with sound, or with stored answers, which no other can go on with';
const HAS_CREDENTIALS = 'its MCP servers have credentials, which are not stored';
const UNREADABLE = 'its request was stored by another version and cannot be read';
const LOCKED = 'its MCP servers have credentials, which no key of RUNTIME_SECRET_KEY decrypts';

const object = z.record(z.string(), z.unknown());

/** Authenticated context of the encrypted secrets, so that they can be decrypted for this invocation only. */
const toPlace = ({
  key: { appName, userId, sessionId },
  invocationId,
}: Pick<InvocationRequest, 'key' | 'invocationId'>): string[] => [appName, userId, sessionId, invocationId];

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
  answer: z
    .discriminatedUnion('kind', [
      z.object({ kind: z.literal('harness'), harnessName: z.string(), overwrite: z.boolean() }),
      z.object({ kind: z.literal('output') }),
    ])
    .optional(),
  /** Of a cronjob's run that has not begun: the overrides as its cronjob has them. */
  harness: z.custom<z.output<typeof harnessOverridesSchema> | null>().optional(),
  /** The MCP servers of the request's overrides, encrypted; present only if the servers have credentials. */
  secrets: z.string().optional(),
  /** The user to whose rows the database restricts the request. */
  userId: z.string().optional(),
  /** Id of the API key that made the request. */
  keyId: z.string().optional(),
  callerTrace: z.string().optional(),
  /** Added by the claim: last sequence and counters when the run began, and the time spent since then. */
  began: z
    .object({ spentMs: z.number(), sequence: z.number(), llmCalls: z.number(), toolCalls: z.number() })
    .optional(),
});

const NOTHING: z.output<typeof storedRequestSchema> = { version: VERSION, overrides: {}, streaming: false };

/** What the session and the invocation contained when a run began. */
export type Beginning = NonNullable<z.output<typeof storedRequestSchema>['began']>;

/** Format of the result that is stored with an invocation. */
export type AnswerKind = NonNullable<z.output<typeof storedRequestSchema>['answer']>;

/** Encrypts MCP servers with credentials. @returns `undefined` if no encryption key is configured for them */
export function toQueuedRequest(request: InvocationRequest, secrets: Secrets): JsonObject | undefined {
  const { content, stateDelta, customMetadata, streaming, isLive, waitsForBudget, isRun, answer } = request;
  const { userId, keyId, callerTrace } = currentContext();
  const caller = { userId, keyId, callerTrace };
  const members = { content, stateDelta, customMetadata, streaming, isLive, waitsForBudget, isRun, answer, ...caller };
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
  if (!whole) return { version: VERSION, endsBecause: HAS_CREDENTIALS };
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
  const { version: _, content, harness, secrets: sealed, userId, keyId, callerTrace, began, ...members } = data;
  const opened = sealed === undefined ? undefined : secrets.open(sealed, toPlace(place));
  const servers = opened === undefined ? {} : { mcpServers: JSON.parse(opened) as McpServer[] };
  const requestContext: RequestContext = { userId, keyId, callerTrace };
  const locked = sealed !== undefined && opened === undefined ? LOCKED : undefined;
  const overrides = { ...toAgentOverrides(harness), ...data.overrides, ...servers };
  const request = { ...members, content, overrides };
  return { request, requestContext, began, refusal: success ? locked : UNREADABLE };
}
