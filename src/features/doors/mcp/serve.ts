import { once } from 'node:events';
import { createMcpHandler, ProtocolError, ProtocolErrorCode, Server } from '@modelcontextprotocol/server';
import type { Request, Response } from 'express';
import { z } from 'zod';
import { INPUT_LIMITS } from '../../../core/limits.ts';
import { JsonRefusedError, parseJson } from '../../../core/parse-json.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { currentContext } from '../../../platform/context.ts';
import type { Answer, Call } from '../../../platform/http/operation/operation.ts';
import { NOT_VALID_ANY_MORE } from '../../../platform/http/operation/principal.ts';
import { admitAction, MCP_ACTIONS } from '../actions.ts';
import { callTool, listTools } from './call-tool.ts';
import { type McpCall, toSentence } from './mcp-call.ts';
import { getPrompt, listPrompts, listResources, listTemplates, readResource } from './resources.ts';
import { cancelTask, getTask, requireTasks, TASKS, updateTask } from './tasks.ts';

const PARSE_ERROR = -32_700;
const INVALID_REQUEST = -32_600;
/** This service's JSON-RPC code for an invalid credential; codes of the protocol are below -32,000. */
const UNAUTHENTICATED = 401;

interface McpRequest
  extends Pick<McpCall, 'appNames' | 'userId' | 'headers' | 'request' | 'response'>,
    Pick<Call<never, never, never, string>, 'body' | 'principal' | 'countAgain'> {}

/**
 * Serves one message of an MCP client of any supported protocol version. No state is kept in memory between messages,
 * because another replica may serve the next message.
 * @throws {ForbiddenError} if the caller lacks the scope of the message's method. @throws {LimitError}
 */
export async function serveMessage(
  context: InvocationContext & { version: string },
  { body, principal, countAgain, ...incoming }: McpRequest,
): Promise<Answer> {
  let message: unknown;
  try {
    message = parseJson(Buffer.from(body), INPUT_LIMITS.requestBody, { exact: true });
  } catch (error) {
    if (error instanceof JsonRefusedError) return refuse(PARSE_ERROR, `The body ${error.message}.`);
    throw error;
  }
  if (Array.isArray(message)) return refuse(INVALID_REQUEST, 'Batches are gone from the protocol: send one message.');
  const { id, method } = Object(message) as Record<string, unknown>;
  await admitAction(toAction(method), { principal, countAgain });
  const { response } = incoming;
  const closed = new AbortController();
  currentContext().ended?.addEventListener('abort', () => {
    closed.abort();
    if (!response.headersSent) response.writeHead(200, { 'content-type': 'text/event-stream' });
    const error = { code: UNAUTHENTICATED, message: NOT_VALID_ANY_MORE };
    response.end(`event: message\ndata: ${JSON.stringify({ jsonrpc: '2.0', id: id ?? null, error })}\n\n`);
  });
  response.once('close', () => closed.abort());
  const call = { context, version: context.version, ...incoming };
  const onerror = (err: Error) => context.log.debug({ err }, 'a message of an MCP client');
  const handler = createMcpHandler(({ era }) => createServer({ ...call, isModern: era === 'modern' }), { onerror });
  const answer = await handler.fetch(toRequest(incoming.request, closed.signal), { parsedBody: message });
  await sendAnswer(answer, response, closed.signal);
  await handler.close();
  return { kind: 'sent' };
}

const toAction = (method: unknown) =>
  typeof method === 'string' && Object.hasOwn(MCP_ACTIONS, method)
    ? MCP_ACTIONS[method as keyof typeof MCP_ACTIONS]
    : 'offer';

const refuse = (code: number, message: string): Answer => ({
  kind: 'value',
  status: 400,
  value: { jsonrpc: '2.0', id: null, error: { code, message } },
});

/** The request that the MCP SDK takes. The body is passed separately, because it has already been read. */
function toRequest({ headers: incomingHeaders, originalUrl }: Request, signal: AbortSignal): globalThis.Request {
  const headers = new Headers();
  for (const [name, value] of Object.entries(incomingHeaders)) if (typeof value === 'string') headers.set(name, value);
  if ((incomingHeaders.accept ?? '*/*') === '*/*') headers.set('accept', 'application/json, text/event-stream');
  return new Request(new URL(originalUrl, 'http://localhost'), { method: 'POST', headers, signal });
}

/** Streams the SDK's response to the client with backpressure. */
async function sendAnswer(answer: globalThis.Response, response: Response, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  response.writeHead(answer.status, Object.fromEntries(answer.headers));
  for await (const chunk of answer.body ?? []) {
    if (signal.aborted) return;
    if (!response.write(chunk)) await once(response, 'drain', { signal }).catch(() => undefined);
  }
  response.end();
}

const taskParams = z.looseObject({ taskId: z.string().max(4_096) });

function createServer(call: McpCall): Server {
  const hasPrompts = call.appNames.some((name) => call.context.agents.get(name)?.listSkills);
  const server = new Server(
    { name: 'agent-runtime', version: call.version },
    {
      capabilities: {
        tools: {},
        resources: {},
        ...(hasPrompts ? { prompts: {} } : {}),
        ...(call.isModern ? { extensions: { [TASKS]: {} } } : {}),
      },
      instructions: 'Each tool asks one agent. Give `session` of an answer back to go on with its conversation.',
      // Clients of earlier MCP cannot be asked within a response; the tool's result lists the questions instead.
      inputRequired: { legacyShim: false },
    },
  );
  server.setRequestHandler('tools/list', () => listTools(call));
  server.setRequestHandler('resources/templates/list', () => listTemplates(call));
  server.setRequestHandler('tools/call', ({ params }, { mcpReq }) => callTool(call, params, mcpReq));
  server.setRequestHandler('resources/list', ({ params }) => inWords(call, () => listResources(call, params?.cursor)));
  server.setRequestHandler('resources/read', ({ params }) => inWords(call, () => readResource(call, params.uri)));
  if (hasPrompts) {
    server.setRequestHandler('prompts/list', () => inWords(call, () => listPrompts(call)));
    server.setRequestHandler('prompts/get', ({ params }) => inWords(call, () => getPrompt(call, params.name)));
  }
  const tasks = { 'tasks/get': getTask, 'tasks/cancel': cancelTask, 'tasks/update': updateTask };
  for (const [method, work] of Object.entries(call.isModern ? tasks : {}))
    server.setRequestHandler(method, { params: taskParams }, ({ taskId }, { mcpReq }) => {
      requireTasks(mcpReq);
      return inWords(call, () => work(call, taskId, mcpReq.inputResponses ?? {}));
    });
  return server;
}

/** Runs `work`, and converts its errors to errors of the MCP protocol. @throws {ProtocolError} */
async function inWords<Result>(call: McpCall, work: () => Promise<Result>): Promise<Result> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof ProtocolError) throw error;
    const { status, sentence } = toSentence(call, error);
    throw new ProtocolError(status < 500 ? ProtocolErrorCode.InvalidParams : ProtocolErrorCode.InternalError, sentence);
  }
}
