import {
  Client,
  type ClientOptions,
  type PriorDiscovery,
  SseError,
  StreamableHTTPClientTransport,
} from '@modelcontextprotocol/client';
import { z } from 'zod';
import { AgentError } from '../../core/errors.ts';
import { INPUT_LIMITS } from '../../core/limits.ts';
import { orAborted } from '../../core/abort.ts';
import { createEgress, createSockets, type Egress, type EgressPolicy } from '../../platform/net/egress.ts';
import type { SchemaSandbox } from '../arguments/schema-sandbox.ts';
import { type McpServer, toAddress } from '../definition/agent.ts';
import type { UserCredentials } from '../definition/services.ts';
import type { Tool } from '../definition/tool.ts';
import { type Connected, getText, isMembers } from './mcp-request.ts';
import { declaredTool, listenTo, toTools, TASKS } from './mcp-call.ts';
import type { McpConnections, McpTimeouts } from './mcp-connections.ts';
import { OperatorToken } from './mcp-oauth.ts';
import { UserToken } from './mcp-consent.ts';
import { getStatus, toMcpError, tooMuch, within } from './mcp-error.ts';
import { readingTools } from './mcp-resources.ts';
import { newTransport, type TransportKind, received } from './mcp-transport.ts';

/** Maximum number of pages of a tool list that are read, in case a server's cursor never ends. */
const MAX_PAGES = 100;
const { mcpTool, mcpToolList } = INPUT_LIMITS;
/** How long a server's protocol version and, in the newer protocol, its capabilities are cached, in milliseconds. */
const ERA_MS = 300_000;
/** Maximum size of a server's capabilities in the cache, in characters of JSON. */
const MAX_ERA = 4_096;
const OPTIONS: ClientOptions = {
  versionNegotiation: { mode: 'auto' },
  capabilities: { elicitation: { form: {}, url: {} }, extensions: { [TASKS]: {} } },
};
const NO_GRANTS =
  'asks each user for access, which needs RUNTIME_SECRET_KEY, and OAUTH_REDIRECT_URL but in mode local.';
/** Maximum time to wait for the response to the DELETE that ends a session, in milliseconds. */
const TERMINATE_MS = 2_000;
/** Maximum number of sockets to a server without MCP sessions, for one principal (user, server, credentials). */
const MAX_SOCKETS = 128;

/** Settings that an invocation's connections share, and cached facts about their servers from earlier connections. */
interface Surroundings {
  policy: EgressPolicy;
  timeouts: McpTimeouts;
  signal: AbortSignal;
  schemas: SchemaSandbox;
  memory: McpConnections;
  credentials: UserCredentials | undefined;
  userId: string;
  /** Receives the reason for each tool of the server that cannot be used. */
  warn: (text: string) => void;
}

/** A connected server and its tools. The tools have the names that the server gave them. */
export interface McpConnection {
  server: McpServer;
  tools: Tool[];
  /** Ends the session at the server and closes the connections. Never throws. */
  close: () => Promise<void>;
}

/**
 * Uses the MCP protocol of 2026-07-28 if the server supports it, else the protocol of 2025-11-25 or an earlier version.
 * @throws {AgentError} `mcp_failed` with the server's name; all connections are closed then
 */
export async function connectMcp(server: McpServer, around: Surroundings): Promise<McpConnection> {
  const { policy, timeouts, signal, schemas, memory, credentials, userId } = around;
  const warn = (what: string) => around.warn(`MCP server \`${server.name}\`: ${what}.`);
  const fail = (what: string) => new AgentError('mcp_failed', `MCP server \`${server.name}\` ${what}`);
  if (server.command === undefined && !URL.canParse(server.url ?? '')) throw fail('has no valid address.');
  if (server.userOauth && !credentials) throw fail(NO_GRANTS);
  const user = server.userOauth && credentials && new UserToken(server, credentials);
  const address = toAddress(server);
  const principal = JSON.stringify([userId, address, server.headers, server.oauth, server.userOauth]);
  const cachedKey = [principal, address].find((key) => (memory.eras.get(key)?.until ?? 0) > performance.now());
  const egress = createEgress(policy, userId, memory.sockets.get(principal));
  let { close } = egress;
  try {
    const connection = await connect(server, around, egress, user, memory.eras.get(cachedKey ?? '')?.prior);
    const discover = connection.client.getDiscoverResult();
    const prior = discover ? { kind: 'modern' as const, discover } : { kind: 'legacy' as const };
    // Nothing is cached for access with a user's OAuth grant, because the cache key does not contain the grant, and
    // grants differ between applications and over time.
    if (!cachedKey && !(user && discover) && getText(prior).length <= MAX_ERA)
      memory.eras.set(discover ? principal : address, { prior, until: performance.now() + ERA_MS });
    const { transport } = connection.bounded;
    const isStateless = transport instanceof StreamableHTTPClientTransport && transport.sessionId === undefined;
    if (isStateless && !user && !memory.sockets.has(principal))
      memory.sockets.set(principal, createSockets(policy, MAX_SOCKETS));
    const { callMs, listMs } = timeouts;
    let renewing: Promise<void> | undefined;
    const connected: Connected = {
      ...connection,
      server,
      schemas,
      callMs,
      running: new Set(),
      ending: [],
      async renew(lost) {
        if (lost === connected.client)
          renewing ??= connect(server, around, egress, user, undefined)
            .then((fresh) => {
              Object.assign(connected, fresh);
              listenTo(connected);
              return lost.close();
            })
            .finally(() => (renewing = undefined));
        await renewing;
      },
    };
    listenTo(connected);
    close = () => closeConnection(connected).then(egress.close);
    const declared = await within(listMs, signal, (limit) =>
      listTools(connected.client, limit, (what, why) => warn(`tool \`${what}\` is left out: ${why}`)),
    ).catch((error) => {
      throw toMcpError(server, 'did not list its tools', connected.bounded.failure ?? error, signal);
    });
    const tools = [...toTools(connected, declared), ...readingTools(connected)];
    return { server, close, tools: user ? [...tools.map((tool) => user.guard(tool)), user.toTool(true)] : tools };
  } catch (error) {
    if (user?.isMissing(error)) return { server, close, tools: [user.toTool(false)] };
    await close();
    if (!cachedKey) throw error;
    // The server may have been replaced since its protocol was cached, so another attempt is made without the cache.
    memory.eras.delete(cachedKey);
    return connectMcp(server, around);
  }
}

async function connect(
  server: McpServer,
  { timeouts, signal, memory }: Surroundings,
  egress: Egress,
  user: UserToken | undefined,
  prior: PriorDiscovery | undefined,
): Promise<Pick<Connected, 'client' | 'bounded'>> {
  const { oauth, transport: configured, command } = server;
  const key = JSON.stringify([toAddress(server), oauth]);
  const operator = oauth && (memory.tokens.get(key) ?? new OperatorToken(oauth));
  if (operator) memory.tokens.set(key, operator);
  const remote: TransportKind[] = configured ? [configured] : ['streamable-http', 'sse'];
  const kinds = command === undefined ? remote : (['stdio'] as const);
  // A program gets the longer time limit of a tool call to connect, because it may have to be installed first (`npx`).
  const timeoutMs = command === undefined ? timeouts.connectMs : timeouts.callMs;
  for (const [index, kind] of kinds.entries()) {
    const client = new Client({ name: 'agent-runtime', version: '1' }, OPTIONS);
    const bounded = newTransport(server, egress, kind, user ?? operator);
    const { transport } = bounded;
    try {
      await within(timeoutMs, signal, (limit) =>
        orAborted(client.connect(transport, { signal: limit, ...(prior && { prior }) }), limit),
      );
      // The one stream that carries every answer broke: open requests will never be answered, although the SDK waits
      // and reconnects.
      // oxlint-disable-next-line unicorn/prefer-add-event-listener -- the SDK's client is no EventTarget
      client.onerror = (error) => void (error instanceof SseError && client.close());
      return { client, bounded };
    } catch (error) {
      // Both are closed, because the SDK's client does not close a transport that never started.
      await Promise.allSettled([client.close(), transport.close()]);
      // A server that knows only the older transport (HTTP with SSE) responds to a POST with one of these statuses (MCP
      // 2025-06-18, backwards compatibility).
      const mayBeOlder = index < kinds.length - 1 && [400, 404, 405].includes(getStatus(error) ?? 0);
      if (!mayBeOlder) throw toMcpError(server, 'could not be reached', bounded.failure ?? error, signal);
    }
  }
  throw new AgentError('mcp_failed', `MCP server \`${server.name}\` could not be reached.`);
}

/** The tools of a page are parsed one by one later, so that one invalid tool does not fail the page. */
const toolPage = received(
  z.looseObject({ tools: z.array(z.unknown()).catch([]), nextCursor: z.string().optional().catch(undefined) }),
);

/**
 * Lists a server's tools, without `listTools` of the MCP SDK, which compiles every output schema. A tool that is
 * invalid or too large is not used.
 */
async function listTools(
  client: Client,
  signal: AbortSignal,
  leaveOut: (what: string, why: string) => void,
): Promise<z.output<typeof declaredTool>[]> {
  // Of two tools with the same name only the first is used, because a call identifies its tool by name.
  const tools = new Map<string, z.output<typeof declaredTool>>();
  const cursors = new Set<string>();
  let cursor: string | undefined;
  let length = 0;
  for (let page = 0; page < MAX_PAGES; page += 1) {
    const params = cursor === undefined ? {} : { cursor };
    const result = await client.request({ method: 'tools/list', params }, toolPage, { signal });
    if (tools.size + result.tools.length > mcpToolList.count) throw tooMuch(`more than ${mcpToolList.count} tools`);
    for (const entry of result.tools) {
      const own = getText(entry).length;
      length += own;
      if (length > mcpToolList.bytes) throw tooMuch(`a list of more than ${mcpToolList.bytes} characters`);
      const { data: tool, error } = declaredTool.safeParse(entry);
      if (own > mcpTool.bytes) leaveOut(nameOf(entry), `it has more than ${mcpTool.bytes} characters`);
      else if (tool) tools.set(tool.name, tools.get(tool.name) ?? tool);
      else leaveOut(nameOf(entry), `its \`${error.issues[0]?.path.join('.') ?? ''}\` cannot be read`);
    }
    cursor = result.nextCursor;
    // A cursor that the server sends again means that its list has no further page.
    // Sorted, because servers list in any order, and another one would break the provider's prompt cache.
    if (!cursor || cursors.has(cursor))
      return [...tools.values()].sort((one, other) => (one.name < other.name ? -1 : 1));
    cursors.add(cursor);
  }
  throw new Error('too many pages');
}

const nameOf = (tool: unknown): string => {
  const name = isMembers(tool) ? tool['name'] : undefined;
  return typeof name === 'string' ? name.slice(0, 64) : 'without a name';
};

async function closeConnection({ client, bounded: { transport }, ending }: Connected): Promise<void> {
  const inTime = (work: Promise<unknown>) => orAborted(work, AbortSignal.timeout(TERMINATE_MS)).catch(() => {});
  await inTime(Promise.all(ending));
  if (transport instanceof StreamableHTTPClientTransport) await inTime(transport.terminateSession());
  await client.close().catch(() => {});
}
