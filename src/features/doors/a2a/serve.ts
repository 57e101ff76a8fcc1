import { StreamResponse } from '@a2a-js/sdk';
import { isLegacyJsonRpcMethod, legacyJsonRpcToV1Method } from '@a2a-js/sdk/compat/v0_3';
import { V03PushNotificationSerializer } from '@a2a-js/sdk/compat/v0_3/server';
import type { z } from 'zod';
import { OLD_VERSION, VERSION } from '../../../agent/a2a/wire.ts';
import { type JsonObject, toMembers } from '../../../core/content.ts';
import { mark, parseExactJson, unmarkText } from '../../../core/exact-json.ts';
import { INPUT_LIMITS } from '../../../core/limits.ts';
import { JsonRefusedError, parseJson } from '../../../core/parse-json.ts';
import type { Answer, Call } from '../../../platform/http/operation/operation.ts';
import { toBase } from '../../../platform/http/operation/public-base.ts';
import { A2A_ACTIONS, type A2aMethod, admitAction } from '../actions.ts';
import { type DoorCall, sendEvents } from '../door.ts';
import { toDoorUser } from '../door-user.ts';
import { readVersion, toCard } from './card.ts';
import { A2aError, showError, speaksOld, toRestError, toRpcError } from './errors.ts';
import * as methods from './methods.ts';
import type { A2aCall, A2aContext, Updates } from './methods.ts';
import * as schemas from './params.ts';

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
  CreateTaskPushNotificationConfig: method(schemas.createPushParams, methods.createPush),
  GetTaskPushNotificationConfig: method(schemas.pushParams, methods.getPush),
  ListTaskPushNotificationConfigs: method(schemas.pushParams, methods.listPush),
  DeleteTaskPushNotificationConfig: method(schemas.pushParams, methods.deletePush),
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
  if (name.includes('PushNotification')) methods.requirePush(call);
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
    await admitAction(A2A_ACTIONS[methodName as A2aMethod], incoming);
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

/** Converts any result to A2A 0.3, although the A2A package declares it for push notifications only. */
const serializer = new V03PushNotificationSerializer();

/** A result for A2A 0.3, without the object (`{task: …}`) that wraps it in version 1.0. */
function toOldResult(result: JsonObject): unknown {
  const { configs, taskId, ...config } = result;
  if (Array.isArray(configs)) return configs.map(toOldResult);
  if (taskId) return { taskId, pushNotificationConfig: toOldPush(config) };
  if (Object.keys(result).length === 0) return null;
  // Marks replace integers during the conversion, because the A2A package loses digits of numbers in protocol buffers.
  const marked = mark(result) as JsonObject;
  const response = StreamResponse.fromJSON('status' in result ? { task: marked } : marked);
  if (!response.payload) return result;
  return parseExactJson(unmarkText(serializer.serialize(response).body));
}

function toOldPush({ authentication, ...config }: JsonObject): JsonObject {
  return {
    ...config,
    ...(authentication ? { authentication: { schemes: [toMembers(authentication)['scheme']] } } : {}),
  };
}

function fromOld(name: string, { message, configuration, ...params }: JsonObject): JsonObject {
  if (name.includes('TaskPush')) {
    const { pushNotificationConfig, pushNotificationConfigId, id, taskId = id } = params;
    return { id: pushNotificationConfigId, ...toMembers(pushNotificationConfig), taskId };
  }
  if (!name.startsWith('Send')) return params;
  const { kind: _, role, parts, ...messageMembers } = toMembers(message);
  const { blocking, pushNotificationConfig: taskPushNotificationConfig, ...options } = toMembers(configuration);
  return {
    message: {
      ...messageMembers,
      role: `ROLE_${String(role).toUpperCase()}`,
      parts: Array.isArray(parts) ? parts.map((part) => fromOldPart(toMembers(part))) : parts,
    },
    configuration: { ...options, taskPushNotificationConfig, returnImmediately: blocking === false },
  };
}

/** In A2A 0.3 `kind` names the member with a part's content. */
function fromOldPart({ kind, text, file, data }: JsonObject): JsonObject {
  if (kind === 'text') return { text };
  if (kind === 'data') return { data };
  if (kind !== 'file') return {};
  const { uri: url, bytes: raw, mimeType: mediaType, name: filename } = toMembers(file);
  return { url, raw, mediaType, filename };
}
