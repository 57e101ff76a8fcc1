import { runWith } from '../context.ts';
import { isPlainRead, type Operation, READ_POSITION } from './operation/operation.ts';

const HEADER = READ_POSITION.toLowerCase();
/** A position (LSN) in the primary's write-ahead log, as PostgreSQL writes it: `16/B374D848`. */
const POSITION = /^[0-9A-F]{1,8}\/[0-9A-F]{1,8}$/;
/**
 * Header value of a response that begins before its work ends: a read that sends it back waits for all changes so far.
 */
const LATEST = 'latest';

/** Returns a position of the primary's log after all earlier changes; `undefined` if it cannot be found. */
export type FindPosition = () => Promise<string | undefined>;

/**
 * Wraps an operation's handler so that clients read their own writes although plain reads go to a replica. A plain read
 * waits until the replica has replayed the position that the client sent, or else the primary's current position. The
 * response of a change contains a position that is read after the commit, because the commit comes after every position
 * that the change's own statements can see.
 */
export function withReadYourWrites(find: FindPosition, operation: Operation): Operation['handler'] {
  const { handler } = operation;
  if (operation.owner === 'open') return handler;
  if (operation.method !== 'get') {
    return async (context, call) => {
      const { response } = call;
      response.setHeader(HEADER, LATEST);
      const answer = await handler(context, call);
      const position = response.headersSent ? undefined : await find();
      if (position !== undefined && !response.headersSent) response.setHeader(HEADER, position);
      return answer;
    };
  }
  if (!isPlainRead(operation)) return handler;
  return async (context, call) => {
    const sent = call.request.headers[HEADER];
    const position = typeof sent === 'string' && POSITION.test(sent) ? sent : await find();
    if (position === undefined) return handler(context, call);
    return runWith({ read: { position, isAtPrimary: false } }, () => handler(context, call));
  };
}
