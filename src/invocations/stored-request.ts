import { z } from 'zod';
import type { AgentOverrides, McpServer } from '../agent/definition/agent.ts';
import { contentSchema, type JsonObject } from '../core/content.ts';
import { currentContext, type RequestContext } from '../platform/context.ts';
import type { InvocationRequest } from './context.ts';
import { isUncertain } from './invocation.ts';

/** Raised where a version reads other members: what an older one stored ends, instead of being misunderstood. */
const VERSION = 1;

const object = z.record(z.string(), z.unknown());

/** A request as its row keeps it, for the process that begins it or goes on with it. */
const storedRequestSchema = z.object({
  version: z.literal(VERSION),
  content: contentSchema.optional(),
  stateDelta: object.optional(),
  customMetadata: object.optional(),
  overrides: z.custom<AgentOverrides>((value) => object.safeParse(value).success),
  streaming: z.boolean(),
  answer: z
    .discriminatedUnion('kind', [
      z.object({ kind: z.literal('harness'), harnessName: z.string(), overwrite: z.boolean() }),
      z.object({ kind: z.literal('output') }),
    ])
    .optional(),
  /** The user whose rows alone it sees. */
  userId: z.string().optional(),
  callerTrace: z.string().optional(),
  /** The place of its beginning, which the claim adds: Unix seconds, the last event, and the counts in its row. */
  began: z.object({ at: z.number(), sequence: z.number(), llmCalls: z.number(), toolCalls: z.number() }).optional(),
});

/** The place where a run began. */
export type Beginning = NonNullable<z.output<typeof storedRequestSchema>['began']>;

/** The answer to keep with an invocation, made from its end. */
export type AnswerKind = NonNullable<z.output<typeof storedRequestSchema>['answer']>;

/** Returns a request whole, for the row of one that waits for its session. Headers of its MCP servers are in it. */
export function toQueuedRequest(request: InvocationRequest): JsonObject {
  const { content, stateDelta, customMetadata, overrides, streaming, answer } = request;
  const { userId, callerTrace } = currentContext();
  const kept = { content, stateDelta, customMetadata, overrides, streaming, answer, userId, callerTrace };
  return { version: VERSION, ...kept };
}

/**
 * Returns what another process needs to go on with a request where this one dies; what the claim stores as an event is
 * left out, and so is every credential. For one that cannot go on that is the reason, `endsBecause`.
 */
export function toClaimedRequest(request: InvocationRequest): JsonObject {
  const endsBecause = findHindrance(request);
  if (endsBecause !== undefined) return { version: VERSION, endsBecause };
  const whole = toQueuedRequest(request);
  if (isUncertain(request)) return whole;
  const temporary = Object.entries(request.stateDelta ?? {}).filter(([name]) => name.startsWith('temp:'));
  return { ...whole, content: undefined, stateDelta: Object.fromEntries(temporary) };
}

/** Returns why a request cannot go on in another process, the end of a sentence. */
function findHindrance({ steps, prepared, overrides }: InvocationRequest): string | undefined {
  if (steps ?? prepared) return 'it answers a live conversation, or with stored answers, which no other can go on with';
  if (overrides.mcpServers?.some(hasCredential)) return 'its MCP servers have credentials, which are not stored';
  return undefined;
}

function hasCredential({ url, headers = {} }: McpServer): boolean {
  const { username, password, search } = URL.parse(url) ?? {};
  return Object.keys(headers).length > 0 || Boolean(username || password || search);
}

/** Members of a request that its row keeps. */
type KeptMembers = 'content' | 'stateDelta' | 'customMetadata' | 'overrides' | 'streaming' | 'answer';

/** Reads a request from its row; `undefined` for one that another version stored. */
export function readStoredRequest(
  stored: unknown,
): { request: Pick<InvocationRequest, KeptMembers>; asker: RequestContext; began: Beginning | undefined } | undefined {
  const { data } = storedRequestSchema.safeParse(stored);
  if (!data) return undefined;
  const { content, stateDelta, customMetadata, overrides, streaming, answer, userId, callerTrace, began } = data;
  const request = { content, stateDelta, customMetadata, overrides, streaming, answer };
  return { request, asker: { userId, callerTrace }, began };
}
