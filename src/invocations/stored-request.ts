import { z } from 'zod';
import type { AgentOverrides, McpServer } from '../agent/definition/agent.ts';
import { contentSchema, type JsonObject } from '../core/content.ts';
import { onlyTemporary } from '../core/session.ts';
import { currentContext, type RequestContext } from '../platform/context.ts';
import type { Secrets } from '../platform/secrets.ts';
import type { InvocationRequest } from './context.ts';
import { isUncertain } from './invocation.ts';

/** Raised where a version reads other members: what an older one stored ends, instead of being misunderstood. */
const VERSION = 1;

/** The reasons why a request is not gone on with: parts of sentences. */
const MADE_HERE = 'it answers in a live conversation with sound, or with stored answers, which no other can go on with';
const HAS_CREDENTIALS = 'its MCP servers have credentials, which are not stored';
const UNREADABLE = 'its request was stored by another version and cannot be read';
const LOCKED = 'its MCP servers have credentials, which no key of RUNTIME_SECRET_KEY decrypts';

const object = z.record(z.string(), z.unknown());

/** The place of the secrets of a request. */
const toPlace = ({
  key: { appName, userId, sessionId },
  invocationId,
}: Pick<InvocationRequest, 'key' | 'invocationId'>): string[] => [appName, userId, sessionId, invocationId];

/** A request as its row keeps it, for the process that begins it or goes on with it. */
const storedRequestSchema = z.object({
  version: z.literal(VERSION),
  content: contentSchema.optional(),
  stateDelta: object.optional(),
  customMetadata: object.optional(),
  overrides: z.custom<AgentOverrides>((value) => object.safeParse(value).success),
  streaming: z.boolean(),
  isLive: z.boolean().optional(),
  waitsForBudget: z.boolean().optional(),
  answer: z
    .discriminatedUnion('kind', [
      z.object({ kind: z.literal('harness'), harnessName: z.string(), overwrite: z.boolean() }),
      z.object({ kind: z.literal('output') }),
    ])
    .optional(),
  /** The MCP servers of its overrides, encrypted where they have credentials. */
  secrets: z.string().optional(),
  /** The user whose rows alone it sees. */
  userId: z.string().optional(),
  /** The key that asked. */
  keyId: z.string().optional(),
  callerTrace: z.string().optional(),
  /** The place of its beginning, which the claim adds: the last event, the counts in its row, and what it has spent. */
  began: z
    .object({ spentMs: z.number(), sequence: z.number(), llmCalls: z.number(), toolCalls: z.number() })
    .optional(),
});

/** A request that cannot be read. */
const NOTHING: z.output<typeof storedRequestSchema> = { version: VERSION, overrides: {}, streaming: false };

/** The place where a run began. */
export type Beginning = NonNullable<z.output<typeof storedRequestSchema>['began']>;

/** The answer to keep with an invocation, made from its end. */
export type AnswerKind = NonNullable<z.output<typeof storedRequestSchema>['answer']>;

/**
 * Returns a request whole, for the row of one that waits for its session. MCP servers with credentials are encrypted;
 * `undefined` where they cannot be.
 */
export function toQueuedRequest(request: InvocationRequest, secrets: Secrets): JsonObject | undefined {
  const { content, stateDelta, customMetadata, streaming, isLive, waitsForBudget, answer } = request;
  const { userId, keyId, callerTrace } = currentContext();
  const caller = { userId, keyId, callerTrace };
  const kept = { content, stateDelta, customMetadata, streaming, isLive, waitsForBudget, answer, ...caller };
  const { mcpServers, ...overrides } = request.overrides;
  if (!mcpServers?.some(hasCredential)) return { version: VERSION, ...kept, overrides: request.overrides };
  if (!secrets.canSeal) return undefined;
  return { version: VERSION, ...kept, overrides, secrets: secrets.seal(JSON.stringify(mcpServers), toPlace(request)) };
}

/**
 * Returns what another process needs to go on with a request where this one dies; what the claim stores as an event is
 * left out. For one that cannot go on that is the reason, `endsBecause`.
 */
export function toClaimedRequest(request: InvocationRequest, secrets: Secrets): JsonObject {
  if (request.prepared) return { version: VERSION, endsBecause: MADE_HERE };
  const whole = toQueuedRequest(request, secrets);
  if (!whole) return { version: VERSION, endsBecause: HAS_CREDENTIALS };
  if (isUncertain(request)) return whole;
  return { ...whole, content: undefined, stateDelta: onlyTemporary(request.stateDelta) };
}

function hasCredential({ url, headers = {} }: McpServer): boolean {
  const { username, password, search } = URL.parse(url ?? '') ?? {};
  return Object.keys(headers).length > 0 || Boolean(username || password || search);
}

/** Reads the request of an invocation from its row. `refusal`: why it cannot go on elsewhere, a part of a sentence. */
export function readStoredRequest(
  stored: unknown,
  secrets: Secrets,
  place: Pick<InvocationRequest, 'key' | 'invocationId'>,
) {
  const { success, data = NOTHING } = storedRequestSchema.safeParse(stored);
  const { version: _, content, overrides, secrets: sealed, userId, keyId, callerTrace, began, ...kept } = data;
  const opened = sealed === undefined ? undefined : secrets.open(sealed, toPlace(place));
  const servers = opened === undefined ? {} : { mcpServers: JSON.parse(opened) as McpServer[] };
  const requestContext: RequestContext = { userId, keyId, callerTrace };
  const locked = sealed !== undefined && opened === undefined ? LOCKED : undefined;
  const request = { ...kept, content, overrides: { ...overrides, ...servers } };
  return { request, requestContext, began, refusal: success ? locked : UNREADABLE };
}
