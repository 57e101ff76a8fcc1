import {
  Client,
  ProtocolError,
  SdkHttpError,
  type SpecTypes,
  specTypeSchemas,
  SseError,
  StreamableHTTPClientTransport,
} from '@modelcontextprotocol/client';
import { z } from 'zod';
import { AgentError, causes, UnknownOutcomeError } from '../../core/errors.ts';
import { INPUT_LIMITS } from '../../core/limits.ts';
import type { JsonObject } from '../../core/content.ts';
import { abortError, orAborted } from '../../core/abort.ts';
import type { Egress } from '../../platform/net/egress.ts';
import type { SchemaSandbox } from '../arguments/schema-sandbox.ts';
import type { McpServer } from '../definition/agent.ts';
import type { Tool } from '../definition/tool.ts';
import type { McpTimeouts } from './mcp-tools.ts';
import { toToolResult } from './mcp-result.ts';
import { asTransport, type BoundedTransport, newTransport } from './mcp-transport.ts';

/** Maximum number of pages of a tool list: a server whose cursor never ends must not keep us. */
const MAX_PAGES = 100;
const { mcpTool, mcpToolList, mcpToolResult } = INPUT_LIMITS;
/** Codes of connections that were not made. */
const UNSENT = /^(?:ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH)$/;
/** Time for which a server that does not know the newer protocol is not asked for it again. */
const LEGACY_MS = 300_000;
const LEGACY = { prior: { kind: 'legacy' } } as const;
/** Maximum wait for the DELETE that ends a session. */
const TERMINATE_MS = 2_000;

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
 * @param legacyUntil - when servers are asked again for the newer protocol, by address, as `performance.now()`
 * @throws {AgentError} `mcp_failed` with the server's name; nothing stays open then.
 */
export async function connectMcp(
  server: McpServer,
  egress: Egress,
  timeouts: McpTimeouts,
  signal: AbortSignal,
  schemas: SchemaSandbox,
  legacyUntil: Map<string, number>,
): Promise<McpConnection> {
  if (!URL.canParse(server.url))
    throw new AgentError('mcp_failed', `MCP server \`${server.name}\` has no valid address.`);
  const connection = await connect(server, egress, timeouts.connectMs, signal, legacyUntil);
  const { client, bounded } = connection;
  const close = () => closeSession(connection);
  try {
    const declared = await within(timeouts.listMs, signal, (limit) => listTools(client, limit));
    return { server, close, tools: declared.map((tool) => toTool(server, connection, tool, timeouts.callMs, schemas)) };
  } catch (error) {
    await close();
    throw toMcpError(server, 'did not list its tools', bounded.failure ?? error, signal);
  }
}

/** A client that is connected, and its transport. */
interface Connected {
  client: Client;
  bounded: BoundedTransport;
}

async function connect(
  server: McpServer,
  egress: Egress,
  timeoutMs: number,
  signal: AbortSignal,
  legacyUntil: Map<string, number>,
): Promise<Connected> {
  const { url } = server;
  const isLegacy = (legacyUntil.get(url) ?? 0) > performance.now();
  const kinds: ('streamable-http' | 'sse')[] = server.transport ? [server.transport] : ['streamable-http', 'sse'];
  for (const [index, kind] of kinds.entries()) {
    const client = new Client({ name: 'agent-runtime', version: '1' }, { versionNegotiation: { mode: 'auto' } });
    const bounded = newTransport(server, egress, kind);
    const transport = asTransport(bounded.transport);
    try {
      await within(timeoutMs, signal, (limit) =>
        orAborted(client.connect(transport, { signal: limit, ...(isLegacy && LEGACY) }), limit),
      );
      // The one stream that brings every answer broke: what is open will never be answered, though the SDK waits and
      // reconnects.
      // oxlint-disable-next-line unicorn/prefer-add-event-listener -- the SDK's client is no EventTarget
      client.onerror = (error) => void (error instanceof SseError && client.close());
      if (!isLegacy && client.getProtocolEra() === 'legacy') legacyUntil.set(url, performance.now() + LEGACY_MS);
      return { client, bounded };
    } catch (error) {
      // Both: a client whose transport never started does not close it.
      await Promise.allSettled([client.close(), transport.close()]);
      // It may have been replaced since.
      if (legacyUntil.delete(url) && isLegacy) return connect(server, egress, timeoutMs, signal, legacyUntil);
      // A server that speaks only the older transport answers the POST so (MCP 2025-06-18, backwards compatibility).
      const mayBeOlder = index < kinds.length - 1 && [400, 404, 405].includes(getStatus(error) ?? 0);
      if (!mayBeOlder) throw toMcpError(server, 'could not be reached', bounded.failure ?? error, signal);
    }
  }
  throw new AgentError('mcp_failed', `MCP server \`${server.name}\` could not be reached.`);
}

/** Runs work under a time limit of its own; the limit's signal is aborted by the invocation's signal too. */
async function within<Result>(timeoutMs: number, signal: AbortSignal, work: (limit: AbortSignal) => Promise<Result>) {
  const timer = new AbortController();
  const handle = setTimeout(() => timer.abort(new TimedOut()), timeoutMs);
  const limit = AbortSignal.any([signal, timer.signal]);
  try {
    limit.throwIfAborted();
    return await work(limit);
  } catch (error) {
    if (timer.signal.aborted && !signal.aborted) throw timer.signal.reason;
    throw error;
  } finally {
    clearTimeout(handle);
  }
}

class TimedOut extends Error {}

interface DeclaredTool {
  name: string;
  description?: string | undefined;
  inputSchema: JsonObject;
  annotations?: { readOnlyHint?: boolean | undefined; idempotentHint?: boolean | undefined } | undefined;
}

/** Loose schemas that count an answer's elements before the SDK's schemas spend time on each of them. */
const listed = z.looseObject({ tools: z.array(z.unknown()), nextCursor: z.string().optional() });
const answered = z.looseObject({ content: z.array(z.unknown()).optional() });

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

const tooMuch = (what: string) => new AgentError('mcp_failed', `It has ${what}.`);

/** In characters of JSON; infinite where it is nested so deeply that it cannot be written. */
function getLength(value: unknown): number {
  try {
    return getText(value).length;
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}

const getText = (value: unknown) => JSON.stringify(value) ?? '';

function toTool(
  server: McpServer,
  { client, bounded }: Connected,
  tool: DeclaredTool,
  callMs: number,
  schemas: SchemaSandbox,
): Tool {
  // Arguments that the server wants in headers too.
  const needsHeaders = client.getProtocolEra() === 'modern' && getText(tool.inputSchema).includes('"x-mcp-header":');
  return {
    name: tool.name,
    description: tool.description ?? '',
    parameters: tool.inputSchema,
    needsConfirmation: false,
    effect: tool.annotations?.readOnlyHint ? 'none' : tool.annotations?.idempotentHint ? 'idempotent' : 'once',
    calls: 'server',
    checkArguments: (args, signal) => schemas.check(tool.inputSchema, args, signal),
    async run(args, { signal, attachments, operationId }) {
      const _meta = { 'agent-runtime/operationId': operationId };
      const params = { name: tool.name, arguments: args, _meta };
      const send = (limit: AbortSignal) => {
        const options = { signal: limit, timeout: callMs + 1_000 };
        // Without the schema of the answers, which the client would compile.
        const toolDefinition = { name: tool.name, inputSchema: tool.inputSchema as SpecTypes['Tool']['inputSchema'] };
        return needsHeaders
          ? client.callTool(params, { ...options, toolDefinition })
          : client.request({ method: 'tools/call', params }, answered, options);
      };
      try {
        const result = await within(callMs, signal, (limit) => orAborted(send(limit), limit));
        if ((result.content?.length ?? 0) > mcpToolResult.count)
          throw tooMuch(`more than ${mcpToolResult.count} blocks in its answer`);
        return toToolResult(parseAs('CallToolResult', result), attachments);
      } catch (error) {
        throw toMcpError(server, `failed in \`${tool.name}\``, bounded.failure ?? error, signal, UnknownOutcomeError);
      }
    },
  };
}

async function closeSession({ client, bounded: { transport } }: Connected): Promise<void> {
  const terminate =
    transport instanceof StreamableHTTPClientTransport ? transport.terminateSession() : Promise.resolve();
  await orAborted(terminate, AbortSignal.timeout(TERMINATE_MS)).catch(() => {});
  await client.close().catch(() => {});
}

/** Reads a value as the protocol has it. @throws {Error} where it is something else */
function parseAs<Name extends 'Tool' | 'CallToolResult'>(name: Name, value: unknown): SpecTypes[Name] {
  const parsed = specTypeSchemas[name]['~standard'].validate(value);
  if (parsed.issues) throw new Error(`It is no ${name}.`);
  return parsed.value;
}

/** HTTP status in an error of the SDK's transports. */
function getStatus(error: unknown): number | undefined {
  for (let each = error; each instanceof Error; each = each.cause) {
    if (each instanceof SdkHttpError) return each.status;
    if (each instanceof SseError) return each.code;
  }
  return undefined;
}

/**
 * Says which server and why, without what the server wrote: that may be anything. `Unsure` is the error where no answer
 * came to what may have been sent.
 */
function toMcpError(
  server: McpServer,
  what: string,
  error: unknown,
  signal: AbortSignal,
  Unsure = AgentError,
): AgentError {
  if (signal.aborted) return abortError(signal);
  const denial = findDenial(error);
  const status = getStatus(error);
  const protocolCode = error instanceof ProtocolError ? error.code : undefined;
  const reason = denial
    ? denial.message
    : error instanceof TimedOut
      ? 'It took too long.'
      : status !== undefined
        ? `It answered HTTP ${status}.`
        : protocolCode !== undefined && protocolCode < -1
          ? `It answered with error ${protocolCode}.`
          : 'The connection failed.';
  const isAnswered = denial || (status !== undefined ? status < 500 : protocolCode !== undefined && protocolCode < -1);
  const isUnsent = [...causes(error)].some(({ code: name }) => UNSENT.test(String(name)));
  const Failure = isAnswered || isUnsent ? AgentError : Unsure;
  return new Failure('mcp_failed', `MCP server \`${server.name}\` ${what}. ${reason}`, { cause: error });
}

/** The egress policy's refusal, where there is one among the causes. */
function findDenial(error: unknown): AgentError | undefined {
  for (let each = error; each instanceof Error; each = each.cause) if (each instanceof AgentError) return each;
  return undefined;
}
