import { z } from 'zod';
import { area } from '../../platform/http/operation/area.ts';
import { identifierSchema } from '../../core/session.ts';
import { userPath } from '../../platform/http/operation/parameters.ts';
import { type Principal, requireOwner } from '../../platform/http/operation/principal.ts';
import { type CredentialContext, deleteGrants, NO_CONSENT, redeemConsent } from './credentials.ts';
import type { Feature } from '../../platform/feature/feature.ts';
import { userCredentials } from '../../platform/db/schema/schema.ts';

const room = area<CredentialContext>('Service and applications', { read: 'read', write: 'write', owner: 'path' });

export const CALLBACK_PATH = '/oauth/callback';

const finish = room.operation({
  method: 'get',
  path: CALLBACK_PATH,
  operationId: 'finishConsent',
  wire: 'OAuth',
  scope: 'write',
  load: 'write',
  summary: 'Finish a consent',
  description:
    'The end of a consent that an invocation asks for: the issuer sends the browser here, or to a page of yours ' +
    '(`OAUTH_REDIRECT_URL`) that calls this with all that it was called with, as the user who is logged in there: with ' +
    "that user's token, or with a key and `user_id`. The consent of another user is a 404. Once, within ten minutes.",
  owner: { user: ({ query }) => query.user_id as string, absent: () => NO_CONSENT },
  parameters: {
    query: z.object({
      state: z.string().min(1).max(256).describe('Names the consent.'),
      code: z.string().min(1).max(4_096).optional().describe('The code of the issuer [no access was given].'),
      user_id: identifierSchema
        .optional()
        .describe('Who is logged in on the page. Needed where no user is, but in mode `local` [of a token: its user].'),
      iss: z.string().max(2_048).optional().describe('The issuer that sent the browser (RFC 9207).'),
    }),
  },
  success: {
    schema: z
      .looseObject({
        appName: z.string().describe('Application that has access now.'),
        userId: z.string().describe('User who gave it.'),
        sessionId: z.string().describe('Session whose invocation waits for a confirmation.'),
        resource: z.string().describe('What it has access to.'),
      })
      .describe('A grant.'),
    description: 'Access is given: confirm the call that waits for it.',
    example: { appName: 'harness_agent', userId: 'u1', sessionId: 's1', resource: 'https://mcp.example.com/mcp' },
  },
  errors: { 400: 'The issuer gave no access.', 404: 'Nothing of this user waits for this.' },
  handler: async (context, { query, principal }) => ({
    kind: 'value',
    value: await redeemConsent(context, query, { userId: whoGives(principal, query.user_id), apps: principal.apps }),
  }),
});

/** The user who gives consent; `undefined` in mode `local`, where users are not distinguished. */
function whoGives(principal: Principal, named: string | undefined): string | undefined {
  if (principal.kind === 'anonymous') return named;
  const [only, ...others] = (principal.kind === 'key' && principal.users) || [];
  return requireOwner(principal, named ?? (others.length === 0 ? only : undefined), 'query', 'user_id');
}

const deleteAll = room.operation({
  method: 'delete',
  path: '/apps/{app_name}/users/{user_id}/grants',
  operationId: 'deleteGrants',
  summary: 'Delete the grants of a user',
  description: 'The access that the user gave to MCP servers is revoked and deleted.',
  parameters: { path: userPath },
  handler: async (context, { path }) => {
    while ((await deleteGrants(context, path)) > 0);
  },
});

const operations = [finish, deleteAll];

export const credentialFeature = {
  name: 'credentials',
  operations,
  userTables: [{ table: userCredentials, exported: 'no' }],
  userCopies: [{ erase: async (context, user) => ({ user_credentials: await deleteGrants(context, user) }) }],
} satisfies Feature<CredentialContext>;
