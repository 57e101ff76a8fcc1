import { StreamResponse } from '@a2a-js/sdk';
import { V03PushNotificationSerializer } from '@a2a-js/sdk/compat/v0_3/server';
import { type JsonObject, toMembers } from '../../../core/content.ts';
import { toCamel } from './params.ts';

/** The conversion to 0.3: what the package has for push notifications takes all that answers hold. */
const serializer = new V03PushNotificationSerializer();

/** Returns a result as JSON-RPC of 0.3 has it: what holds one thing by its name in 1.0 is that thing. */
export function toOldResult(result: JsonObject): unknown {
  const { configs, taskId, ...config } = result;
  if (Array.isArray(configs)) return configs.map(toOldResult);
  if (taskId) return { taskId, pushNotificationConfig: toOldPush(config) };
  if (Object.keys(result).length === 0) return null;
  const response = StreamResponse.fromJSON('status' in result ? { task: result } : result);
  return response.payload ? (JSON.parse(serializer.serialize(response).body) as JsonObject) : result;
}

/** Returns a result as HTTP+JSON of 0.3 has it: the JSON of its protocol buffers. */
export function toOldJson(result: JsonObject): JsonObject {
  const { configs, taskId, securityRequirements: security, statusUpdate, ...config } = result;
  if (Array.isArray(configs)) return { configs: configs.map(toOldJson) };
  if (security) return { ...result, security };
  if (taskId) {
    const name = `tasks/${taskId as string}/pushNotificationConfigs/${config['id'] as string}`;
    return { name, pushNotificationConfig: toOldPush(config) };
  }
  if (!statusUpdate) return toOldMembers(result);
  const update = toMembers(statusUpdate);
  const { state } = toMembers(update['status']);
  return { statusUpdate: { ...toOldMembers(update), final: state !== 'TASK_STATE_WORKING' } };
}

function toOldPush({ authentication, ...config }: JsonObject): JsonObject {
  return {
    ...config,
    ...(authentication ? { authentication: { schemes: [toMembers(authentication)['scheme']] } } : {}),
  };
}

/** Renames what protocol buffers of 0.3 name otherwise; what a client or a model said is left as it is. */
function toOldMembers({ parts, metadata, state, ...members }: JsonObject): JsonObject {
  const convert = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(convert);
    return typeof value === 'object' && value !== null ? toOldMembers(value as JsonObject) : value;
  };
  return {
    ...Object.fromEntries(Object.entries(members).map(([name, value]) => [name, convert(value)])),
    ...(state !== undefined && { state: state === 'TASK_STATE_CANCELED' ? 'TASK_STATE_CANCELLED' : state }),
    ...(Array.isArray(parts) && { ['messageId' in members ? 'content' : 'parts']: parts.map(toOldPart) }),
    ...(metadata !== undefined && { metadata }),
  };
}

function toOldPart({ text, data, raw, url, mediaType: mimeType }: JsonObject): JsonObject {
  if (text !== undefined) return { text };
  // These know objects only.
  if (data !== undefined) return { data: { data: data === toMembers(data) ? data : { value: data } } };
  return { file: { ...(raw === undefined ? { fileWithUri: url } : { fileWithBytes: raw }), mimeType } };
}

/** Returns the parameters of a method of JSON-RPC of 0.3 as 1.0 has them. */
export function fromOldParams(name: string, { message, configuration, ...rest }: JsonObject): JsonObject {
  const { pushNotificationConfig: push, pushNotificationConfigId, id, taskId } = rest;
  if (name.startsWith('CreateTaskPush')) return { ...toMembers(push), taskId };
  if (name.includes('TaskPush')) return { taskId: id, id: pushNotificationConfigId };
  if (!message) return rest;
  const { blocking, pushNotificationConfig: taskPushNotificationConfig, ...wanted } = toMembers(configuration);
  const { kind: _, role, parts, ...said } = toMembers(message);
  // A part has the member that its kind names.
  const toPart = (part: unknown) => {
    const { kind, data, ...members } = toMembers(part);
    return fromOldPart(kind === 'data' ? { data: { data } } : { [String(kind)]: members[String(kind)] });
  };
  const read = Array.isArray(parts) ? parts.map(toPart) : parts;
  return {
    ...rest,
    message: { ...said, role: `ROLE_${String(role).toUpperCase()}`, parts: read },
    configuration: { ...wanted, taskPushNotificationConfig, returnImmediately: blocking === false },
  };
}

/** Returns the body of a request of HTTP+JSON of 0.3 as 1.0 has it. */
export function fromOldJson(name: string, body: JsonObject): JsonObject {
  const { config = body, message, request = message, configuration } = body;
  if (!name.startsWith('Send')) return toMembers(toCamel(toMembers(config))['pushNotificationConfig'] ?? config);
  const { content, ...said } = toCamel(toMembers(request));
  const { blocking, pushNotification: taskPushNotificationConfig, ...wanted } = toCamel(toMembers(configuration));
  return {
    message: {
      ...said,
      ...(Array.isArray(content) && { parts: content.map(fromOldPart) }),
    },
    // Protocol buffers leave out what is false.
    configuration: configuration && { ...wanted, taskPushNotificationConfig, returnImmediately: blocking !== true },
  };
}

/** Returns a part of protocol buffers, which have a value within another, as 1.0 has it. */
function fromOldPart(part: unknown): JsonObject {
  const { text, file, data } = toMembers(part);
  if (data) return { data: toMembers(data)['data'] };
  if (!file) return { text };
  const { uri, bytes, mimeType: mediaType, name: filename, ...proto } = toCamel(toMembers(file));
  return { url: proto['fileWithUri'] || uri, raw: proto['fileWithBytes'] ?? bytes, mediaType, filename };
}
