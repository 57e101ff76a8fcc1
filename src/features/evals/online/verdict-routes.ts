import { z } from 'zod';
import { findEvent } from '../../../conversation/sessions/event-store.ts';
import { absentSession, SESSION_PATH } from '../../../conversation/sessions/session-context.ts';
import { looseObject, optional, saysOneOf } from '../../../core/members.ts';
import { NotFoundError } from '../../../core/errors.ts';
import { storedIdentifierSchema } from '../../../core/session.ts';
import { readableUsers } from '../../../platform/http/access/authorize.ts';
import { pageQuery, readPage } from '../../../platform/http/operation/cursor.ts';
import { area } from '../../../platform/http/operation/area.ts';
import { appPath, sessionPath } from '../../../platform/http/operation/parameters.ts';
import { type EvalContext, getAuthor } from '../sets/context.ts';
import { listSessionVerdicts, MAX_VERDICTS, saveSessionVerdict } from './verdict-store.ts';

const room = area<EvalContext>('Agent execution', { read: 'read', write: 'write', owner: 'path' });

const MAX_COMMENT = 2_000;
const label = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$/);
const verdictSchema = looseObject('What a person says of a session, or of one of its events.', {
  eventId: optional(storedIdentifierSchema, 'The event that it is about [the session].'),
  passed: optional(z.boolean(), 'Thumb up or down.'),
  label: optional(label, 'A word to find it by.'),
  comment: optional(z.string().max(MAX_COMMENT), 'In words.'),
});
const exampleVerdict = { passed: false, label: 'wrong-tool', comment: 'It should have asked first.' };

const saveOne = room.operation({
  method: 'put',
  path: `${SESSION_PATH}/verdict`,
  operationId: 'saveSessionVerdict',
  summary: 'Say whether a session, or an event of it, is good',
  description:
    'Each caller has one verdict on each; a further one takes its place, and null in all that it says removes it. A ' +
    `session has at most ${MAX_VERDICTS}.`,
  parameters: { path: sessionPath },
  body: {
    schema: verdictSchema.refine(
      saysOneOf('passed', 'label', 'comment'),
      'one of passed, label and comment has to be given; null in each removes the verdict',
    ),
    required: true,
    example: exampleVerdict,
  },
  errors: { 404: 'No such session or event.', 409: 'The session has as many as it may.' },
  absent: absentSession,
  handler: async ({ database }, { path, body, principal, notFound }) => {
    const { eventId, passed = null, label: word = null, comment = null } = body;
    if (eventId != null && !(await findEvent(database.db, path, eventId)))
      throw new NotFoundError(`Event not found: ${eventId}`);
    const verdict = { eventId: eventId ?? null, author: getAuthor(principal), passed, label: word, comment };
    if (!(await saveSessionVerdict(database.db, path, verdict))) throw notFound();
  },
});

const listAll = room.operation({
  method: 'get',
  path: '/apps/{app_name}/session-verdicts',
  operationId: 'listSessionVerdicts',
  summary: 'List what people say of sessions',
  owner: 'caller',
  parameters: {
    path: appPath,
    query: pageQuery('verdicts').extend({
      userId: storedIdentifierSchema.optional().describe('Only sessions of this user.'),
      sessionId: storedIdentifierSchema.optional().describe('Only this session.'),
      label: label.optional().describe('Only those with this label.'),
      passed: z.boolean().optional().describe('Only thumbs up, or only thumbs down.'),
    }),
  },
  success: {
    schema: looseObject('A page of verdicts.', {
      items: z
        .array(
          verdictSchema.extend({
            userId: z.string().describe('Owner of the session.'),
            sessionId: z.string().describe('The session.'),
            author: z.string().describe('Who said so.'),
            createTime: z.number().describe('When it was said, Unix seconds.'),
          }),
        )
        .describe('Those of this page, newest first.'),
      nextCursor: z.string().optional().describe('The `cursor` of the next page; absent on the last one.'),
    }),
    description: 'The verdicts on sessions of users that the caller may act for.',
    example: {
      items: [{ userId: 'u1', sessionId: 's1', ...exampleVerdict, author: 'u1', createTime: 1_795_200_809.5 }],
    },
  },
  handler: async ({ database }, { path: { appName }, query, principal }) => {
    const { limit, cursor, userId, ...filter } = query;
    const userIds = readableUsers(principal, userId === undefined ? undefined : [userId]);
    const value = await readPage({ limit, cursor }, (most, after) =>
      listSessionVerdicts(database.reads, appName, { ...filter, userIds, limit: most, after }),
    );
    return { kind: 'value', value };
  },
});

export const verdictOperations = [saveOne, listAll];
