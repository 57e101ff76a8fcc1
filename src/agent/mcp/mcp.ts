import { Client, type ClientOptions, SseError, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { z } from 'zod';
import { AgentError } from '../../core/errors.ts';
import { INPUT_LIMITS } from '../../core/limits.ts';
import { orAborted } from '../../core/abort.ts';
import type { Egress } from '../../platform/net/egress.ts';
import type { SchemaSandbox } from '../arguments/schema-sandbox.ts';
import { type McpServer, toAddress } from '../definition/agent.ts';
import type { UserCredentials } from '../definition/credentials.ts';
import type { Tool } from '../definition/tool.ts';
import { type Connected, getText, parseAs } from './mcp-ask.ts';
import { type DeclaredTool, listenTo, toTool } from './mcp-call.ts';
import { hasFineHeaders } from './mcp-headers.ts';
import { UserToken } from './mcp-consent.ts';
import { getStatus, toMcpError, tooMuch, within } from './mcp-error.ts';
import { OperatorToken } from './mcp-oauth.ts';
import { promptTools, resourceTools } from './mcp-resources.ts';
import { TASKS } from './mcp-task.ts';
import type { McpTimeouts } from './mcp-tools.ts';
import { asTransport, newTransport, type TransportKind } from './mcp-transport.ts';

/** Maximum number of pages of a tool list: a server whose cursor never ends must not keep us. */
const MAX_PAGES = 100;
const { mcpTool, mcpToolList } = INPUT_LIMITS;
/** Time for which a server that does not know the newer protocol is not asked for it again. */
const LEGACY_MS = 300_000;
const OPTIONS: ClientOptions = {
  versionNegotiation: { mode: 'auto' },
  capabilities: { elicitation: { form: {}, url: {} }, extensions: { [TASKS]: {} } },
};
const LEGACY = { prior: { kind: 'legacy' } } as const;
const NO_GRANTS =
  'asks each user for access, which needs RUNTIME_SECRET_KEY, and OAUTH_REDIRECT_URL but in mode local.';
/** Maximum wait for the DELETE that ends a session. */
const TERMINATE_MS = 2_000;

/** Known of servers from earlier connections. */
interface ServerMemory {
  /** When servers are asked again for the newer protocol, by address, as `performance.now()`. */
  legacyUntil: Map<string, number>;
  /** Tokens of the operator, by address and credentials. */
  tokens: Map<string, OperatorToken>;
}

/** A connected server and its tools, under the names that the server gave. */
export interface McpConnection {
  server: McpServer;
  tools: Tool[];
  /** Ends the session at the server and drops the connections; never throws. */
  close: () => Promise<void>;
}

/**
 * Connects to one server and lists its tools: one client, one connect, one paginated list. It speaks the protocol of
 * 2026-07-28 where the server does, else that of 2025-11-25 and before.
 * @throws {AgentError} `mcp_failed` with the server's name; nothing stays open then.
 */
export async function connectMcp(
  server: McpServer,
  egress: Egress,
  timeouts: McpTimeouts,
  signal: AbortSignal,
  {
    schemas,
    memory,
    credentials,
  }: { schemas: SchemaSandbox; memory: ServerMemory; credentials?: UserCredentials | undefined },
): Promise<McpConnection> {
  if (server.command === undefined && !URL.canParse(server.url ?? ''))
    throw new AgentError('mcp_failed', `MCP server \`${server.name}\` has no valid address.`);
  if (server.userOauth && !credentials)
    throw new AgentError('mcp_failed', `MCP server \`${server.name}\` ${NO_GRANTS}`);
  const user = server.userOauth && credentials ? new UserToken(server, credentials) : undefined;
  // A program may have to be installed first (`npx`).
  const connectMs = server.command === undefined ? timeouts.connectMs : timeouts.callMs;
  const connection = await connect(server, egress, connectMs, signal, memory, user).catch((error: unknown) => {
    if (user?.isMissing(error)) return undefined;
    throw error;
  });
  const closed = { server, close: async () => {}, tools: user ? [user.toTool(false)] : [] };
  if (!connection) return closed;
  const { client, bounded } = connection;
  const connected: Connected = {
    ...connection,
    server,
    schemas,
    callMs: timeouts.callMs,
    running: new Set(),
    ending: [],
  };
  listenTo(connected);
  const close = async () => {
    await orAborted(Promise.all(connected.ending), AbortSignal.timeout(TERMINATE_MS)).catch(() => {});
    await closeSession(connection);
  };
  try {
    const declared = await within(timeouts.listMs, signal, (limit) => listTools(client, limit));
    const isModern = client.getProtocolEra() === 'modern';
    const usable = isModern ? declared.filter(({ inputSchema }) => hasFineHeaders(inputSchema)) : declared;
    const tools = usable.map((tool) => toTool(connected, tool));
    if (server.resources) tools.push(...resourceTools(connected));
    if (server.prompts) tools.push(...promptTools(connected));
    return { server, close, tools: user ? [...tools.map((tool) => user.guard(tool)), user.toTool(true)] : tools };
  } catch (error) {
    await close();
    if (user?.isMissing(error)) return closed;
    throw toMcpError(server, 'did not list its tools', bounded.failure ?? error, signal);
  }
}

type Connection = Pick<Connected, 'client' | 'bounded'>;

async function connect(
  server: McpServer,
  egress: Egress,
  timeoutMs: number,
  signal: AbortSignal,
  memory: ServerMemory,
  user: UserToken | undefined,
): Promise<Connection> {
  const { oauth, transport: given } = server;
  const { legacyUntil, tokens } = memory;
  const address = toAddress(server);
  const key = JSON.stringify([address, oauth]);
  const operator = oauth && (tokens.get(key) ?? new OperatorToken(oauth));
  if (operator) tokens.set(key, operator);
  const token = user ?? operator;
  const isLegacy = (legacyUntil.get(address) ?? 0) > performance.now();
  const remote: TransportKind[] = given ? [given] : ['streamable-http', 'sse'];
  const kinds = server.command === undefined ? remote : (['stdio'] as const);
  for (const [index, kind] of kinds.entries()) {
    const client = new Client({ name: 'agent-runtime', version: '1' }, OPTIONS);
    const bounded = newTransport(server, egress, kind, token);
    const transport = asTransport(bounded.transport);
    try {
      await within(timeoutMs, signal, (limit) =>
        orAborted(client.connect(transport, { signal: limit, ...(isLegacy && LEGACY) }), limit),
      );
      // The one stream that brings every answer broke: what is open will never be answered, though the SDK waits and
      // reconnects.
      // oxlint-disable-next-line unicorn/prefer-add-event-listener -- the SDK's client is no EventTarget
      client.onerror = (error) => void (error instanceof SseError && client.close());
      if (!isLegacy && client.getProtocolEra() === 'legacy') legacyUntil.set(address, performance.now() + LEGACY_MS);
      return { client, bounded };
    } catch (error) {
      // Both: a client whose transport never started does not close it.
      await Promise.allSettled([client.close(), transport.close()]);
      // It may have been replaced since.
      if (legacyUntil.delete(address) && isLegacy) return connect(server, egress, timeoutMs, signal, memory, user);
      // A server that speaks only the older transport answers the POST so (MCP 2025-06-18, backwards compatibility).
      const mayBeOlder = index < kinds.length - 1 && [400, 404, 405].includes(getStatus(error) ?? 0);
      if (!mayBeOlder) throw toMcpError(server, 'could not be reached', bounded.failure ?? error, signal);
    }
  }
  throw new AgentError('mcp_failed', `MCP server \`${server.name}\` could not be reached.`);
}

/** Loose schema that counts a list's elements before the SDK's schemas spend time on each of them. */
const listed = z.looseObject({ tools: z.array(z.unknown()), nextCursor: z.string().optional() });

/** Lists all pages by plain requests, as the client's `listTools` compiles every output schema; counts their size. */
async function listTools(client: Client, signal: AbortSignal): Promise<DeclaredTool[]> {
  const tools: DeclaredTool[] = [];
  let cursor: string | undefined;
  let length = 0;
  for (let page = 0; page < MAX_PAGES; page += 1) {
    const params = cursor === undefined ? {} : { cursor };
    const request = client.request({ method: 'tools/list', params }, listed, { signal });
    const result = await orAborted(request, signal);
    if (tools.length + result.tools.length > mcpToolList.count) throw tooMuch(`more than ${mcpToolList.count} tools`);
    for (const tool of result.tools) {
      const own = getLength(tool);
      if (own > mcpTool.bytes) throw tooMuch(`a tool of more than ${mcpTool.bytes} characters`);
      length += own;
      tools.push(parseAs('Tool', tool));
    }
    if (length > mcpToolList.bytes) throw tooMuch(`a list of more than ${mcpToolList.bytes} characters`);
    cursor = result.nextCursor;
    if (!cursor) return tools;
  }
  throw new Error('too many pages');
}

/** In characters of JSON; infinite where it is nested so deeply that it cannot be written. */
function getLength(value: unknown): number {
  try {
    return getText(value).length;
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}

async function closeSession({ client, bounded: { transport } }: Connection): Promise<void> {
  const terminate =
    transport instanceof StreamableHTTPClientTransport ? transport.terminateSession() : Promise.resolve();
  await orAborted(terminate, AbortSignal.timeout(TERMINATE_MS)).catch(() => {});
  await client.close().catch(() => {});
}
