import type { Request, Response } from 'express';
import { z } from 'zod';
import type { Content } from '../../core/content.ts';
import { type Event, withoutRewound } from '../../core/event.ts';
import type { SessionHistory } from '../../conversation/sessions/history-store.ts';
import type { InvocationRef } from './handle.ts';
import { type ExternalCall, listExternalCalls } from './open-calls.ts';
import { identifierSchema, type SessionKey } from '../../core/session.ts';
import { NOT_VALID_ANY_MORE, type Principal, requireOwner } from '../../platform/http/operation/principal.ts';
import { openEventStream } from '../../platform/http/operation/server-sent-events.ts';
import { getBodyBytes } from '../../platform/http/limits/request-limits.ts';
import { startOnce } from '../../invocations/background.ts';
import { type InvocationContext, type InvocationRequest, newInvocationId } from '../../invocations/context.ts';
import { requestCancel } from '../../invocations/fence.ts';
import { disconnectSignal, type invocationHeaders, toInvocationOptions } from '../../invocations/request.ts';

/** Whom the one developer of mode `local` is taken for, as in the ADK Web UI, and a key that names nobody. */
const LOCAL_USER = 'user';

/** The member of a query that names the user. */
const doorUserSchema = identifierSchema
  .optional()
  .describe('The owner of the session [of a token: its user; of a key that acts for all, and locally: `user`].');

/**
 * Returns the user that a request of a door is about. Clients of several protocols have no word for one: a key that acts
 * for all has one user then, at every door. @throws {ValidationFailedError} where a key is bound to users and names none
 */
export function toDoorUser(principal: Principal, named: string | undefined): string {
  const actsForAll = principal.kind === 'anonymous' || (principal.kind === 'key' && !principal.users);
  return requireOwner(principal, named ?? (actsForAll ? LOCAL_USER : undefined), 'query', 'user_id');
}

/** The query of an operation about one session. */
export const doorQuery = z.object({ user_id: doorUserSchema });
type DoorQuery = z.output<typeof doorQuery>;

/** The owner of what such an operation is about. */
export const doorOwner = {
  user: ({ query }: { query: DoorQuery }) => query.user_id as string,
  absent: ({ query }: { query: DoorQuery }) => `User not found: ${query.user_id}`,
};

/** Returns the key of the session that a request names. @throws {ValidationFailedError} where no user is named */
export const toDoorKey = (
  { appName, sessionId }: Omit<SessionKey, 'userId'>,
  { query, principal }: { query: DoorQuery; principal: Principal },
): SessionKey => ({ appName, userId: toDoorUser(principal, query.user_id), sessionId });

/**
 * Sends data as events while the client is there and this process does not stop; the stream may end before the data.
 * @param toExpired - returns the data of the last event where the credential is not valid any more
 * @param toName - returns the name of an event [it has none]
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

/** A prompt, or the answer to what an invocation waits for. */
export interface TurnRequest extends Pick<InvocationRequest, 'overrides' | 'stateDelta'> {
  content: Content;
  /** The paused invocation that goes on [a new one]. */
  resumed?: string | undefined;
  /** Id of a new one [a fresh one]. */
  invocationId?: string;
  /** All that makes two requests the same [the session and all members]. */
  requested?: unknown;
  /** False: the session has to be there; `new`: it must not [true]. */
  createSession?: boolean | 'new';
  /** False: its text is not kept as it comes [true]. */
  streaming?: boolean;
}

/** The request that starts a turn. */
export interface TurnCall {
  headers: z.output<typeof invocationHeaders>;
  request: Request;
  response: Response;
}

/** Finds the last paused invocation of a session, and the calls that it waits for; a client makes up none. */
export async function findPaused(
  { feeds }: Pick<InvocationContext, 'feeds'>,
  key: SessionKey,
  history: SessionHistory | null | undefined,
): Promise<{ invocationId: string; calls: ExternalCall[] } | undefined> {
  const isOwn = ({ id, author }: Event) => author !== 'user' && history?.runtimeEventIds.has(id ?? '') === true;
  const waiting = listExternalCalls(withoutRewound(history?.events ?? []), isOwn).filter(
    ({ answeredBy }) => !answeredBy,
  );
  const invocationId = waiting.at(-1)?.invocationId;
  const invocation = invocationId && (await feeds.readInvocation(key, invocationId));
  if (!invocation || invocation.status !== 'paused') return undefined;
  return { invocationId, calls: waiting.filter((call) => call.invocationId === invocationId) };
}

/** Returns a turn of a session, which is made where it may be absent, as an invocation in the background. */
export function toRun(
  context: Pick<InvocationContext, 'newId'>,
  key: SessionKey,
  { requested, ...turn }: TurnRequest,
  headers: TurnCall['headers'],
): InvocationRequest {
  const { content, resumed, invocationId = resumed ?? newInvocationId(context), overrides, stateDelta } = turn;
  const { createSession = true, streaming = true } = turn;
  return {
    key,
    invocationId,
    resumes: resumed !== undefined,
    content,
    overrides,
    stateDelta,
    createSession,
    streaming,
    inBackground: true,
    ...toInvocationOptions(headers, requested ?? [key, content, resumed, overrides]),
  };
}

/**
 * Starts a turn: it outlives its client, unless `ON_DISCONNECT` says otherwise, and its process. A repeated request is
 * attached to the first.
 * @returns its invocation; not `isNew` where an earlier request with the same key has started it
 */
export async function startTurn(
  context: InvocationContext,
  key: SessionKey,
  turn: TurnRequest,
  { headers, request, response }: TurnCall,
): Promise<InvocationRef & { isNew: boolean }> {
  const run = toRun(context, key, turn, headers);
  const signal = disconnectSignal(context, response);
  const invocationId = await startOnce(context, run, getBodyBytes(request));
  const cancel = () =>
    requestCancel(context, key, invocationId).catch((err: unknown) =>
      context.log.error({ err, invocationId }, 'an invocation whose client left could not be cancelled'),
    );
  if (signal?.aborted) await cancel();
  else signal?.addEventListener('abort', () => void cancel(), { once: true });
  if (!response.headersSent) response.setHeader('x-invocation-id', invocationId);
  return { key, invocationId, isNew: invocationId === run.invocationId };
}
