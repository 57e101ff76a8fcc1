import { runWith } from '../context.ts';
import { isPlainRead, type Operation, READ_POSITION } from './operation/operation.ts';

const HEADER = READ_POSITION.toLowerCase();
/** A place in the primary's log of changes, as PostgreSQL writes it: `16/B374D848`. */
const POSITION = /^[0-9A-F]{1,8}\/[0-9A-F]{1,8}$/;
/** The header of an answer that begins before its work ends: a read that sends it back needs everything. */
const LATEST = 'latest';

/** Position of the primary that no change before the call is behind; `undefined` where it cannot be had. */
export type FindPosition = () => Promise<string | undefined>;

/**
 * Returns the handler of an operation where plain reads go to a replica. Such a read waits for the position that the
 * client sent, or without one for that of the primary now. A change is answered with its position, found after it: its
 * commit, which makes it visible, stands behind all that its own statements could see of the log.
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
