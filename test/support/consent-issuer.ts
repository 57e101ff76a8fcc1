import { createHash, randomUUID } from 'node:crypto';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { readBody } from './edge.ts';
import { type FakeMcp, startMcpServer } from './mcp-server.ts';

/** An authorization server, whose user says yes at once, and an MCP server that takes its tokens. */
export interface ConsentIssuer {
  url: string;
  server: FakeMcp;
  /** Requests to its endpoints: path and form. */
  asked: { path: string; form: Record<string, string> }[];
  /** True for a header with an access token that is good. */
  takes: (authorization: string | undefined) => boolean;
  /** Takes back all access tokens that were given. */
  expire: () => void;
  /** The issuer that it says it is when it sends the browser back [its own]. */
  names: { iss?: string };
  /** Opens a page as a browser does. @returns the address that it is sent to */
  open: (page: string) => Promise<URL>;
  close: () => Promise<void>;
}

/** Starts both on loopback. `internal` is an address that the MCP server names as its issuer instead. */
export async function startConsentIssuer(internal?: string): Promise<ConsentIssuer> {
  const [codes, refresh, access] = [new Map<string, string>(), new Set<string>(), new Set<string>()];
  const asked: ConsentIssuer['asked'] = [];
  const names: ConsentIssuer['names'] = {};
  const json = (response: ServerResponse, status: number, value: object) =>
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value));
  const give = () => {
    const tokens = { access_token: randomUUID(), refresh_token: randomUUID(), token_type: 'Bearer', expires_in: 3_600 };
    access.add(tokens.access_token);
    refresh.add(tokens.refresh_token);
    return tokens;
  };
  const exchange = ({ grant_type, code = '', code_verifier = '', refresh_token = '' }: Record<string, string>) => {
    // A refresh token is good once, and so is a code.
    if (grant_type === 'refresh_token') return refresh.delete(refresh_token) ? give() : undefined;
    const challenge = codes.get(code);
    codes.delete(code);
    return challenge === createHash('sha256').update(code_verifier).digest('base64url') ? give() : undefined;
  };
  const http = createServer((request, response) => {
    void readBody(request).then((bytes) => {
      const body = bytes.toString();
      const { pathname, searchParams } = new URL(request.url ?? '', url);
      const isJson = request.headers['content-type'] === 'application/json';
      const form = isJson ? {} : Object.fromEntries(new URLSearchParams(body));
      if (request.method === 'POST') asked.push({ path: pathname, form });
      if (pathname.startsWith('/.well-known/')) return json(response, 200, metadata);
      if (pathname === '/register')
        return json(response, 201, { ...(JSON.parse(body) as object), client_id: randomUUID() });
      if (pathname === '/revoke') return json(response, 200, {});
      if (pathname === '/token') {
        const tokens = exchange(form);
        return json(response, tokens ? 200 : 400, tokens ?? { error: 'invalid_grant' });
      }
      const code = randomUUID();
      codes.set(code, searchParams.get('code_challenge') ?? '');
      const back = new URL(searchParams.get('redirect_uri') ?? '');
      const sent = { state: searchParams.get('state') ?? '', code, iss: names.iss ?? url };
      for (const [name, value] of Object.entries(sent)) back.searchParams.set(name, value);
      return response.writeHead(302, { location: back.href }).end();
    });
  });
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
  const metadata = {
    issuer: url,
    authorization_endpoint: `${url}/authorize`,
    token_endpoint: `${url}/token`,
    registration_endpoint: `${url}/register`,
    revocation_endpoint: `${url}/revoke`,
    response_types_supported: ['code'],
    code_challenge_methods_supported: ['S256'],
    authorization_response_iss_parameter_supported: true,
  };
  const takes = (authorization = '') => access.has(authorization.replace('Bearer ', ''));
  const server = await startMcpServer([{ name: 'work' }], {
    intercept(request, response) {
      const path = '/.well-known/oauth-protected-resource/mcp';
      if (request.url === path) {
        json(response, 200, { resource: server.url, authorization_servers: [internal ?? url] });
        return true;
      }
      if (takes(request.headers.authorization)) return false;
      const challenge = `Bearer resource_metadata="${new URL(path, server.url).href}"`;
      response.writeHead(401, { 'www-authenticate': challenge }).end();
      return true;
    },
  });
  return {
    url,
    server,
    asked,
    names,
    takes,
    expire: () => access.clear(),
    open: async (page) => new URL((await fetch(page, { redirect: 'manual' })).headers.get('location') ?? ''),
    close: async () => {
      http.close();
      http.closeAllConnections();
      await server.close();
    },
  };
}
