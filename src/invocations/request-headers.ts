import type { Response } from 'express';
import { z } from 'zod';
import { AgentError } from '../core/errors.ts';
import { fingerprint, idempotencyHeaders } from '../conversation/idempotency/key.ts';
import type { InvocationRequest } from './context.ts';
import { BUSY_POLICIES } from './invocation.ts';

/** The headers of every operation that runs an agent. */
export const invocationHeaders = idempotencyHeaders.extend({
  'x-double-texting': z
    .enum(BUSY_POLICIES)
    .optional()
    .describe('While the session runs another invocation: wait, fail with 409, or interrupt it.'),
});

/** The statuses of a session that cannot be had now. */
export const BUSY_ERRORS = {
  409: 'The session is busy and the request would not wait, or the request with this key is still running.',
  429: 'The session stayed busy, too many requests wait for it, or a limit of the caller (`limit`) is reached.',
  503: 'The service has no room, or its database is away.',
};

/** What the headers of a request say of its invocation; `requested` is all that makes two requests the same. */
export const toInvocationOptions = (
  headers: z.output<typeof invocationHeaders>,
  requested: unknown,
): Pick<InvocationRequest, 'idempotency' | 'busyPolicy'> => ({
  idempotency: fingerprint(headers['idempotency-key'], requested),
  busyPolicy: headers['x-double-texting'],
});

/** A signal that aborts when the client goes away before its answer, where that is to cancel the invocation. */
export function disconnectSignal(
  { cancelOnDisconnect }: { cancelOnDisconnect: boolean },
  response: Response,
): AbortSignal | undefined {
  if (!cancelOnDisconnect) return undefined;
  const gone = new AbortController();
  response.on('close', () => {
    if (!response.writableFinished)
      gone.abort(new AgentError('cancelled', 'The invocation was cancelled: its client left.'));
  });
  return gone.signal;
}
