import { IDEMPOTENCY_HEADER, readKeyedRequest, type KeyedRequest } from '../idempotency/key.ts';
import type { Request, Response } from 'express';
import { AgentError } from '../core/errors.ts';
import { BUSY_POLICIES, type BusyPolicy } from './invocation.ts';
import { identifierSchema } from '../core/session.ts';
import type { HeaderParameter } from '../http/operation/operation.ts';
import { ValidationFailedError, valueError } from '../http/operation/request-errors.ts';

/** The headers of every operation that runs an agent. */
export const INVOCATION_HEADERS: HeaderParameter[] = [
  IDEMPOTENCY_HEADER,
  {
    name: 'x-double-texting',
    schema: { type: 'string', enum: BUSY_POLICIES },
    description: 'While the session runs another invocation: wait, fail with 409, or interrupt it.',
  },
];

/** The statuses of a session that cannot be had now. */
export const BUSY_ERRORS = {
  409: 'The session is busy and the request would not wait, or the request with this key is still running.',
  429: 'The session stayed busy, or too many requests wait for it.',
  503: 'The service has no room, or its database is away.',
};

/** What the headers of a request say of its invocation; `asked` is all that makes two requests the same. */
export function readInvocationHeaders(
  request: Request,
  asked: unknown,
): { idempotency: KeyedRequest | undefined; busyPolicy: BusyPolicy | undefined } {
  return {
    idempotency: readKeyedRequest(request, asked),
    busyPolicy: readPolicy(request.get('x-double-texting')),
  };
}

function readPolicy(sent: string | undefined): BusyPolicy | undefined {
  if (sent === undefined) return undefined;
  const policy = BUSY_POLICIES.find((known) => known === sent);
  if (policy) return policy;
  const expected = "'enqueue', 'reject' or 'interrupt'";
  const loc = ['header', 'x-double-texting'];
  throw new ValidationFailedError([
    { type: 'enum', loc, msg: `Input should be ${expected}`, input: sent, ctx: { expected } },
  ]);
}

/** An identifier in a header; `undefined` where it is absent or empty. @throws {ValidationFailedError} for what is none. */
export function readIdentifier(request: Request, header: string): string | undefined {
  const sent = request.get(header);
  if (!sent) return undefined;
  if (identifierSchema.safeParse(sent).success) return sent;
  throw new ValidationFailedError([valueError(['header', header], 'an identifier has 1 to 256 characters', null)]);
}

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
