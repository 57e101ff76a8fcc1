import { hash } from 'node:crypto';
import { isLegacyJsonRpcMethod, legacyJsonRpcToV1Method } from '@a2a-js/sdk/compat/v0_3';
import type { Request } from 'express';
import type { z } from 'zod';
import { OLD_VERSION, VERSION } from '../../../agent/a2a/wire.ts';
import { type JsonObject, toMembers } from '../../../core/content.ts';
import { INPUT_LIMITS } from '../../../core/limits.ts';
import { JsonRefusedError, parseJson } from '../../../core/parse-json.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { requireScope } from '../../../platform/http/access/authorize.ts';
import type { Answer } from '../../../platform/http/operation/operation.ts';
import { sendEvents, toClientUser } from '../start-turn.ts';
import { type CardContext, toCard } from './card.ts';
import { A2aError, showError, toRestError, toRpcError } from './errors.ts';
import {
  type A2aCall,
  cancelTask,
  getTask,
  listTasks,
  sendMessage,
  streamMessage,
  subscribe,
  type Updates,
} from './methods.ts';
import { fromOldParams, toOldResult } from './old-wire.ts';
import { getParams, listParams, sendParams, taskParams } from './params.ts';

/** Dependencies of this door. */
export interface A2aContext extends InvocationContext, CardContext {}

/** A method of the protocol, and the scope that it needs beside the right to call this door. */
interface Method {
  needs: 'invoke' | 'read';
  run: (context: A2aContext, call: A2aCall, params: JsonObject) => Promise<JsonObject | Updates>;
}

const method = <Schema extends z.ZodType>(
  needs: Method['needs'],
  schema: Schema,
  run: (call: A2aCall, params: z.output<Schema>) => Promise<JsonObject | Updates>,
): Method => ({
  needs,
  run: (_, call, params) => {
    const { data, error } = schema.safeParse(params);
    if (!error) return run(call, data);
    const [{ path, message }] = error.issues as [z.core.$ZodIssue];
    throw new A2aError('INVALID_PARAMS', `${path.join('.') || 'params'}: ${message}`);
  },
});

const NO_PUSH = 'Tasks are told to no address here: subscribe to them, or let the operator register a webhook.';

const METHODS: Record<string, Method> = {
  SendMessage: method('invoke', sendParams, sendMessage),
  SendStreamingMessage: method('invoke', sendParams, streamMessage),
  GetTask: method('read', getParams, getTask),
  ListTasks: method('read', listParams, listTasks),
  CancelTask: method('invoke', taskParams, cancelTask),
  SubscribeToTask: method('read', taskParams, subscribe),
  ...Object.fromEntries(
    ['CreateTask*', 'GetTask*', 'ListTask*s', 'DeleteTask*'].map((name) => [
      name.replace('*', 'PushNotificationConfig'),
      { needs: 'read', run: () => Promise.reject(new A2aError('PUSH_NOTIFICATION_NOT_SUPPORTED', NO_PUSH)) } as const,
    ]),
  ),
  GetExtendedAgentCard: {
    needs: 'read',
    run: (context, { appName, base, request }) =>
      toCard(context, appName, base, { isExtended: true, isPlain: readVersion(request) === VERSION }),
  },
};

/** A request, and what the operation knows of it. */
type Came = Omit<A2aCall, 'context' | 'userId' | 'base' | 'appName'> & {
  path: { appName: string; taskId?: string };
  query: { user_id?: string | undefined };
};

/** Returns the version that a client asks for; none is named by clients of before versions had names. */
function readVersion({ headers, query }: Request): string | undefined {
  const named = headers['a2a-version'] ?? query['A2A-Version'];
  if (named === undefined || named === '') return undefined;
  const version = typeof named === 'string' ? /^(\d+\.\d+)(?:\.\d+)?$/.exec(named)?.[1] : undefined;
  if (version === VERSION || version === OLD_VERSION) return version;
  throw new A2aError('VERSION_NOT_SUPPORTED', `Versions ${VERSION} and ${OLD_VERSION} are spoken here.`);
}

const toBase = ({ protocol, host }: Request) => `${protocol}://${host}`;

const toCall = (context: A2aContext, { path, query, ...came }: Came): A2aCall => ({
  ...came,
  context,
  appName: path.appName,
  userId: toClientUser(came.principal, query.user_id),
  base: toBase(came.request),
});

/** Returns parameters by the names that JSON has; those of protocol buffers are understood too. */
const toCamel = (params: JsonObject): JsonObject =>
  Object.fromEntries(
    Object.entries(params).map(([name, value]) => [
      name.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase()),
      value,
    ]),
  );

function readBody(text: string | undefined): unknown {
  try {
    return parseJson(Buffer.from(text ?? ''), INPUT_LIMITS.requestBody, { exact: true });
  } catch (error) {
    if (error instanceof JsonRefusedError) throw new A2aError('PARSE_ERROR', `The body ${error.message}.`);
    throw error;
  }
}

/** Serves one message of JSON-RPC, of 1.0 or of 0.3. @throws {ForbiddenError} without the scope of its method */
export async function serveRpc(context: A2aContext, { body, ...came }: Came & { body: string }): Promise<Answer> {
  let id: unknown = null;
  try {
    const { jsonrpc, method: name, params = {}, ...message } = toMembers(readBody(body));
    const isId = message['id'] == null || ['string', 'number'].includes(typeof message['id']);
    if (isId) id = message['id'] ?? null;
    if (jsonrpc !== '2.0' || typeof name !== 'string' || !isId)
      throw new A2aError('INVALID_REQUEST', 'Not a message of JSON-RPC 2.0.');
    const version = readVersion(came.request);
    const isOld = version !== VERSION && isLegacyJsonRpcMethod(name);
    const known = isOld ? legacyJsonRpcToV1Method(name) : name;
    const found = Object.hasOwn(METHODS, known) && (isOld || version !== OLD_VERSION) ? METHODS[known] : undefined;
    if (!found) throw new A2aError('METHOD_NOT_FOUND', `Method not found: ${name}`);
    if (typeof params !== 'object' || params === null || Array.isArray(params))
      throw new A2aError('INVALID_PARAMS', 'params: not an object');
    requireScope(came.principal, { scope: found.needs, because: 'this method needs it.' });
    if (name !== 'CancelTask' && found.needs === 'invoke') await came.countAgain('invoke');
    const sent = isOld ? fromOldParams(params as JsonObject) : toCamel(params as JsonObject);
    const result = await found.run(context, toCall(context, came), sent);
    const toResult = (value: JsonObject) => ({ jsonrpc: '2.0', id, result: isOld ? toOldResult(value) : value });
    if (typeof result !== 'function') return { kind: 'value', value: toResult(result) };
    const toExpired = (text: string) => toRpcError(id, { code: -32_600, message: text, reason: 'UNAUTHENTICATED' });
    return await sendUpdates(context, came, result, toResult, toExpired);
  } catch (error) {
    if (!(error instanceof A2aError) || came.response.headersSent) throw error;
    return { kind: 'value', value: toRpcError(id, showError(error)) };
  }
}

/** Serves one request of HTTP+JSON; its parameters are those of the path, the query and the body. */
export async function serveRest(
  context: A2aContext,
  name: string,
  { body, ...came }: Came & { body?: string | undefined },
): Promise<Answer> {
  if (readVersion(came.request) === OLD_VERSION)
    throw new A2aError('VERSION_NOT_SUPPORTED', `Version ${OLD_VERSION} is spoken here over JSON-RPC only.`);
  const { taskId } = came.path;
  const sent = { ...(body && toMembers(readBody(body))), ...came.query, ...(taskId && { id: taskId }) };
  const result = await (METHODS[name] as Method).run(context, toCall(context, came), sent);
  if (typeof result === 'function') {
    const toExpired = (message: string) => toRestError({ status: 401, message, reason: 'UNAUTHENTICATED' });
    return sendUpdates(context, came, result, (value) => value, toExpired);
  }
  came.response.type('application/a2a+json').end(JSON.stringify(result));
  return { kind: 'sent' };
}

const sendUpdates = (
  context: A2aContext,
  { response }: Came,
  updates: Updates,
  toData: (update: JsonObject) => object,
  toExpired: (message: string) => object,
) =>
  sendEvents(context, response, toExpired, async function* (signal) {
    for await (const update of updates(signal)) yield toData(update);
  });

/** Sends the card of an application. @throws {NotFoundError} */
export async function serveCard(
  context: CardContext,
  appName: string,
  { request, response, notFound }: Pick<Came, 'request' | 'response'> & { notFound: () => Error },
): Promise<Answer> {
  if (!context.agents.has(appName)) throw notFound();
  const card = await toCard(context, appName, toBase(request), {
    isExtended: false,
    isPlain: readVersion(request) === VERSION,
  });
  const text = JSON.stringify(card);
  const etag = `"${hash('sha256', text).slice(0, 32)}"`;
  response.setHeader('cache-control', 'public, max-age=300').setHeader('etag', etag).vary('A2A-Version');
  if (request.headers['if-none-match'] !== etag) return { kind: 'json', text };
  response.status(304).end();
  return { kind: 'sent' };
}
