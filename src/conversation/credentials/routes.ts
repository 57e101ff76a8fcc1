import { z } from 'zod';
import { operation } from '../../platform/http/operation/operation.ts';
import { userPath } from '../../platform/http/operation/parameters.ts';
import { visibleTo } from '../../platform/http/operation/principal.ts';
import { type CredentialContext, deleteGrants, redeemConsent } from './credentials.ts';

/** Path of the operation that a browser comes back to. */
export const CALLBACK_PATH = '/oauth/callback';

const finish = operation({
  method: 'get',
  path: CALLBACK_PATH,
  operationId: 'finishConsent',
  wire: 'OAuth',
  scope: 'write',
  load: 'write',
  summary: 'Finish a consent',
  description:
    'The end of a consent that an invocation asks for: the issuer sends the browser here, or to a page of yours ' +
    '(`OAUTH_REDIRECT_URL`) that calls this as its user with all that it was called with. Once, within ten minutes.',
  owner: 'caller',
  parameters: {
    query: z.object({
      state: z.string().min(1).max(256).describe('Names the consent.'),
      code: z.string().min(1).max(4_096).optional().describe('The code of the issuer [no access was given].'),
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
  errors: { 400: 'The issuer gave no access.', 404: 'Nothing waits for this.' },
  handler: async (context: CredentialContext, { query, principal }) => ({
    kind: 'value',
    value: await redeemConsent(context, query, visibleTo(principal)),
  }),
});

const deleteAll = operation({
  method: 'delete',
  path: '/apps/{app_name}/users/{user_id}/grants',
  operationId: 'deleteGrants',
  scope: 'write',
  summary: 'Delete the grants of a user',
  description: 'The access that the user gave to MCP servers is revoked and deleted.',
  parameters: { path: userPath },
  handler: async (context: CredentialContext, { path }) => {
    while ((await deleteGrants(context, path)) > 0);
  },
});

/** The operations on grants. */
export const credentialOperations = [finish, deleteAll];
