import { z } from 'zod';
import type { Config } from '../../../config/config.ts';
import { NotFoundError } from '../../../core/errors.ts';
import { bodyText } from '../../../core/members.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { BUSY_ERRORS, invocationHeaders } from '../../../invocations/wire-request.ts';
import { type Call, loadOnce, operation } from '../../../platform/http/operation/operation.ts';
import { toBase } from '../../../platform/http/operation/public-base.ts';
import { appPath } from '../../../platform/http/operation/parameters.ts';
import { doorOwner, doorQuery, toDoorUser } from '../door-user.ts';
import type { Feature } from '../../../platform/feature/feature.ts';

const loadServe = loadOnce(() => import('./serve.ts'));
const METADATA_PATH = '/.well-known/oauth-protected-resource/mcp';

export interface McpContext extends InvocationContext {
  config: Pick<Config, 'auth' | 'PUBLIC_URL'>;
  version: string;
}

const params = { name: 'harness_agent', arguments: { prompt: 'What is 17 * 23?' } };
const message = { jsonrpc: '2.0', id: 1, method: 'tools/call', params };
const structuredContent = { session: 's1', invocation: 'e-1', status: 'succeeded', text: '391' };
const answer = { jsonrpc: '2.0', id: 1, result: { content: [{ type: 'text', text: '391' }], structuredContent } };

/** The two operations that take MCP messages differ only in their path: with or without an application. */
const mcp = {
  method: 'post',
  scope: 'invoke',
  // A request is charged as a small read; when the MCP method is known, its rate limit is charged too.
  load: 'read',
  isStream: true,
  description:
    'Each application is a tool: `prompt` asks it, `session` goes on with a conversation. Revisions 2025-11-25 and ' +
    '2026-07-28, without sessions of the protocol; with its extension for tasks a call is an invocation to come back ' +
    'to. Artifacts are resources, skills prompts. `_meta["agent-runtime/idempotency-key"]` is the `Idempotency-Key`.',
  owner: doorOwner,
  resourceMetadata: METADATA_PATH,
  body: {
    schema: bodyText.describe('One message of JSON-RPC.'),
    required: true,
    isText: true,
    example: JSON.stringify(message),
    json: { schema: { type: 'object', properties: {}, description: 'A message of JSON-RPC.' }, example: message },
  },
  success: {
    schema: z.string(),
    description: 'The answer: JSON, or as the last event of a stream after notices of progress.',
    example: `event: message\ndata: ${JSON.stringify(answer)}\n\n`,
    mediaType: 'text/event-stream',
    json: { schema: { type: 'object', properties: {}, description: 'An answer of JSON-RPC.' }, example: answer },
  },
  refusal: { type: 'object', properties: {}, description: 'An error of JSON-RPC, or `detail` as everywhere.' },
  bare: { 202: 'It was a notification.' },
  errors: { 400: 'No message of the protocol.', 404: 'No such application.', 406: 'No stream.', ...BUSY_ERRORS },
} as const;

const callMcp = operation({
  ...mcp,
  path: '/mcp',
  operationId: 'callMcp',
  summary: 'Serve an MCP client',
  parameters: { query: doorQuery, headers: invocationHeaders },
  handler: (context: McpContext, call) => serve(context, [...context.agents.keys()], call),
});

const callMcpApp = operation({
  ...mcp,
  path: '/mcp/{app_name}',
  operationId: 'callMcpApp',
  summary: 'Serve an MCP client of one application',
  parameters: { path: appPath, query: doorQuery, headers: invocationHeaders },
  handler: (context: McpContext, call) => serve(context, [call.path.appName], call),
});

async function serve(
  context: McpContext,
  hosted: string[],
  call: Call<unknown, z.output<typeof doorQuery>, z.output<typeof invocationHeaders>, string>,
) {
  const { serveMessage } = await loadServe();
  const { apps } = call.principal;
  const appNames = apps ? hosted.filter((name) => apps.has(name)) : hosted;
  return serveMessage(context, { ...call, appNames, userId: toDoorUser(call.principal, call.query.user_id) });
}

const metadataSchema = z
  .looseObject({
    resource: z.string().describe('The resource that tokens are made for.'),
    authorization_servers: z.array(z.string()).describe('Their issuers.'),
    bearer_methods_supported: z.array(z.string()).describe('How they are sent.'),
    scopes_supported: z.array(z.string()).optional().describe('The scopes that a client needs.'),
  })
  .describe('Metadata of a protected resource.');

const getMcpMetadata = operation({
  method: 'get',
  path: METADATA_PATH,
  operationId: 'getMcpMetadata',
  scope: 'none',
  owner: 'open',
  summary: 'Get the metadata for MCP clients',
  description: 'RFC 9728: which issuers give the tokens that this service takes. Where tokens are taken only.',
  success: {
    schema: metadataSchema,
    description: 'The metadata.',
    example: {
      resource: 'https://agents.example.com/mcp',
      authorization_servers: ['https://id.example.com'],
      bearer_methods_supported: ['header'],
    },
  },
  errors: { 404: 'Tokens of an issuer are not taken.' },
  handler: async ({ config }: McpContext, { request }) => {
    const { auth } = config;
    if (!auth.issuers) throw new NotFoundError('Tokens of an issuer are not taken here.');
    // A client compares `resource` with the URL that it uses, so an audience that is a URL is returned as `resource`.
    const [audience, ...others] = new Set(auth.issuers.map((each) => each.audience));
    const isAddress = audience !== undefined && others.length === 0 && URL.canParse(audience);
    const resource = isAddress ? audience : `${toBase(config, request)}/mcp`;
    const hasScopes = auth.issuers.some(({ scopeClaim }) => scopeClaim !== undefined);
    const value = {
      resource,
      authorization_servers: auth.issuers.map(({ issuer }) => issuer),
      bearer_methods_supported: ['header'],
      ...(hasScopes && { scopes_supported: ['invoke', 'read'] }),
    };
    return { kind: 'value', value };
  },
});

const operations = [callMcp, callMcpApp, getMcpMetadata];

export const mcpDoor = {
  name: 'mcp',
  door: 'MCP',
  operations,
  // For MCP clients that request the metadata of protected resources (RFC 9728) without the path of the resource.
  aliases: { '/.well-known/oauth-protected-resource': ['getMcpMetadata'] },
} satisfies Feature<McpContext>;
