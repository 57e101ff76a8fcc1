import { StreamResponse } from '@a2a-js/sdk';
import { legacyPushNotificationToV1StreamResponse } from '@a2a-js/sdk/compat/v0_3';
import { V03PushNotificationSerializer } from '@a2a-js/sdk/compat/v0_3/server';
import { OLD_VERSION } from '../../../agent/a2a/wire.ts';
import { type JsonObject, toMembers } from '../../../core/content.ts';
import { A2aError } from './errors.ts';

/** The conversion to 0.3: what the package has for push notifications takes all that answers hold. */
const serializer = new V03PushNotificationSerializer();

/** Returns a result as 0.3 has it: what holds one thing by its name in 1.0 is that thing. */
export function toOldResult(result: JsonObject): JsonObject | JsonObject[] | null {
  if ('configs' in result) return (result['configs'] as JsonObject[]).map(toOldPush);
  if ('taskId' in result) return toOldPush(result);
  if (Object.keys(result).length === 0) return null;
  const response = StreamResponse.fromJSON('status' in result ? { task: result } : result);
  return response.payload ? (JSON.parse(serializer.serialize(response).body) as JsonObject) : result;
}

function toOldPush({ taskId, authentication, ...config }: JsonObject): JsonObject {
  const schemes = authentication ? { authentication: { schemes: [toMembers(authentication)['scheme']] } } : {};
  return { taskId, pushNotificationConfig: { ...config, ...schemes } };
}

/** Returns the parameters of a method of 0.3 as 1.0 has them. @throws {A2aError} */
export function fromOldParams(name: string, { message, configuration, ...rest }: JsonObject): JsonObject {
  const { pushNotificationConfig: push, pushNotificationConfigId, id, taskId } = rest;
  if (name.startsWith('CreateTaskPush')) return { ...toMembers(push), taskId };
  if (name.includes('TaskPush')) return { taskId: id, id: pushNotificationConfigId };
  if (!message) return rest;
  const { blocking, pushNotificationConfig: taskPushNotificationConfig, ...wanted } = toMembers(configuration);
  try {
    const sent = legacyPushNotificationToV1StreamResponse({ ...toMembers(message), kind: 'message' });
    const read = StreamResponse.toJSON(sent) as JsonObject;
    const asked = { ...wanted, taskPushNotificationConfig, returnImmediately: blocking === false };
    return { ...rest, ...read, configuration: asked };
  } catch (error) {
    // The package looks at some members only as it converts them.
    const why = error instanceof TypeError ? `not as version ${OLD_VERSION} has it` : (error as Error).message;
    throw new A2aError('INVALID_PARAMS', `message: ${why}`);
  }
}
