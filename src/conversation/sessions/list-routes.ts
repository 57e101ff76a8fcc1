import { z } from 'zod';
import { readCursor, toCursor } from '../../platform/http/operation/cursor.ts';
import { pageSize } from '../../platform/http/operation/parameters.ts';
import { ValidationFailedError, valueError } from '../../platform/http/operation/request-errors.ts';
import { exampleListedSession } from './examples.ts';
import { labelCondition, MAX_LABELS, toLabelChoice } from './label.ts';
import { NEXT_CURSOR_HEADER, session } from './session-context.ts';
import { listSessions, type SessionOrder } from './session-list-store.ts';

const cursor = z
  .string()
  .max(2_048)
  .transform((text, { issues }) => {
    const place = readCursor(text);
    const message = `it must be the header ${NEXT_CURSOR_HEADER} of the page before`;
    if (!place) issues.push({ code: 'custom', message, input: text });
    return place;
  })
  .optional()
  .describe(`The header \`${NEXT_CURSOR_HEADER}\` of the page before.`);

const seconds = (which: string) => z.number().optional().describe(`Only sessions ${which} this Unix time in seconds.`);

const listQuery = z.object({
  sort: z.enum(['updated', 'created']).default('updated').describe('The time that they are sorted by.'),
  order: z.enum(['desc', 'asc']).default('desc').describe('`desc`: newest first; `asc`: oldest first.'),
  limit: pageSize('Maximum number of sessions of a page [all].').optional(),
  cursor,
  updatedAfter: seconds('updated after'),
  updatedBefore: seconds('updated before'),
  createdAfter: seconds('created after'),
  createdBefore: seconds('created before'),
  label: z
    .array(labelCondition)
    .max(MAX_LABELS)
    .optional()
    .describe('Only sessions with this label, `name=value`, or `name` for whatever value; several: with all of them.'),
  text: z
    .string()
    .min(1)
    .max(256)
    .optional()
    .describe('Only sessions whose first text of the user has this in it, in its first 200 characters, in any case.'),
  withDetails: z
    .boolean()
    .default(false)
    .describe("True: with the members of `Session` that ADK's own clients do not know."),
});

/** The name of a sort order in cursors; the default order has none. */
const toName = ({ sort, order }: SessionOrder) =>
  sort === 'updated' && order === 'desc' ? undefined : `${sort} ${order}`;

export const listSessionsOperation = session.list({
  wire: 'ADK',
  load: 'heavy',
  description:
    'Newest first unless `order` says otherwise, then by id. Sessions made by evaluation runs are left out; ' +
    '`events` is always `[]`. All of them, or with `limit` a page: shorter where states are large, with conditions ' +
    `only of the next 250 sessions, so also empty. Where there may be more, the header \`${NEXT_CURSOR_HEADER}\` is ` +
    'the `cursor` of the next one.',
  query: listQuery,
  success: { example: [exampleListedSession] },
  handler: async ({ database }, { path: { appName, userId }, query, response }) => {
    const { cursor: after, label, ...filter } = query;
    const sort = toName(filter);
    if (after && after.sort !== sort)
      throw new ValidationFailedError([valueError(['query', 'cursor'], 'it is of a list in another order')]);
    const page = { ...filter, after, labels: label && toLabelChoice(label) };
    const { next, ...text } = await listSessions(database.reads, appName, userId, page);
    if (next) response.setHeader(NEXT_CURSOR_HEADER, toCursor({ ...next, sort }));
    return { kind: 'stream', text: text };
  },
});
