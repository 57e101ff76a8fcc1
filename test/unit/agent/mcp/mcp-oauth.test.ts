import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { parseMcpServers } from '../../../../src/agent/definition/harness-file.ts';
import { toAgentOverrides } from '../../../../src/agent/definition/overrides.ts';
import { McpConnections } from '../../../../src/agent/mcp/mcp-connections.ts';
import { connectMcpServers, type McpSettings } from '../../../../src/agent/mcp/mcp-tools.ts';
import { startMcpServer } from '../../../support/mcp-server.ts';
import { MINUTE } from '../../../support/patience.ts';

/** The product's limits of time would only say how busy the machine is. */
const timeouts = { connectMs: MINUTE, listMs: MINUTE, callMs: MINUTE };
const { signal } = new AbortController();

/** An authorization server that gives `token-1`, `token-2` … to the operator's credentials. */
async function startIssuer(expires_in: number | undefined) {
  const asked: { body: string; authorization: string | undefined; secret: unknown }[] = [];
  const http = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk) => (body += String(chunk)));
    request.on('end', () => {
      const json = (status: number, value: object) =>
        response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value));
      if (request.url?.startsWith('/.well-known/')) {
        const grants = { response_types_supported: ['code'], grant_types_supported: ['client_credentials'] };
        return json(200, {
          issuer,
          authorization_endpoint: `${issuer}/a`,
          token_endpoint: `${issuer}/token`,
          ...grants,
        });
      }
      const { authorization, 'x-secret': secret } = request.headers;
      asked.push({ body, authorization, secret });
      return json(200, { access_token: `token-${asked.length}`, token_type: 'Bearer', expires_in });
    });
  });
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    http.close();
    http.closeAllConnections();
  });
  const issuer = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
  return { issuer, asked };
}

/** An MCP server that wants these tokens, and names an issuer by a metadata document. */
async function startGuarded(named: () => { issuer: string; metadata?: string }, accepts: (token: string) => boolean) {
  const server = await startMcpServer([{ name: 'work' }], {
    intercept(request, response) {
      const { issuer, metadata } = named();
      if (request.url?.startsWith('/.well-known/oauth-protected-resource')) {
        const document = { resource: server.url, authorization_servers: [issuer] };
        response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(document));
        return true;
      }
      if (accepts(request.headers.authorization?.replace('Bearer ', '') ?? '')) return false;
      const address = metadata ?? new URL('/.well-known/oauth-protected-resource/mcp', server.url).href;
      response.writeHead(401, { 'www-authenticate': `Bearer resource_metadata="${address}"` }).end();
      return true;
    },
  });
  onTestFinished(() => server.close());
  return server;
}

const secret = { clientId: 'us', clientSecret: 'secret-of-us' };
const newSettings = (): McpSettings => ({
  egress: { allowLoopback: true },
  timeouts,
  connections: new McpConnections(32),
});

test('the credentials of the operator get one token for all invocations, for this server', async () => {
  const { issuer, asked } = await startIssuer(3_600);
  const server = await startGuarded(
    () => ({ issuer }),
    (token) => token === 'token-1',
  );
  const settings = newSettings();
  const entry = {
    name: 'docs',
    url: server.url,
    headers: { 'x-secret': 'for the server' },
    oauth: { ...secret, issuer },
  };
  const connect = () => connectMcpServers([entry], settings, [], signal);
  for (let round = 0; round < 2; round += 1)
    await Promise.all(Array.from({ length: 4 }, async () => (await connect()).close()));
  const basic = `Basic ${Buffer.from('us:secret-of-us').toString('base64')}`;
  expect(asked).toEqual([
    {
      body: expect.stringContaining(`resource=${encodeURIComponent(server.url)}`) as unknown,
      authorization: basic,
      secret: undefined,
    },
  ]);
  expect(server.headers.some(({ authorization }) => authorization?.includes('Basic'))).toBe(false);
});

test('a token that is refused is got anew, once', async () => {
  const { issuer, asked } = await startIssuer(undefined);
  let valid = 'token-1';
  const server = await startGuarded(
    () => ({ issuer }),
    (token) => token === valid,
  );
  const [entry, settings] = [{ name: 'docs', url: server.url, oauth: { ...secret, issuer } }, newSettings()];
  await (await connectMcpServers([entry], settings, [], signal)).close();
  valid = 'token-2';
  await (await connectMcpServers([entry], settings, [], signal)).close();
  expect(asked).toHaveLength(2);
  valid = 'no token of this issuer';
  await expect(connectMcpServers([entry], settings, [], signal)).rejects.toMatchObject({
    message: 'MCP server `docs` could not be reached. It answered HTTP 401.',
  });
  // One for each of the two protocols that it is tried in.
  expect(asked).toHaveLength(4);
});

test('a server that names another issuer gets neither the credentials nor a token there', async () => {
  const [ours, theirs] = [await startIssuer(3_600), await startIssuer(3_600)];
  const server = await startGuarded(
    () => ({ issuer: theirs.issuer }),
    () => false,
  );
  const entry = { name: 'docs', url: server.url, oauth: { ...secret, issuer: ours.issuer } };
  await expect(connectMcpServers([entry], newSettings(), [], signal)).rejects.toMatchObject({
    message: 'MCP server `docs` could not be reached. Its authorization failed.',
  });
  expect([ours.asked, theirs.asked]).toEqual([[], []]);
});

test.each(['http://169.254.169.254/metadata', 'http://10.0.0.1/metadata'])(
  'metadata at %s is not fetched',
  async (metadata) => {
    const { issuer, asked } = await startIssuer(3_600);
    const server = await startGuarded(
      () => ({ issuer: 'http://10.0.0.1', metadata }),
      () => false,
    );
    const entry = { name: 'docs', url: server.url, oauth: { ...secret, issuer } };
    await expect(connectMcpServers([entry], newSettings(), [], signal)).rejects.toMatchObject({
      message: expect.stringMatching(/^MCP server `docs` could not be reached\. /) as unknown,
    });
    expect(asked).toEqual([]);
  },
);

test('credentials stand in the definition, with variables, and never in a request', () => {
  const oauth = { client_id: 'us', client_secret: '${SECRET}', issuer: 'https://id.example' };
  const text = JSON.stringify([{ name: 'docs', url: 'https://docs.example', oauth }]);
  expect(parseMcpServers(text, { SECRET: 's' })).toEqual([
    { name: 'docs', url: 'https://docs.example', oauth: { clientId: 'us', clientSecret: 's', issuer: oauth.issuer } },
  ]);
  const sent = { url: 'https://docs.example', oauth: { ...secret, issuer: 'https://id.example' }, command: 'sh' };
  const { mcpServers } = toAgentOverrides({ mcp_servers: [sent] });
  expect(mcpServers).toEqual([{ name: 'docs.example', url: 'https://docs.example', headers: {} }]);
});
