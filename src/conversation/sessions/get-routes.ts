import { z } from 'zod';
import { afterSequence, INT32_MAX } from '../../platform/http/operation/parameters.ts';
import { ValidationFailedError, valueError } from '../../platform/http/operation/request-errors.ts';
import { findEtag, ifNoneMatch, isUnchanged } from './precondition.ts';
import { session } from './session-context.ts';
import { findSession } from './session-store.ts';

const sequence = z.int().min(0).max(INT32_MAX);

export const getSession = session.read({
  wire: 'ADK',
  load: 'heavy',
  description:
    'With its state and all events, in order. This is also how a session is exported. With `atSequence` or `atTime` ' +
    'both are those of then; of the keys with `user:` and `app:` in front, which have no history, the state of then ' +
    "has what the session's own events set until then. The header `ETag` is for `If-None-Match` and `If-Match`.",
  query: z.object({
    numRecentEvents: sequence.optional().describe('Only the newest so many events, still oldest first.'),
    afterSequence: afterSequence.optional(),
    atSequence: sequence.optional().describe('As it was after this event; 0 is before the first.'),
    atTime: z
      .number()
      .optional()
      .describe('As it was at this Unix time in seconds: with the events before the first one that is later.'),
    withDetails: z
      .boolean()
      .default(false)
      .describe("True: with the members of `Session` that ADK's own clients do not know."),
  }),
  headers: ifNoneMatch,
  errors: { 400: 'The session has not reached `atSequence`.' },
  bare: { 304: 'The session and the states that it shares have not changed.' },
  handler: async ({ database }, { path, query, headers, response, notFound }) => {
    if (query.atSequence !== undefined && query.atTime !== undefined)
      throw new ValidationFailedError([valueError(['query', 'atTime'], 'atSequence says it already', query.atTime)]);
    const known = headers['if-none-match'];
    const etag = known && (await findEtag(database.reads, path));
    if (known && etag !== undefined && isUnchanged(etag, known)) {
      response.writeHead(304, { etag }).end();
      return { kind: 'sent' };
    }
    const found = await findSession(database.reads, path, query);
    if (!found) throw notFound();
    response.setHeader('etag', found.etag);
    return { kind: 'stream', text: found };
  },
});
