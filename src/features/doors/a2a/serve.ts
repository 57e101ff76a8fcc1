import { isLegacyJsonRpcMethod, legacyJsonRpcToV1Method } from '@a2a-js/sdk/compat/v0_3';
import type { z } from 'zod';
import { OLD_VERSION, VERSION } from '../../../agent/a2a/wire.ts';
import { type JsonObject, toMembers } from '../../../core/content.ts';
import { INPUT_LIMITS } from '../../../core/limits.ts';
import { JsonRefusedError, parseJson } from '../../../core/parse-json.ts';
import { requireScope } from '../../../platform/http/access/authorize.ts';
import type { Answer, Call } from '../../../platform/http/operation/operation.ts';
import { camelCase } from '../../../platform/http/operation/paths.ts';
import { sendEvents, toClientUser, type TurnCall } from '../start-turn.ts';
import { readVersion, toBase, toCard } from './card.ts';
import { A2aError, showError, toRestError, toRpcError } from './errors.ts';
import * as methods from './methods.ts';
import type { A2aCall, A2aContext, Updates } from './methods.ts';
import { fromOldParams, toOldResult } from './old-wire.ts';
import { createPushParams, getParams, listParams, pushParams, sendParams, taskParams } from './params.ts';
import * as push from './push.ts';

type Result = Promise<JsonObject | Updates>;

const method =
  <Schema extends z.ZodType>(schema: Schema, run: (call: A2aCall, params: z.output<Schema>) => Result) =>
  (call: A2aCall, params: JsonObject): Result => {
    const { data, error } = schema.safeParse(params);
    if (!error) return run(call, data);
    const [{ path, message }] = error.issues as [z.core.$ZodIssue];
    throw new A2aError('INVALID_PARAMS', `${path.join('.') || 'params'}: ${message}`);
  };

const METHODS: Record<string, (call: A2aCall, params: JsonObject) => Result> = {
  SendMessage: method(sendParams, methods.sendMessage),
  SendStreamingMessage: method(sendParams, methods.streamMessage),
  GetTask: method(getParams, methods.getTask),
  ListTasks: method(listParams, methods.listTasks),
  CancelTask: method(taskParams, methods.cancelTask),
  SubscribeToTask: method(taskParams, methods.subscribe),
  CreateTaskPushNotificationConfig: method(createPushParams, push.createPush),
  GetTaskPushNotificationConfig: method(pushParams, push.getPush),
  ListTaskPushNotificationConfigs: method(pushParams, push.listPush),
  DeleteTaskPushNotificationConfig: method(pushParams, push.deletePush),
  GetExtendedAgentCard: ({ context, appName, request }) => toCard(context, appName, request, true),
};

/** A request, and what the operation knows of it. */
export interface Came extends TurnCall, Pick<Call<never, never, never, never>, 'principal' | 'countAgain'> {
  path: { appName: string; taskId?: string; configId?: string };
  query: { user_id?: string | undefined };
  body?: string | undefined;
}

/** Runs a method, which is one of {@link METHODS}. */
function runMethod(name: string, call: A2aCall, params: JsonObject): Result {
  if (name.includes('PushNotification')) push.requirePush(call);
  return (METHODS[name] as (typeof METHODS)[string])(call, params);
}

const toCall = (context: A2aContext, { path, query, ...came }: Came, isOld = false): A2aCall => ({
  ...came,
  isOld,
  context,
  appName: path.appName,
  userId: toClientUser(came.principal, query.user_id),
  base: toBase(came.request),
});

/** Returns parameters by the names that JSON has; those of protocol buffers are understood too. */
const toCamel = (params: JsonObject): JsonObject =>
  Object.fromEntries(Object.entries(params).map(([name, value]) => [camelCase(name), value]));

function readBody(text: string): JsonObject {
  try {
    return toMembers(parseJson(Buffer.from(text), INPUT_LIMITS.requestBody, { exact: true }));
  } catch (error) {
    if (error instanceof JsonRefusedError) throw new A2aError('PARSE_ERROR', `The body ${error.message}.`);
    throw error;
  }
}

/** Serves one message of JSON-RPC, of 1.0 or of 0.3. @throws {ForbiddenError} without the scope of its method */
export async function serveRpc(context: A2aContext, { body = '', ...came }: Came): Promise<Answer> {
  let id: unknown = null;
  try {
    const { jsonrpc, method: name, params = {}, ...message } = readBody(body);
    const isId = message['id'] == null || ['string', 'number'].includes(typeof message['id']);
    if (isId) id = message['id'] ?? null;
    if (jsonrpc !== '2.0' || typeof name !== 'string' || !isId)
      throw new A2aError('INVALID_REQUEST', 'Not a message of JSON-RPC 2.0.');
    const version = readVersion(came.request);
    const isOld = version !== VERSION && isLegacyJsonRpcMethod(name);
    const known = isOld ? legacyJsonRpcToV1Method(name) : name;
    if (!Object.hasOwn(METHODS, known) || (version === OLD_VERSION && !isOld))
      throw new A2aError('METHOD_NOT_FOUND', `Method not found: ${name}`);
    if (typeof params !== 'object' || params === null || Array.isArray(params))
      throw new A2aError('INVALID_PARAMS', 'params: not an object');
    const scope = /^(?:Send|Cancel)/.test(known) ? 'invoke' : /^(?:Create|Delete)/.test(known) ? 'write' : 'read';
    requireScope(came.principal, { scope, because: 'this method needs it.' });
    if (known.startsWith('Send') || scope === 'write') await came.countAgain(scope);
    const sent = isOld ? fromOldParams(known, params as JsonObject) : toCamel(params as JsonObject);
    const result = await runMethod(known, toCall(context, came, isOld), sent);
    const toResult = (value: JsonObject) => ({ jsonrpc: '2.0', id, result: isOld ? toOldResult(value) : value });
    if (typeof result !== 'function') return { kind: 'value', value: toResult(result) };
    const toExpired = (text: string) => toRpcError(id, { code: -32_600, message: text, reason: 'UNAUTHENTICATED' });
    return await sendEvents(context, came.response, toExpired, async function* (signal) {
      for await (const update of result(signal)) yield toResult(update);
    });
  } catch (error) {
    if (!(error instanceof A2aError) || came.response.headersSent) throw error;
    return { kind: 'value', value: toRpcError(id, showError(error)) };
  }
}

/** Serves one request of HTTP+JSON; its parameters are those of the path, the query and the body. */
export async function serveRest(context: A2aContext, name: string, { body, ...came }: Came): Promise<Answer> {
  if (readVersion(came.request) === OLD_VERSION)
    throw new A2aError('VERSION_NOT_SUPPORTED', `Version ${OLD_VERSION} is spoken here over JSON-RPC only.`);
  const { taskId, configId } = came.path;
  const ids = name.includes('Push') ? { taskId, ...(configId && { id: configId }) } : taskId && { id: taskId };
  const sent = { ...(body === undefined ? {} : readBody(body)), ...came.query, ...ids };
  const result = await runMethod(name, toCall(context, came), sent);
  const toExpired = (message: string) => toRestError({ status: 401, message, reason: 'UNAUTHENTICATED' });
  if (typeof result === 'function') return sendEvents(context, came.response, toExpired, result);
  came.response.type('application/a2a+json').end(JSON.stringify(result));
  return { kind: 'sent' };
}
