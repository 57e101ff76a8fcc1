import { StreamResponse } from '@a2a-js/sdk';
import { V03PushNotificationSerializer } from '@a2a-js/sdk/compat/v0_3/server';
import { type JsonObject, toMembers } from '../../../core/content.ts';
import { mark, parseExactJson, unmarkText } from '../../../core/exact-json.ts';

/** Converts any result to A2A 0.3, although the A2A package declares it for push notifications only. */
const serializer = new V03PushNotificationSerializer();

/** A result for A2A 0.3, without the object (`{task: …}`) that wraps it in version 1.0. */
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

function toOldPush({ authentication, ...config }: JsonObject): JsonObject {
  return {
    ...config,
    ...(authentication ? { authentication: { schemes: [toMembers(authentication)['scheme']] } } : {}),
  };
}

export function fromOld(name: string, { message, configuration, ...params }: JsonObject): JsonObject {
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
