import { z } from 'zod';
import { jsonObject } from '../../../core/content.ts';
import { identifierSchema, type SessionKey } from '../../../core/session.ts';
import { invocationHeaders } from '../../../invocations/request.ts';
import type { Principal } from '../../../platform/http/operation/principal.ts';
import { type doorQuery, toClientUser } from '../start-turn.ts';
import { refusal, toRefusal } from './errors.ts';

/** Headers of what runs an agent, with the names that front ends give a user and a chat. */
export const doorHeaders = invocationHeaders.extend({
  'x-session-id': identifierSchema.optional().describe('The session of a chat [one that goes with the answer].'),
  'x-openwebui-chat-id': identifierSchema.optional().describe('The same, as Open WebUI names it.'),
  'x-openwebui-user-id': identifierSchema.optional().describe('The owner, as Open WebUI names it.'),
});

/** The place at which a request may name its user. */
interface Named {
  query: z.output<typeof doorQuery>;
  headers: { 'x-openwebui-user-id'?: string | undefined };
  body?: { user?: string | null | undefined } | undefined;
}
const toNamed = ({ query, headers, body }: Named) =>
  query.user_id ?? headers['x-openwebui-user-id'] ?? body?.user ?? undefined;

/** Returns the user of a request that begins something. @throws {ValidationFailedError} where it must name one */
export const toUser = (sent: Named & { principal: Principal }): string => toClientUser(sent.principal, toNamed(sent));

/** The owner of what a request begins. */
export const beginner = {
  user: (sent: Named) => toNamed(sent) as string,
  absent: (sent: Named) => `User not found: ${toNamed(sent)}`,
};

/** The members that all operations of this door share. */
export const door = { refusal, toRefusal };

/** Returns the members of all operations about one thing: its id says whose it is, or nothing that is found. */
export const about = <Name extends string>(name: Name, what: string, parse: (id: string) => SessionKey | undefined) => {
  type Sent = { [each in Name]: string };
  const absent = (path: Sent) => `${what} not found: ${path[name]}`;
  const owner = {
    user: ({ path }: { path: Sent }) => parse(path[name])?.userId as string,
    app: ({ path }: { path: Sent }) => parse(path[name])?.appName as string,
    absent: ({ path }: { path: Sent }) => absent(path),
  };
  return { ...door, owner, absent, errors: { 404: `${what} not found.` } };
};

/** Answers a value. */
export const show = async (found: Promise<object> | object) => ({ kind: 'value' as const, value: await found });

/** Returns the schema of an answer, which is as the protocol has it, with an example. */
export const shown = (description: string, example: Record<string, unknown>) => ({
  schema: jsonObject.describe(description),
  description,
  example,
});

/** A list of items, in pages. */
export const paged = {
  query: z.object({
    after: z.string().max(4_096).optional().describe('Id of the item behind which the page begins.'),
    limit: z.int().min(1).max(100).default(20).describe('Most items of the page.'),
    order: z.enum(['asc', 'desc']).default('desc').describe('Oldest or newest first.'),
  }),
  page: shown('A page of items.', { object: 'list', data: [], first_id: null, last_id: null, has_more: false }),
};

/** An answer that is whole, or a stream where `stream` is true. */
export const answer = (example: object, event: string) =>
  ({
    schema: z.string(),
    description: 'The answer: JSON, or a stream of events where `stream` is true.',
    example: event,
    mediaType: 'text/event-stream',
    json: { schema: { type: 'object', properties: {}, description: 'The whole answer.' }, example },
  }) as const;
