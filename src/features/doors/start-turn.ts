import type { Request, Response } from 'express';
import type { z } from 'zod';
import type { Content, JsonObject } from '../../core/content.ts';
import { identifierSchema, type SessionKey } from '../../core/session.ts';
import { findFirstSequence } from '../../conversation/sessions/event-store.ts';
import { type Principal, requireOwner } from '../../platform/http/operation/principal.ts';
import { getBodyBytes } from '../../platform/http/limits/request-limits.ts';
import { startOnce } from '../../invocations/background.ts';
import { type InvocationContext, type InvocationRequest, newInvocationId } from '../../invocations/context.ts';
import { askToCancel } from '../../invocations/fence.ts';
import { disconnectSignal, type invocationHeaders, toInvocationOptions } from '../../invocations/request.ts';

/** Whom the one developer of mode `local` is taken for, as in the ADK Web UI. */
const LOCAL_USER = 'user';

/** The member of a query that names the user. */
export const doorUserSchema = identifierSchema
  .optional()
  .describe('The owner of the session [of a token: its user; in mode `local`: `user`].');

/** Returns the user that a request of a door is about. @throws {ValidationFailedError} where none is named */
export const toDoorUser = (principal: Principal, named: string | undefined): string =>
  requireOwner(principal, named ?? (principal.kind === 'anonymous' ? LOCAL_USER : undefined), 'query', 'user_id');

/** A prompt, or the answer to what an invocation waits for. */
interface TurnRequest extends Pick<InvocationRequest, 'overrides'> {
  content: Content;
  stateDelta?: JsonObject | undefined;
  /** The paused invocation that goes on [a new one]. */
  resumed?: string | undefined;
  /** The part of the request that makes it the same as another one [all members]. */
  requested?: unknown;
}

/**
 * Starts a turn in a session, which is made where it is absent, as an invocation in the background: it outlives its
 * client, unless `ON_DISCONNECT` says otherwise, and its process. A repeated request is attached to the first.
 * @returns its invocation, to be read from `after` on
 */
export async function startTurn(
  context: InvocationContext,
  key: SessionKey,
  { content, stateDelta, resumed, overrides, requested = [content, stateDelta, resumed, overrides] }: TurnRequest,
  { headers, request, response }: { headers: z.output<typeof invocationHeaders>; request: Request; response: Response },
): Promise<{ key: SessionKey; invocationId: string; after: number }> {
  const run: InvocationRequest = {
    key,
    invocationId: resumed ?? newInvocationId(context),
    resumes: resumed !== undefined,
    content,
    stateDelta,
    overrides,
    createSession: true,
    streaming: true,
    inBackground: true,
    ...toInvocationOptions(headers, [key, requested]),
  };
  const signal = disconnectSignal(context, response);
  const invocationId = await startOnce(context, run, getBodyBytes(request));
  const cancel = () =>
    askToCancel(context, key, invocationId).catch((err: unknown) =>
      context.log.error({ err, invocationId }, 'an invocation whose client left could not be cancelled'),
    );
  if (signal?.aborted) await cancel();
  else signal?.addEventListener('abort', () => void cancel(), { once: true });
  response.setHeader('x-invocation-id', invocationId);
  const after = Math.max((await findFirstSequence(context.database.db, key, invocationId)) - 1, 0);
  return { key, invocationId, after };
}
