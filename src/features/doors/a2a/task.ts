import { CALLS, TOKENS } from '../../../agent/a2a/wire.ts';
import {
  getAnswerText,
  getFunctionCalls,
  getParts,
  type JsonObject,
  type Part,
  toMembers,
} from '../../../core/content.ts';
import type { Event } from '../../../core/event.ts';
import type { Invocation } from '../../../invocations/invocation.ts';
import { type InvocationRef, readHandle, toHandle } from '../handle.ts';
import { type ExternalCall, listExternalCalls } from '../open-calls.ts';
import type { TurnStep } from '../turn.ts';
import { A2aError } from './errors.ts';
import type { A2aMessage, A2aPart } from './params.ts';

/** An invocation with its events. */
export interface Found extends InvocationRef {
  invocation: Invocation;
  events: Event[];
  /** Sequence of the last of them [there is none]. */
  sequence: number | undefined;
  /** Address of the service. */
  base: string;
}

/** The note of a user's part that keeps the id of its message. */
const NOTE = 'a2aMessageId';
/** Media that agents are given; a model may still not take them. */
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

/** Returns the invocation that is a task of a user with an application. @throws {A2aError} for what is none */
export function toRef({ appName, userId }: { appName: string; userId: string }, taskId: string): InvocationRef {
  const ref = readHandle(taskId, userId);
  if (ref?.key.appName !== appName) throw new A2aError('TASK_NOT_FOUND', 'Task not found.');
  return ref;
}

/** Lists the statuses of invocations whose tasks have a state. */
export const toStatuses = (state: string): Invocation['status'][] =>
  (Object.keys(STATES) as Invocation['status'][]).filter((status) => STATES[status] === state);

/** Returns parts of a message as a user's. @throws {A2aError} for media that no agent is given */
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

/** Returns the id of the message that a user's event keeps. */
export const getMessageId = ({ content }: Event): string | undefined =>
  getParts(content).flatMap(({ partMetadata }) => partMetadata?.[NOTE] ?? [])[0] as string | undefined;

/** Returns the calls of a paused invocation that wait for an answer. */
export const listQuestions = ({ invocation, events }: Found): ExternalCall[] =>
  invocation.status === 'paused' ? listExternalCalls(events).filter(({ answeredBy }) => answeredBy === undefined) : [];

/** Returns what an event of the agent has made. */
function toArtifacts(event: Event, { key, base }: Found): JsonObject[] {
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

/** The part of a task that is shown: `historyLength` messages, the newest [all]. */
export type Shown = { historyLength?: number | null | undefined; includeArtifacts?: boolean | undefined };

/** Returns an invocation as a task. */
export function toTask(found: Found, { historyLength, includeArtifacts = true }: Shown = {}): JsonObject {
  const { invocation, events } = found;
  const { taskId: id, contextId } = toIds(found);
  const said = events.filter(({ author }) => author === 'user');
  const history = said.slice(historyLength == null ? 0 : Math.max(0, said.length - historyLength)).map((event) => ({
    ...toIds(found),
    messageId: getMessageId(event) ?? event.id ?? '',
    role: 'ROLE_USER',
    parts: toA2aParts(event),
  }));
  const artifacts = includeArtifacts ? events.flatMap((event) => toArtifacts(event, found)) : [];
  return {
    id,
    contextId,
    status: toStatus(found),
    ...(artifacts.length > 0 ? { artifacts } : {}),
    ...(history.length > 0 ? { history } : {}),
    metadata: {
      invocationId: invocation.id,
      [CALLS]: invocation.llmCalls,
      [TOKENS]: { prompt: invocation.promptTokens, output: invocation.outputTokens },
    },
  };
}

/** The ids by which all updates name a task. */
const toIds = (ref: InvocationRef) => ({ taskId: toHandle(ref), contextId: ref.key.sessionId });

/** The parts of what a user said: answers to calls as values, but for words. */
const toA2aParts = ({ content }: Event): JsonObject[] =>
  getParts(content).flatMap((part): JsonObject[] => {
    const { text, functionResponse } = part;
    if (!functionResponse) return text ? [{ text }] : toMedia(part);
    const { id: callId, response } = functionResponse;
    const words = response?.['result'];
    return [typeof words === 'string' ? { text: words } : { data: { callId, response } }];
  });

/** The bytes or the address that a part has. */
function toMedia({ inlineData, fileData }: Part): JsonObject[] {
  const content = inlineData ? { raw: inlineData.data } : { url: fileData?.fileUri };
  const { mimeType, displayName } = inlineData ?? fileData ?? {};
  if (!Object.values(content)[0]) return [];
  const mediaType = mimeType ?? 'application/octet-stream';
  return [{ ...content, mediaType, ...(displayName ? { filename: displayName } : {}) }];
}

function toStatus(found: Found): JsonObject {
  const { status, error, createTime, startTime, endTime, id } = found.invocation;
  const timestamp = new Date((endTime ?? startTime ?? createTime) * 1000).toISOString();
  const questions = toQuestions(found);
  const isLogin = questions.length > 0 && questions.every((question) => question.isLogin);
  const state = isLogin ? 'TASK_STATE_AUTH_REQUIRED' : STATES[status];
  const parts = error ? [{ text: error.message }] : questions.flatMap((question) => question.parts);
  if (parts.length === 0) return { state, timestamp };
  const messageId = [id, ...questions.map((question) => question.id)].join('.');
  return { state, timestamp, message: { ...toIds(found), messageId, role: 'ROLE_AGENT', parts } };
}

/** The questions of a task, in words and as values: an answer is a part `data` with a `callId`. */
function toQuestions(found: Found): { id: string; isLogin: boolean; parts: JsonObject[] }[] {
  const calls = new Map(
    found.events.flatMap(({ content }) => getFunctionCalls(content)).map((call) => [call.id, call]),
  );
  return listQuestions(found).map(({ id, kind, toolCallId, message, ...asked }) => {
    const { url, schema, kept } = toMembers(calls.get(id)?.args?.['toolConfirmation']);
    const { name = asked.name, args = {} } = calls.get(toolCallId) ?? {};
    const text = message || `\`${name}\` waits for a yes or a no.`;
    const data = { callId: id, kind, name, args, ...(schema ? { schema } : {}) };
    const isLogin = toMembers(kept)['consent'] !== undefined;
    return { id, isLogin, parts: [{ text }, ...(url ? [{ url }] : []), { data }] };
  });
}

/** Converts steps of an invocation to updates of a task whose snapshot its reader has; the end is not among them. */
export async function* toUpdates(steps: AsyncIterable<TurnStep>, found: Found): AsyncGenerator<JsonObject> {
  const ids = toIds(found);
  const toText = (artifactId: string, text: string, append: boolean) => ({
    artifactUpdate: { ...ids, artifact: { artifactId, parts: [{ text }] }, append, lastChunk: false },
  });
  let isQueued = found.invocation.status === 'queued';
  let current: string | undefined;
  for await (const step of steps) {
    if (isQueued && step.kind !== 'end') {
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
      // Its text as a whole takes the place of the pieces: there are clients that keep the last update only.
      for (const artifact of toArtifacts(step.event, found))
        yield { artifactUpdate: { ...ids, artifact, append: false, lastChunk: true } };
  }
}

/** Returns the update that ends a stream, or tells how a task stands. */
export const toStatusUpdate = (found: Found): JsonObject => ({
  statusUpdate: { ...toIds(found), status: toStatus(found) },
});
