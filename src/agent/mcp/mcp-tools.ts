import { AgentError } from '../../core/errors.ts';
import { INPUT_LIMITS } from '../../core/limits.ts';
import type { EgressPolicy } from '../../platform/net/egress.ts';
import { SchemaSandbox } from '../arguments/schema-sandbox.ts';
import type { McpServer } from '../definition/agent.ts';
import type { UserCredentials } from '../definition/services.ts';
import { type Tool, toParameters } from '../definition/tool.ts';
import type { McpConnection } from './mcp.ts';
import { McpConnections, type McpTimeouts } from './mcp-connections.ts';

/** Time limits that apply unless the settings or the server's configuration say otherwise. */
const DEFAULT_MCP_TIMEOUTS: McpTimeouts = { connectMs: 15_000, listMs: 15_000, callMs: 60_000 };

export interface McpSettings {
  egress: EgressPolicy;
  timeouts?: Partial<McpTimeouts>;
  /** Overrides `onFailure` of each server. */
  onFailure?: McpServer['onFailure'];
  /** Limits the open connections per user and server. Default: no limit. */
  connections?: McpConnections;
  /** Returns the store of a user's OAuth grants. Default: users cannot grant access. */
  openCredentials?: ((userId: string) => UserCredentials | undefined) | undefined;
  /** Receives the reason for each server's tool that cannot be used. Default: messages are dropped. */
  warn?: ((text: string) => void) | undefined;
}

export interface McpTools {
  tools: Tool[];
  /** Ends all MCP sessions and connections. Idempotent; never throws. */
  close: () => Promise<void>;
}

/**
 * Connects in parallel. The connections belong to this invocation alone, so that its end cannot disturb another, and
 * count towards the limit of `userId`. Tools get names that no other server's tool has and that are not in `taken`.
 * @throws {AgentError} of the first server that fails, or for more than 256 tools; all connections are closed then
 */
export async function connectMcpServers(
  servers: McpServer[],
  settings: McpSettings,
  taken: Iterable<string>,
  signal: AbortSignal,
  userId = '',
): Promise<McpTools> {
  // The MCP SDK is loaded with the first connection.
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

/** Tells the model that a server's tools are missing; otherwise it would try to get the result in other ways. */
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

/** Prefixes the server's name if the tool's name is taken. Providers accept at most 64 letters, digits, `_` and `-`. */
function pickName(tool: string, server: string, taken: Set<string>): string {
  const long = toName(`${server}_${tool}`);
  let name = toName(tool);
  for (let number = 1; taken.has(name); number += 1) name = number === 1 ? long : `${long.slice(0, 60)}_${number}`;
  return name;
}

/** Names of function calls that the runtime itself makes, and that no server may use for its tools. */
const RESERVED = /^(?:adk_request_.*|transfer_to_agent|read_result|)$/;

const toName = (name: string) => {
  const plain = name.replaceAll(/[^A-Za-z0-9_-]/g, '_');
  return (RESERVED.test(plain) ? `tool_${plain}` : plain).slice(0, 64);
};
