import { CALLS, TOKENS } from '../../../agent/a2a/wire.ts';
import { getAnswerText, getParts, type JsonObject, type Part, toMembers } from '../../../core/content.ts';
import type { Event } from '../../../core/event.ts';
import type { Invocation } from '../../../invocations/invocation.ts';
import { type InvocationRef, readHandle, toHandle } from '../handle.ts';
import { listOpenCalls } from '../open-calls.ts';
import type { TurnStep, WholeTurn } from '../turn.ts';
import { A2aError } from './errors.ts';
import type { A2aMessage, A2aPart } from './params.ts';

export interface Task extends WholeTurn {
  base: string;
}

/** Key in a part's `partMetadata` under which the id of the client's message is stored. */
const NOTE = 'a2aMessageId';
/** Media types of files that are passed to agents. A model may still reject some of them. */
const MEDIA = /^(?:text|image|audio|video)\/|^application\/(?:json|pdf|xml|yaml|octet-stream|x-ndjson)$/;

const STATES: Record<Invocation['status'], string> = {
  queued: 'TASK_STATE_SUBMITTED',
  running: 'TASK_STATE_WORKING',
  paused: 'TASK_STATE_INPUT_REQUIRED',
  succeeded: 'TASK_STATE_COMPLETED',
  failed: 'TASK_STATE_FAILED',
  interrupted: 'TASK_STATE_FAILED',
  cancelled: 'TASK_STATE_CANCELED',
};

/** Decodes a task id. @throws {A2aError} if the id is not that of a task of this user and application */
export function toRef({ appName, userId }: { appName: string; userId: string }, taskId: string): InvocationRef {
  const ref = readHandle(taskId, userId);
  if (ref?.key.appName !== appName) throw new A2aError('TASK_NOT_FOUND', 'Task not found.');
  return ref;
}

export const toStatuses = (state: string): Invocation['status'][] =>
  (Object.keys(STATES) as Invocation['status'][]).filter((status) => STATES[status] === state);

/** @throws {A2aError} for media types that are not passed to agents */
export const toParts = ({ parts, messageId }: A2aMessage): Part[] =>
  parts.map((part, index) => ({ ...toPart(part), ...(index === 0 && { partMetadata: { [NOTE]: messageId } }) }));

function toPart({ text, raw, url, data, mediaType: mimeType, filename: displayName }: A2aPart): Part {
  if (mimeType !== undefined && !MEDIA.test(mimeType))
    throw new A2aError('CONTENT_TYPE_NOT_SUPPORTED', `This content type is not supported: \`${mimeType}\`.`);
  if (text != null) return { text };
  if (data != null) return { text: JSON.stringify(data) };
  if (raw != null) {
    const bytes = Buffer.from(raw, 'base64').toString('base64');
    return { inlineData: { data: bytes, mimeType: mimeType ?? 'application/octet-stream', displayName } };
  }
  return { fileData: { fileUri: url, mimeType, displayName } };
}

export const getMessageId = ({ content }: Event): string | undefined =>
  getParts(content).flatMap(({ partMetadata }) => partMetadata?.[NOTE] ?? [])[0] as string | undefined;

/** Converts an agent's event to A2A artifacts: the event's text, structured output, media and saved artifacts. */
function toArtifacts(event: Event, { key, base }: Task): JsonObject[] {
  const { author, content, output, actions } = event;
  if (author === 'user') return [];
  const id = event.id ?? '';
  const text = getAnswerText(content);
  const names = [key.appName, 'users', key.userId, 'sessions', key.sessionId].map(encodeURIComponent);
  return [
    ...(text === '' ? [] : [{ artifactId: id, parts: [{ text }] }]),
    ...(output == null ? [] : [{ artifactId: `${id}-output`, parts: [{ data: output }] }]),
    ...getParts(content).flatMap((part, index) =>
      toMedia(part).map((media) => ({ artifactId: `${id}-${index}`, parts: [media] })),
    ),
    ...Object.entries(actions?.artifactDelta ?? {}).map(([name, version]) => {
      const path = `${names.join('/')}/artifacts/${encodeURIComponent(name)}/versions/${String(version)}`;
      const parts = [{ url: `${base}/apps/${path}`, filename: name }];
      return { artifactId: `${name}@${String(version)}`, name, parts };
    }),
  ];
}

/** The part of a task that is returned: the newest `historyLength` messages (default: all), and artifacts if wanted. */
export type TaskView = { historyLength?: number | null | undefined; includeArtifacts?: boolean | undefined };

export function toTask(task: Task, { historyLength, includeArtifacts = true }: TaskView = {}): JsonObject {
  const { invocation, events } = task;
  const { taskId: id, contextId } = toIds(task);
  const userEvents = events.filter(({ author }) => author === 'user');
  const history = userEvents
    .slice(historyLength == null ? 0 : Math.max(0, userEvents.length - historyLength))
    .map((event) => ({
      ...toIds(task),
      messageId: getMessageId(event) ?? event.id ?? '',
      role: 'ROLE_USER',
      parts: toA2aParts(event),
    }));
  const artifacts = includeArtifacts ? events.flatMap((event) => toArtifacts(event, task)) : [];
  return {
    id,
    contextId,
    status: toStatus(task),
    ...(artifacts.length > 0 ? { artifacts } : {}),
    ...(history.length > 0 ? { history } : {}),
    metadata: {
      invocationId: invocation.id,
      [CALLS]: invocation.llmCalls,
      [TOKENS]: { prompt: invocation.promptTokens, output: invocation.outputTokens },
    },
  };
}

const toIds = (ref: InvocationRef) => ({ taskId: toHandle(ref), contextId: ref.key.sessionId });

/** A user's answer to a call becomes a text part if it is a text, otherwise a `data` part. */
const toA2aParts = ({ content }: Event): JsonObject[] =>
  getParts(content).flatMap((part): JsonObject[] => {
    const { text, functionResponse } = part;
    if (!functionResponse) return text ? [{ text }] : toMedia(part);
    const { id: callId, response } = functionResponse;
    const words = response?.['result'];
    return [typeof words === 'string' ? { text: words } : { data: { callId, response } }];
  });

/** @returns nothing for a part without bytes and URL */
function toMedia({ inlineData, fileData }: Part): JsonObject[] {
  const content = inlineData ? { raw: inlineData.data } : { url: fileData?.fileUri };
  const { mimeType, displayName } = inlineData ?? fileData ?? {};
  if (!Object.values(content)[0]) return [];
  const mediaType = mimeType ?? 'application/octet-stream';
  return [{ ...content, mediaType, ...(displayName ? { filename: displayName } : {}) }];
}

function toStatus(task: Task): JsonObject {
  const { status, error, createTime, startTime, endTime, id } = task.invocation;
  const timestamp = new Date((endTime ?? startTime ?? createTime) * 1000).toISOString();
  const questions = status === 'paused' ? toQuestions(task) : [];
  const isLogin = questions.length > 0 && questions.every((question) => question.isLogin);
  const state = isLogin ? 'TASK_STATE_AUTH_REQUIRED' : STATES[status];
  const parts = error ? [{ text: error.message }] : questions.flatMap((question) => question.parts);
  if (parts.length === 0) return { state, timestamp };
  const messageId = [id, ...questions.map((question) => question.id)].join('.');
  return { state, timestamp, message: { ...toIds(task), messageId, role: 'ROLE_AGENT', parts } };
}

/** The task's open questions as text and as JSON. A client answers with a `data` part that contains the `callId`. */
function toQuestions({ events }: Task): { id: string; isLogin: boolean; parts: JsonObject[] }[] {
  return listOpenCalls(events).map(({ id, kind, shown, message, request: { url, schema, kept } }) => {
    const text = message || `\`${shown.name}\` waits for a yes or a no.`;
    const data = { callId: id, kind, ...shown, ...(schema ? { schema } : {}) };
    const isLogin = toMembers(kept)['consent'] !== undefined;
    return { id, isLogin, parts: [{ text }, ...(url ? [{ url }] : []), { data }] };
  });
}

/**
 * Converts steps to updates for a client that already has the task's snapshot. The final status is not included.
 * @returns the invocation at its end; `undefined` if the steps end earlier
 */
export async function* toUpdates(
  steps: AsyncIterable<TurnStep>,
  task: Task,
): AsyncGenerator<JsonObject, Invocation | undefined> {
  const ids = toIds(task);
  const toText = (artifactId: string, text: string, append: boolean) => ({
    artifactUpdate: { ...ids, artifact: { artifactId, parts: [{ text }] }, append, lastChunk: false },
  });
  let isQueued = task.invocation.status === 'queued';
  let current: string | undefined;
  for await (const step of steps) {
    if (step.kind === 'end') return step.invocation;
    if (isQueued) {
      isQueued = false;
      const status = { state: STATES.running, timestamp: new Date().toISOString() };
      yield { statusUpdate: { ...ids, status } };
    }
    if (step.kind === 'text' && !step.isThought) {
      yield toText(step.eventId, step.text, current === step.eventId);
      current = step.eventId;
    } else if (step.kind === 'void' && current === step.eventId) {
      current = undefined;
      yield toText(step.eventId, '', false);
    } else if (step.kind === 'event')
      // The last update has the complete text in place of the pieces, because some clients keep only the last update.
      for (const artifact of toArtifacts(step.event, task))
        yield { artifactUpdate: { ...ids, artifact, append: false, lastChunk: true } };
  }
  return undefined;
}

/** This update also ends a stream. */
export const toStatusUpdate = (task: Task): JsonObject => ({
  statusUpdate: { ...toIds(task), status: toStatus(task) },
});
