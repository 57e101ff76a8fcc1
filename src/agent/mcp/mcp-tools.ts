import type { PriorDiscovery } from '@modelcontextprotocol/client';
import { AgentError } from '../../core/errors.ts';
import { INPUT_LIMITS } from '../../core/limits.ts';
import type { EgressPolicy, Sockets } from '../../platform/net/egress.ts';
import { BoundedCache } from '../../platform/work/bounded-cache.ts';
import { CallerCounts } from '../../platform/work/fair-semaphore.ts';
import { SchemaSandbox } from '../arguments/schema-sandbox.ts';
import { type McpServer, toAddress } from '../definition/agent.ts';
import type { UserCredentials } from '../definition/credentials.ts';
import { type Tool, toParameters } from '../definition/tool.ts';
import type { McpConnection } from './mcp.ts';
import type { OperatorToken } from './mcp-oauth.ts';

/** Timeouts of MCP servers, in milliseconds. */
export interface McpTimeouts {
  /** [15,000] A server that is started on demand needs seconds. */
  connectMs: number;
  /** [15,000] For all pages of the list. */
  listMs: number;
  /** [60,000] */
  callMs: number;
}

/** Defaults if neither the settings nor the server set them. */
const DEFAULT_MCP_TIMEOUTS: McpTimeouts = { connectMs: 15_000, listMs: 15_000, callMs: 60_000 };

export interface McpSettings {
  egress: EgressPolicy;
  timeouts?: Partial<McpTimeouts>;
  /** What happens if a server is unreachable; overrides the server's own setting [that setting]. */
  onFailure?: McpServer['onFailure'];
  /** Counts open connections [not counted]. */
  connections?: McpConnections;
  /** Opens a user's stored grants [users cannot grant access]. */
  openCredentials?: ((userId: string) => UserCredentials | undefined) | undefined;
  /** Receives what is omitted, and why [dropped]. */
  warn?: ((text: string) => void) | undefined;
}

export interface McpTools {
  tools: Tool[];
  /** Ends all sessions and connections. Idempotent; never throws. */
  close: () => Promise<void>;
}

/**
 * Connects to all servers in parallel, with clients that belong to this invocation, so that its end cannot disturb
 * another. Tool names are made unique among the servers and against `taken`. Connections are counted for `userId`.
 * @throws {AgentError} of the first failed server, or for more than 256 tools; all connections are closed then
 */
export async function connectMcpServers(
  servers: McpServer[],
  settings: McpSettings,
  taken: Iterable<string>,
  signal: AbortSignal,
  userId = '',
): Promise<McpTools> {
  // The SDK is loaded with the first server.
  const [{ connectMcp }, { isUnreachable }] = await Promise.all([import('./mcp.ts'), import('./mcp-error.ts')]);
  const timeouts = { ...DEFAULT_MCP_TIMEOUTS, ...settings.timeouts };
  const schemas = new SchemaSandbox();
  const memory = settings.connections ?? new McpConnections(Infinity);
  const credentials = settings.openCredentials?.(userId);
  const warn = settings.warn ?? (() => undefined);
  const around = { policy: settings.egress, signal, schemas, memory, credentials, userId, warn };
  const connect = async (server: McpServer): Promise<McpConnection> => {
    const release = memory.take(userId, server);
    const { connectTimeoutMs = timeouts.connectMs, callTimeoutMs = timeouts.callMs } = server;
    const own = {
      connectMs: connectTimeoutMs,
      listMs: Math.max(timeouts.listMs, connectTimeoutMs),
      callMs: callTimeoutMs,
    };
    const connection = await connectMcp(server, { ...around, timeouts: own }).catch((error: unknown) => {
      release();
      throw error;
    });
    return { ...connection, close: () => connection.close().finally(release) };
  };
  const results = await Promise.allSettled(servers.map(connect));
  const connections = results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
  let closing: Promise<unknown> | undefined;
  const close = async () =>
    void (await (closing ??= Promise.allSettled(connections.map((connection) => connection.close()))));
  const { count } = INPUT_LIMITS.mcpToolList;
  const isSkipped = (server: McpServer | undefined, reason: unknown) => {
    const onFailure = settings.onFailure ?? server?.onFailure;
    return !signal.aborted && (onFailure === 'skip' || (onFailure === undefined && isUnreachable(reason)));
  };
  const failure = results.find(
    (result, place) => result.status === 'rejected' && !isSkipped(servers[place], result.reason),
  );
  try {
    if (failure?.status === 'rejected') throw failure.reason;
    if (connections.flatMap(({ tools }) => tools).length > count)
      throw new AgentError('mcp_failed', `The MCP servers of the agent have more than ${count} tools together.`);
  } catch (error) {
    await close();
    throw error;
  }
  const missing = results.flatMap((result, place) =>
    result.status === 'rejected' ? [toMissing(servers[place] as McpServer, result.reason, warn)] : [],
  );
  return { tools: withUniqueNames([...connections, ...missing], new Set(taken)), close };
}

/**
 * Returns a tool that tells the model that a server's tools are missing; otherwise the model would look for
 * workarounds.
 */
function toMissing(
  server: McpServer,
  reason: unknown,
  warn: (text: string) => void,
): Pick<McpConnection, 'server' | 'tools'> {
  const why = reason instanceof AgentError ? reason.message : `MCP server \`${server.name}\` could not be reached.`;
  warn(`${why} The invocation goes on without its tools.`);
  const tool: Tool = {
    name: `${server.name}_unavailable`,
    description: `The MCP server \`${server.name}\` cannot be reached now, so its tools are missing. Calling this changes nothing: if the task needs them, say that they are not available.`,
    parameters: toParameters({}),
    needsConfirmation: false,
    effect: 'none',
    calls: 'server',
    run: async () => ({ error: why }),
  };
  return { server, tools: [tool] };
}

function withUniqueNames(connections: Pick<McpConnection, 'server' | 'tools'>[], taken: Set<string>): Tool[] {
  return connections.flatMap(({ server, tools }) =>
    tools.map((tool) => {
      const name = pickName(tool.name, server.name, taken);
      taken.add(name);
      return { ...tool, name };
    }),
  );
}

/** A taken name gets the server's name as prefix. Providers accept at most 64 letters, digits, `_` and `-`. */
function pickName(tool: string, server: string, taken: Set<string>): string {
  const long = toName(`${server}_${tool}`);
  let name = toName(tool);
  for (let number = 1; taken.has(name); number += 1) name = number === 1 ? long : `${long.slice(0, 60)}_${number}`;
  return name;
}

/** Names of the runtime's own calls, which a server must not imitate. */
const RESERVED = /^(?:adk_request_.*|transfer_to_agent|)$/;

const toName = (name: string) => {
  const plain = name.replaceAll(/[^A-Za-z0-9_-]/g, '_');
  return (RESERVED.test(plain) ? `tool_${plain}` : plain).slice(0, 64);
};

/** Counts each user's open connections per MCP server in this process, and remembers each server's protocol. */
export class McpConnections {
  readonly #open: CallerCounts;
  /** Protocols of servers, by address or by principal, each with an expiry by `performance.now()`. */
  readonly eras = new BoundedCache<{ prior: PriorDiscovery; until: number }>();
  /** Pooled sockets to stateless servers, by principal. */
  readonly sockets = new BoundedCache<Sockets>();
  /** Tokens of the operator, by address and credentials. */
  readonly tokens = new BoundedCache<OperatorToken>();

  /** @param maximum connections of one user to one server */
  constructor(maximum: number) {
    this.#open = new CallerCounts(maximum);
  }

  /**
   * Reserves a connection. @returns a function that releases it; idempotent
   * @throws {AgentError} `mcp_failed` if the user has the maximum open at this server
   */
  take(userId: string, server: McpServer): () => void {
    const address = toAddress(server);
    const key = JSON.stringify([userId, server.command === undefined ? URL.parse(address)?.origin : address]);
    const give = this.#open.take(key);
    if (give) return give;
    const what = `has ${this.#open.maximum} connections of this user, the maximum`;
    throw new AgentError('mcp_failed', `MCP server \`${server.name}\` ${what}. Try again when others have ended.`);
  }
}
