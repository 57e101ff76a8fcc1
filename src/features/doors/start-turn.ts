import type { Request, Response } from 'express';
import { z } from 'zod';
import type { Content } from '../../core/content.ts';
import { type Event, withoutRewound } from '../../core/event.ts';
import type { SessionHistory } from '../../conversation/sessions/history-store.ts';
import { type ExternalCall, listExternalCalls } from './open-calls.ts';
import { identifierSchema, type SessionKey } from '../../core/session.ts';
import { NOT_VALID_ANY_MORE, type Principal, requireOwner } from '../../platform/http/operation/principal.ts';
import { openEventStream } from '../../platform/http/operation/server-sent-events.ts';
import { type InvocationContext, type InvocationRequest, newInvocationId } from '../../invocations/context.ts';
import { type invocationHeaders, toInvocationOptions } from '../../invocations/wire-request.ts';

/** The ADK Web UI's default user: in the mode `local`, and for API keys for all users if the request names none. */
const LOCAL_USER = 'user';

const doorUserSchema = identifierSchema
  .optional()
  .describe('The owner of the session [of a token: its user; of a key that acts for all, and locally: `user`].');

/**
 * Clients of some protocols cannot name a user. With an API key for all users they share the default user.
 * @throws {ValidationFailedError} if an API key is bound to users and the request names no user
 */
export function toDoorUser(principal: Principal, userId: string | undefined): string {
  const actsForAll = principal.kind === 'anonymous' || (principal.kind === 'key' && !principal.users);
  return requireOwner(principal, userId ?? (actsForAll ? LOCAL_USER : undefined), 'query', 'user_id');
}

export const doorQuery = z.object({ user_id: doorUserSchema });
/** What the OpenAPI document calls the parameter of {@link doorQuery}. */
export const doorParameters = { DoorUserId: doorQuery.shape.user_id };
type DoorQuery = z.output<typeof doorQuery>;

export const doorOwner = {
  user: ({ query }: { query: DoorQuery }) => query.user_id as string,
  absent: ({ query }: { query: DoorQuery }) => `User not found: ${query.user_id}`,
};

/** @throws {ValidationFailedError} if the request must name a user and does not */
export const toDoorKey = (
  { appName, sessionId }: Omit<SessionKey, 'userId'>,
  { query, principal }: { query: DoorQuery; principal: Principal },
): SessionKey => ({ appName, userId: toDoorUser(principal, query.user_id), sessionId });

/**
 * Sends data as server-sent events until they end, the client disconnects or this process drains.
 * @param toExpired - builds the last event, which is sent if the credential becomes invalid
 * @param toName - returns the name of an event; default: no name
 */
export async function sendEvents(
  { draining }: Pick<InvocationContext, 'draining'>,
  response: Response,
  toExpired: (message: string) => object,
  read: (signal: AbortSignal) => AsyncIterable<object | string>,
  toName: (data: object) => string | undefined = () => undefined,
): Promise<{ kind: 'sent' }> {
  const toData = (data: object | string) => (typeof data === 'string' ? data : JSON.stringify(data));
  const expired = `data: ${toData(toExpired(NOT_VALID_ANY_MORE))}\n\n`;
  const stream = openEventStream(response, { comments: true, isJoined: true, expired });
  for await (const data of read(AbortSignal.any([stream.signal, draining])))
    await stream.send(toData(data), undefined, typeof data === 'string' ? undefined : toName(data));
  stream.end();
  return { kind: 'sent' };
}

/** A prompt, or answers to the calls of a paused invocation. */
export interface TurnRequest extends Pick<InvocationRequest, 'overrides' | 'stateDelta'> {
  content: Content;
  /** Id of the paused invocation to resume; default: start a new one. */
  resumedId?: string | undefined;
  /** Id for the new invocation; default: a generated one. */
  invocationId?: string;
  /** Value that must be equal in a retry with the same idempotency key; default: session and content. */
  identity?: unknown;
  /** True (default): create a missing session. False: it must exist. `new`: it must not exist. */
  createSession?: boolean | 'new';
  /** `false`: do not store partial text; default: `true`. */
  streaming?: boolean;
}

export interface TurnCall {
  headers: z.output<typeof invocationHeaders>;
  request: Request;
  response: Response;
  /** True: a client that leaves before its response is complete cancels the turn that its request began. */
  leavingCancels?: boolean;
}

/** The newest paused invocation and its open calls. Events of a client are ignored: it must not invent calls. */
export async function findPaused(
  { feeds }: Pick<InvocationContext, 'feeds'>,
  key: SessionKey,
  history: SessionHistory | null | undefined,
): Promise<{ invocationId: string; calls: ExternalCall[] } | undefined> {
  if (!history) return undefined;
  const isOwn = ({ id, author }: Event) => author !== 'user' && history.runtimeEventIds.has(id ?? '');
  const waiting = listExternalCalls(withoutRewound(history.events), isOwn).filter(({ answeredBy }) => !answeredBy);
  const invocationId = waiting.at(-1)?.invocationId;
  const invocation = invocationId && (await feeds.readInvocation(key, invocationId));
  if (!invocation || invocation.status !== 'paused') return undefined;
  return { invocationId, calls: waiting.filter((call) => call.invocationId === invocationId) };
}

export function toRun(
  context: Pick<InvocationContext, 'newId'>,
  key: SessionKey,
  { identity, ...turn }: TurnRequest,
  headers: TurnCall['headers'],
): InvocationRequest {
  const { content, resumedId, invocationId = resumedId ?? newInvocationId(context), overrides, stateDelta } = turn;
  const { createSession = true, streaming = true } = turn;
  return {
    key,
    invocationId,
    resumes: resumedId !== undefined,
    content,
    overrides,
    stateDelta,
    createSession,
    streaming,
    inBackground: true,
    ...toInvocationOptions(headers, identity ?? [key, content, resumedId, overrides]),
  };
}
