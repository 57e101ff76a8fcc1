import type { JsonObject } from '../../core/content.ts';
import { toMembers } from './wire.ts';

/** Version 0.3 of the protocol as JSON-RPC: its names and forms, from and to those of 1.0. */

/** Methods of 0.3 by their names in 1.0. */
export const OLD_METHODS: Record<string, string> = {
  SendMessage: 'message/send',
  SendStreamingMessage: 'message/stream',
  GetTask: 'tasks/get',
  CancelTask: 'tasks/cancel',
  SubscribeToTask: 'tasks/resubscribe',
  GetExtendedAgentCard: 'agent/getAuthenticatedExtendedCard',
};

const STATE = /^TASK_STATE_/;
const list = (value: unknown): JsonObject[] => (Array.isArray(value) ? value.map(toMembers) : []);
const given = (members: JsonObject): JsonObject =>
  Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined));

function toOldPart({ text, raw, url, data, mediaType: mimeType, filename: name, metadata }: JsonObject): JsonObject {
  if (text != null) return given({ kind: 'text', text, metadata });
  if (data != null) return given({ kind: 'data', data, metadata });
  return given({ kind: 'file', file: given({ bytes: raw, uri: url, mimeType, name }), metadata });
}

function fromOldPart({ kind, text, file, data, metadata }: JsonObject): JsonObject {
  if (!['text', 'file', 'data'].includes(String(kind))) return {};
  const { bytes: raw, uri: url, mimeType: mediaType, name: filename } = toMembers(file);
  return given({ text, data, raw, url, mediaType, filename, metadata });
}

/** Returns a message as 0.3 has it. */
export const toOldMessage = (message: JsonObject): JsonObject => ({
  ...message,
  kind: 'message',
  role: message['role'] === 'ROLE_AGENT' ? 'agent' : 'user',
  parts: list(message['parts']).map(toOldPart),
});

const OLD_ROLES: Record<string, string> = { agent: 'ROLE_AGENT', user: 'ROLE_USER' };

/** Returns a message of 0.3 as 1.0 has it. */
function fromOldMessage(message: JsonObject): JsonObject {
  return { ...message, role: OLD_ROLES[String(message['role'])], parts: list(message['parts']).map(fromOldPart) };
}

/** The conversion of messages, parts and states. */
interface Direction {
  message: (message: JsonObject) => JsonObject;
  part: (part: JsonObject) => JsonObject;
  state: (state: string) => string;
}
const TO_OLD: Direction = {
  message: toOldMessage,
  part: toOldPart,
  state: (state) => state.replace(STATE, '').toLowerCase().replaceAll('_', '-'),
};

const FROM_OLD: Direction = {
  message: fromOldMessage,
  part: fromOldPart,
  state: (state) => `TASK_STATE_${state.toUpperCase().replaceAll('-', '_')}`,
};

const convertStatus = ({ message, state }: Direction, status: JsonObject): JsonObject => ({
  ...status,
  state: state(String(status['state'])),
  ...(status['message'] ? { message: message(toMembers(status['message'])) } : {}),
});
const convertArtifact = ({ part }: Direction, artifact: JsonObject): JsonObject => ({
  ...artifact,
  parts: list(artifact['parts']).map(part),
});
const convertTask = (direction: Direction, task: JsonObject): JsonObject => ({
  ...task,
  status: convertStatus(direction, toMembers(task['status'])),
  ...(task['artifacts'] ? { artifacts: list(task['artifacts']).map((each) => convertArtifact(direction, each)) } : {}),
  ...(task['history'] ? { history: list(task['history']).map(direction.message) } : {}),
});

/** Returns a result as 0.3 has it: what holds one thing by its name in 1.0 is that thing. */
export function toOldResult(result: JsonObject): JsonObject {
  const { task, message, statusUpdate, artifactUpdate } = result;
  if (message) return toOldMessage(toMembers(message));
  if (statusUpdate) {
    const { status, ...update } = toMembers(statusUpdate);
    const final = !/SUBMITTED|WORKING/.test(String(toMembers(status)['state']));
    return { kind: 'status-update', ...update, status: convertStatus(TO_OLD, toMembers(status)), final };
  }
  if (artifactUpdate) {
    const { artifact, ...update } = toMembers(artifactUpdate);
    return { kind: 'artifact-update', ...update, artifact: convertArtifact(TO_OLD, toMembers(artifact)) };
  }
  if (task ?? result['status']) return { kind: 'task', ...convertTask(TO_OLD, toMembers(task ?? result)) };
  return result;
}

/** Returns a message or a task of 0.3 as 1.0 answers it. */
export function fromOldResult(result: JsonObject): JsonObject {
  if (result['kind'] === 'message') return { message: fromOldMessage(result) };
  return { task: convertTask(FROM_OLD, result) };
}

/** Returns the parameters of a method of 0.3 as 1.0 has them. */
export function fromOldParams(params: JsonObject): JsonObject {
  const { message, configuration, ...rest } = params;
  if (!message) return rest;
  const { blocking, ...wanted } = toMembers(configuration);
  const sent = { ...wanted, returnImmediately: blocking === false };
  return { ...rest, message: fromOldMessage(toMembers(message)), configuration: sent };
}
