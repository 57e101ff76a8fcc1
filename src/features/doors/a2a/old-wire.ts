import { StreamResponse } from '@a2a-js/sdk';
import { V03PushNotificationSerializer } from '@a2a-js/sdk/compat/v0_3/server';
import { type JsonObject, toMembers } from '../../../core/content.ts';
import { mark, parseExactJson, unmarkText } from '../../../core/exact-json.ts';
import { toCamel } from './params.ts';

/** Converts any result to A2A 0.3, although the A2A package declares it for push notifications only. */
const serializer = new V03PushNotificationSerializer();

/** A result for JSON-RPC of A2A 0.3, without the object (`{task: …}`) that wraps it in version 1.0. */
export function toOldResult(result: JsonObject): unknown {
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

/** Converts a result to HTTP+JSON of A2A 0.3, which is the JSON form of that version's protocol buffers. */
export function toOldJson(result: JsonObject): JsonObject {
  const { configs, taskId, securityRequirements: security, statusUpdate, ...config } = result;
  if (Array.isArray(configs)) return { configs: configs.map(toOldJson) };
  if (security) return { ...result, security };
  if (taskId) {
    const name = `tasks/${taskId as string}/pushNotificationConfigs/${config['id'] as string}`;
    return { name, pushNotificationConfig: toOldPush(config) };
  }
  if (!statusUpdate) return toMembers(toOldMembers(result));
  const { status, ...update } = toMembers(statusUpdate);
  const isOver = toMembers(status)['state'] !== 'TASK_STATE_WORKING';
  return { statusUpdate: { ...update, status: toOldMembers(status), final: isOver } };
}

function toOldPush({ authentication, ...config }: JsonObject): JsonObject {
  return {
    ...config,
    ...(authentication ? { authentication: { schemes: [toMembers(authentication)['scheme']] } } : {}),
  };
}

/** Renames the properties that have other names in A2A 0.3's protocol buffers. Content and metadata stay unchanged. */
function toOldMembers(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(toOldMembers);
  if (value !== toMembers(value)) return value;
  const { parts, metadata, state, ...members } = toMembers(value);
  return {
    ...Object.fromEntries(Object.entries(members).map(([name, member]) => [name, toOldMembers(member)])),
    ...(state !== undefined && { state: state === 'TASK_STATE_CANCELED' ? 'TASK_STATE_CANCELLED' : state }),
    ...(Array.isArray(parts) && { ['messageId' in members ? 'content' : 'parts']: parts.map(toOldPart) }),
    ...(metadata !== undefined && { metadata }),
  };
}

function toOldPart({ text, data, raw, url, mediaType: mimeType }: JsonObject): JsonObject {
  if (text !== undefined) return { text };
  // Wraps what is no object as `{ value }`, because `data` in A2A 0.3's protocol buffers must be an object.
  if (data !== undefined) return { data: { data: data === toMembers(data) ? data : { value: data } } };
  return { file: { ...(raw === undefined ? { fileWithUri: url } : { fileWithBytes: raw }), mimeType } };
}

/** @param isProto - true for HTTP+JSON, the JSON form of protocol buffers */
export function fromOld(name: string, params: JsonObject, isProto: boolean): JsonObject {
  const { config = params, message, request = message, configuration, ...rest } = params;
  if (name.includes('TaskPush')) {
    const { pushNotificationConfig: push, pushNotificationConfigId, id, taskId = id } = toCamel(toMembers(config));
    return { id: pushNotificationConfigId, ...toMembers(push ?? (isProto ? config : undefined)), taskId };
  }
  if (!name.startsWith('Send')) return rest;
  const { kind: _, role, parts, content = parts, ...messageMembers } = toCamel(toMembers(request));
  const { blocking, pushNotificationConfig, ...options } = toCamel(toMembers(configuration));
  const { pushNotification: taskPushNotificationConfig = pushNotificationConfig, ...otherOptions } = options;
  // An absent `blocking` means false here, because the JSON form of protocol buffers omits false.
  const returnImmediately = isProto && configuration ? blocking !== true : blocking === false;
  return {
    message: {
      ...messageMembers,
      role: isProto ? role : `ROLE_${String(role).toUpperCase()}`,
      parts: Array.isArray(content) ? content.map((part) => fromOldPart(toMembers(part), isProto)) : content,
    },
    configuration: { ...otherOptions, taskPushNotificationConfig, returnImmediately },
  };
}

/** In A2A 0.3 `kind` names the member with a part's content; protocol buffers have none, and wrap `data` once more. */
function fromOldPart({ kind, text, file, data }: JsonObject, isProto: boolean): JsonObject {
  const is = (name: string, member: unknown) => (isProto ? member != null : kind === name);
  if (is('text', text)) return { text };
  if (is('data', data)) return { data: isProto ? toMembers(data)['data'] : data };
  if (!is('file', file)) return {};
  const { uri, bytes, mimeType: mediaType, name: filename, ...proto } = toCamel(toMembers(file));
  return { url: proto['fileWithUri'] || uri, raw: proto['fileWithBytes'] ?? bytes, mediaType, filename };
}
