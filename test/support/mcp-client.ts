import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const TASKS = 'io.modelcontextprotocol/tasks';
const REVISION = '2026-07-28';

/** The client of the official package, of either era; `capabilities` are what it says that it can. */
export async function connect(
  url: string,
  era: 'legacy' | 'modern',
  capabilities: object = {},
  requestInit: RequestInit = {},
): Promise<Client> {
  const versionNegotiation = { mode: era === 'modern' ? { pin: REVISION } : ('legacy' as const) };
  const client = new Client({ name: 'test', version: '1' }, { capabilities, versionNegotiation });
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
  return client;
}

/** What a request of the era of 2026 is answered. */
export interface RpcAnswer {
  status: number;
  headers: Headers;
  result?: Record<string, unknown>;
  error?: { code: number; message: string };
}

let count = 0;

/** Sends one request as a client of 2026 that can do tasks; the official package leaves those to others. */
export async function rpc(
  url: string,
  method: string,
  params: Record<string, unknown> = {},
  {
    capabilities = { extensions: { [TASKS]: {} }, elicitation: {} },
    headers = {},
    signal,
  }: {
    capabilities?: object;
    headers?: Record<string, string>;
    signal?: AbortSignal;
  } = {},
): Promise<RpcAnswer> {
  const meta = {
    'io.modelcontextprotocol/protocolVersion': REVISION,
    'io.modelcontextprotocol/clientCapabilities': capabilities,
    ...(params['_meta'] as object | undefined),
  };
  const name = (params['name'] ?? params['uri'] ?? params['taskId']) as string | undefined;
  const response = await fetch(url, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': REVISION,
      'mcp-method': method,
      ...(name === undefined ? {} : { 'mcp-name': name }),
      ...headers,
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: ++count, method, params: { ...params, _meta: meta } }),
    ...(signal ? { signal } : {}),
  });
  const text = await response.text();
  const isStream = response.headers.get('content-type')?.startsWith('text/event-stream');
  const last = isStream
    ? text
        .split('\n')
        .findLast((line) => line.startsWith('data:'))
        ?.slice('data:'.length)
    : text;
  const { result, error } = JSON.parse(last || '{}') as RpcAnswer;
  return {
    status: response.status,
    headers: response.headers,
    ...(result ? { result } : {}),
    ...(error ? { error } : {}),
  };
}
