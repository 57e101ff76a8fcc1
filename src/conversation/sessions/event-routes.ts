import { z } from 'zod';
import { InvalidError } from '../../core/errors.ts';
import { eventSchema } from '../../core/event.ts';
import { sessionTopic } from '../../core/names.ts';
import { eventDemands } from '../../platform/http/operation/demands.ts';
import { afterSequence, pageSize } from '../../platform/http/operation/parameters.ts';
import { exampleAnswer, exampleEvent } from './examples.ts';
import { toNewEvents } from './new-event.ts';
import { CHANGED, ifMatch, toVersions } from './precondition.ts';
import { checkEventSize, NEXT_CURSOR_HEADER, session } from './session-context.ts';
import { listEvents } from './event-store.ts';
import { appendEvents } from './append-store.ts';

const DEFAULT_PAGE_SIZE = 100;

const appendEventOperation = session.action('events')({
  operationId: 'appendEvent',
  summary: 'Append an event',
  description:
    'Its state delta is merged into the state. `id`, `author` and `timestamp` are filled in where absent. The header ' +
    '`ETag` is the new one of the session, for the next `If-Match`.',
  demands: ({ body }) => eventDemands([body]),
  headers: ifMatch,
  body: { schema: eventSchema, example: { author: 'user', content: exampleEvent.content } },
  success: { schema: eventSchema, description: 'The event as it is stored.', example: exampleEvent },
  errors: {
    400: 'A partial event is never stored.',
    409: 'The session has an event of this id.',
    412: CHANGED,
  },
  handler: async (context, { path: key, body, headers, response }) => {
    const { database, notifications, newId, limits } = context;
    const [event] = toNewEvents([body], newId);
    if (!event) throw new InvalidError('A partial event is a piece of a stream and is never stored.');
    checkEventSize(event, limits.eventBytes);
    const versions = toVersions(headers['if-match']);
    const { events, version } = await appendEvents(database.db, key, [event], { versions });
    response.setHeader('etag', `"${version}"`);
    notifications.publish(sessionTopic(key));
    return { kind: 'json', text: events[0]?.text ?? 'null' };
  },
});

const listEventsOperation = session.action('events')({
  method: 'get',
  operationId: 'listEvents',
  load: 'heavy',
  summary: "List a session's events",
  description:
    'A page, oldest first; large events make it shorter than `limit`. The header ' +
    `\`${NEXT_CURSOR_HEADER}\` is the \`afterSequence\` of the next one.`,
  query: z.object({
    afterSequence: afterSequence.default(0),
    limit: pageSize('Maximum number of events of the page.').default(DEFAULT_PAGE_SIZE),
  }),
  success: { schema: z.array(eventSchema), description: 'The events.', example: [exampleEvent, exampleAnswer] },
  handler: async ({ database }, { path, query, response, notFound }) => {
    const page = await listEvents(database.reads, path, query.afterSequence, query.limit);
    if (!page) throw notFound();
    if (page.next !== undefined) response.setHeader(NEXT_CURSOR_HEADER, page.next);
    return { kind: 'stream', text: page };
  },
});

export const eventOperations = [appendEventOperation, listEventsOperation];
