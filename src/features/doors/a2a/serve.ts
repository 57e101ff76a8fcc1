import { isLegacyJsonRpcMethod, legacyJsonRpcToV1Method } from '@a2a-js/sdk/compat/v0_3';
import type { z } from 'zod';
import { OLD_VERSION, VERSION } from '../../../agent/a2a/wire.ts';
import { type JsonObject, toMembers } from '../../../core/content.ts';
import { INPUT_LIMITS } from '../../../core/limits.ts';
import { JsonRefusedError, parseJson } from '../../../core/parse-json.ts';
import { requireScope } from '../../../platform/http/access/authorize.ts';
import type { Answer, Call } from '../../../platform/http/operation/operation.ts';
import { toBase } from '../../../platform/http/operation/public-base.ts';
import { A2A_ACTIONS, type A2aMethod, ACTIONS } from '../actions.ts';
import { type DoorCall, sendEvents } from '../door.ts';
import { toDoorUser } from '../door-user.ts';
import { readVersion, toCard } from './card.ts';
import { A2aError, showError, speaksOld, toRestError, toRpcError } from './errors.ts';
import * as methods from './methods.ts';
import type { A2aCall, A2aContext, Updates } from './methods.ts';
import { fromOld, toOldResult } from './old-wire.ts';
import * as schemas from './params.ts';
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

const METHODS: Record<A2aMethod, (call: A2aCall, params: JsonObject) => Result> = {
  SendMessage: method(schemas.sendParams, methods.sendMessage),
  SendStreamingMessage: method(schemas.sendParams, methods.streamMessage),
  GetTask: method(schemas.getParams, methods.getTask),
  ListTasks: method(schemas.listParams, methods.listTasks),
  CancelTask: method(schemas.taskParams, methods.cancelTask),
  SubscribeToTask: method(schemas.taskParams, methods.subscribe),
  CreateTaskPushNotificationConfig: method(schemas.createPushParams, push.createPush),
  GetTaskPushNotificationConfig: method(schemas.pushParams, push.getPush),
  ListTaskPushNotificationConfigs: method(schemas.pushParams, push.listPush),
  DeleteTaskPushNotificationConfig: method(schemas.pushParams, push.deletePush),
  GetExtendedAgentCard: ({ context, appName, request }) => toCard(context, appName, request, true),
};

export interface A2aRequest
  extends Omit<DoorCall, 'context'>,
    Pick<Call<never, never, never, never>, 'principal' | 'countAgain'> {
  path: { appName: string; taskId?: string; configId?: string };
  query: { user_id?: string | undefined };
  body?: string | undefined;
}

/** How a protocol version over JSON-RPC or HTTP+JSON formats results and errors. */
interface Words {
  isOld: boolean;
  toResult: (value: JsonObject) => unknown;
  toError: (shown: ReturnType<typeof showError>) => object;
}

/** Error that ends a stream when the caller's credential becomes invalid. */
const EXPIRED = { status: 401, code: -32_600, reason: 'UNAUTHENTICATED' };

async function answer(
  context: A2aContext,
  name: A2aMethod,
  { path, query, ...incoming }: A2aRequest,
  params: JsonObject,
  { isOld, toResult, toError }: Words,
): Promise<Answer> {
  const userId = toDoorUser(incoming.principal, query.user_id);
  const call = {
    ...incoming,
    isOld,
    context,
    appName: path.appName,
    userId,
    base: toBase(context.config, incoming.request),
  };
  if (name.includes('PushNotification')) push.requirePush(call);
  const result = await METHODS[name](call, params);
  if (typeof result !== 'function') return { kind: 'value', value: toResult(result) };
  const toExpired = (message: string) => toError({ ...EXPIRED, message });
  return sendEvents(context, incoming.response, toExpired, async function* (signal) {
    for await (const update of result(signal)) yield toResult(update) as object;
  });
}

function readBody(text: string): JsonObject {
  try {
    return toMembers(parseJson(Buffer.from(text), INPUT_LIMITS.requestBody, { exact: true }));
  } catch (error) {
    if (error instanceof JsonRefusedError) throw new A2aError('PARSE_ERROR', `The body ${error.message}.`);
    throw error;
  }
}

/** Serves a JSON-RPC message of A2A 1.0 or 0.3. @throws {ForbiddenError} without its method's scope */
export async function serveRpc(context: A2aContext, { body = '', ...incoming }: A2aRequest): Promise<Answer> {
  let id: unknown = null;
  let saysOld = speaksOld(incoming.request);
  try {
    const { jsonrpc, method: name, params = {}, ...message } = readBody(body);
    const isId = message['id'] == null || ['string', 'number'].includes(typeof message['id']);
    if (isId) id = message['id'] ?? null;
    if (jsonrpc !== '2.0' || typeof name !== 'string' || !isId)
      throw new A2aError('INVALID_REQUEST', 'Not a message of JSON-RPC 2.0.');
    const version = readVersion(incoming.request);
    const isOld = version !== VERSION && isLegacyJsonRpcMethod(name);
    // A request without a version is answered in version 1.0 if its method exists only in 1.0.
    saysOld = isOld || version === OLD_VERSION;
    const methodName = isOld ? legacyJsonRpcToV1Method(name) : name;
    if (!Object.hasOwn(METHODS, methodName) || (version === OLD_VERSION && !isOld))
      throw new A2aError('METHOD_NOT_FOUND', `Method not found: ${name}`);
    if (params !== toMembers(params)) throw new A2aError('INVALID_PARAMS', 'params: not an object');
    const { scope, load } = ACTIONS[A2A_ACTIONS[methodName as A2aMethod]];
    requireScope(incoming.principal, { scope, because: 'this method needs it.' });
    // The route has already charged the request as a small read.
    if (load !== 'read') await incoming.countAgain(load);
    const methodParams = isOld ? fromOld(methodName, toMembers(params)) : schemas.toCamel(toMembers(params));
    return await answer(context, methodName as A2aMethod, incoming, methodParams, {
      isOld,
      toResult: (value) => ({ jsonrpc: '2.0', id, result: isOld ? toOldResult(value) : value }),
      toError: (shown) => toRpcError(id, shown, isOld),
    });
  } catch (error) {
    if (!(error instanceof A2aError) || incoming.response.headersSent) throw error;
    return { kind: 'value', value: toRpcError(id, showError(error), saysOld) };
  }
}

/** Serves one HTTP+JSON request. The method's parameters come from the path, the query and the body. */
export async function serveRest(
  context: A2aContext,
  name: A2aMethod,
  { body, ...incoming }: A2aRequest,
): Promise<Answer> {
  if (readVersion(incoming.request) === OLD_VERSION)
    throw new A2aError('VERSION_NOT_SUPPORTED', `Version ${OLD_VERSION} is spoken over JSON-RPC only.`);
  const { taskId, configId } = incoming.path;
  const ids = name.includes('Push') ? { taskId, ...(configId && { id: configId }) } : taskId && { id: taskId };
  const methodParams = { ...(body === undefined ? {} : readBody(body)), ...incoming.query, ...ids };
  const result = await answer(context, name, incoming, methodParams, {
    isOld: false,
    toResult: (value) => value,
    toError: toRestError,
  });
  if (result.kind !== 'value') return result;
  incoming.response.type('application/a2a+json').end(JSON.stringify(result.value));
  return { kind: 'sent' };
}
