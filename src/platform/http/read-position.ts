import type { Request, Response } from 'express';
import { runWith } from '../context.ts';
import { isPlainRead, type Operation, READ_POSITION } from './operation/operation.ts';

/** A place in the primary's log of changes, as PostgreSQL writes it: `16/B374D848`. */
const POSITION = /^[0-9A-F]{1,8}\/[0-9A-F]{1,8}$/;
const HEADER = READ_POSITION.toLowerCase();
/** What an answer carries whose headers go out before its work ends: a read with it needs everything. */
const LATEST = 'latest';

/** Position of the primary that no change before the call is behind; `undefined` where it cannot be had. */
export type FindPosition = () => Promise<string | undefined>;

/**
 * Does the work of a request. A plain read may go to a replica that has got to the position that the client sent, or
 * without one to where the primary is now. A change is answered with its position: found after it, because what makes
 * it visible, its commit, stands behind all that its own statements could see of the log.
 */
export async function positioned<T>(
  find: FindPosition | undefined,
  operation: Operation<unknown>,
  { request, response }: { request: Request; response: Response },
  work: () => Promise<T>,
): Promise<T> {
  if (!find || operation.owner === 'open') return work();
  if (operation.method === 'get') {
    if (!isPlainRead(operation)) return work();
    const sent = request.headers[HEADER];
    const position = typeof sent === 'string' && POSITION.test(sent) ? sent : await find();
    return position === undefined ? work() : runWith({ read: { position, isAtPrimary: false } }, work);
  }
  response.setHeader(HEADER, LATEST);
  const answer = await work();
  const position = response.headersSent ? undefined : await find();
  if (position !== undefined && !response.headersSent) response.setHeader(HEADER, position);
  return answer;
}
