import { getParts, type JsonObject, type Part } from '../../../core/content.ts';
import { TooLargeError } from '../../../core/errors.ts';
import type { Event } from '../../../core/event.ts';
import type { SessionKey } from '../../../core/session.ts';
import { type FollowedEvent, listEventsAfter } from '../../../conversation/sessions/event-store.ts';
import type { Database } from '../../../platform/db/database.ts';
import { readWhole } from '../turn.ts';
import { type AiVersion, ChunkWriter, type UiChunk } from './chunks.ts';

/** Events of one read, which its bytes make fewer. */
const PAGE = 100;
/** Maximum of characters of the events of one invocation, which is one message. */
const MAX_CHARACTERS = 16_777_216;

/** A message of the AI SDK. */
interface UiMessage {
  id: string;
  role: 'user' | 'assistant';
  parts: JsonObject[];
}

/**
 * Lists the messages of a session after a place, some 100 events of them, whole invocations only; `undefined` without
 * a session.
 * @throws {TooLargeError} where one invocation has more characters than a message may
 */
export async function listMessages(
  db: Database,
  key: SessionKey,
  after: number,
  version: AiVersion,
): Promise<{ messages: UiMessage[]; next: number | undefined } | undefined> {
  const events: FollowedEvent[] = [];
  for (let characters = 0, from = after; ; ) {
    const found = await listEventsAfter(db, key, from, PAGE);
    if (!found) return undefined;
    events.push(...found.events);
    const last = events.at(-1);
    if (!last || last.sequence >= found.lastSequence) return { messages: toMessages(events, version), next: undefined };
    const end = events.findLastIndex(({ invocationId }) => invocationId !== last.invocationId);
    const whole = events.slice(0, end + 1);
    if (end >= 0) return { messages: toMessages(whole, version), next: whole[end]?.sequence };
    characters += found.events.reduce((sum, { text }) => sum + text.length, 0);
    if (characters > MAX_CHARACTERS) {
      throw new TooLargeError(`Invocation ${last.invocationId} is too large for a message: read its events.`);
    }
    from = last.sequence;
  }
}

function toMessages(events: FollowedEvent[], version: AiVersion): UiMessage[] {
  const messages: (UiMessage & { invocationId: string })[] = [];
  const answers = new Map<string, { parts: JsonObject[]; writer: ChunkWriter }>();
  for (const { text, sequence, invocationId } of events) {
    const event = JSON.parse(text) as Event;
    const undone = event.actions?.rewindBeforeInvocationId;
    const cut = undone ? messages.findIndex((message) => message.invocationId === undone) : -1;
    if (cut >= 0) messages.length = cut;
    const said = event.author === 'user' ? getParts(event.content).flatMap(toUserPart) : [];
    if (said.length > 0) messages.push({ id: event.id ?? '', role: 'user', parts: said, invocationId });
    let answer = answers.get(invocationId);
    if (!answer && event.author !== 'user') {
      answer = { parts: [], writer: new ChunkWriter(version) };
      answers.set(invocationId, answer);
      messages.push({ id: invocationId, role: 'assistant', parts: answer.parts, invocationId });
    }
    for (const step of answer ? readWhole(event, sequence) : [])
      for (const chunk of answer?.writer.take(step) ?? []) addChunk(answer?.parts ?? [], chunk);
  }
  return messages.map(({ id, role, parts }) => ({ id, role, parts }));
}

function toUserPart({ text, inlineData, fileData }: Part): JsonObject[] {
  if (text) return [{ type: 'text', text }];
  const { mimeType, displayName } = inlineData ?? fileData ?? {};
  const mediaType = mimeType ?? 'application/octet-stream';
  const url = inlineData?.data ? `data:${mediaType};base64,${inlineData.data}` : fileData?.fileUri;
  return url ? [{ type: 'file', mediaType, url, ...(displayName ? { filename: displayName } : {}) }] : [];
}

/** Adds to the parts of a message what the SDK's client makes of a chunk. */
function addChunk(parts: JsonObject[], chunk: UiChunk): void {
  const { type, id, toolCallId, approvalId, approved } = chunk;
  const last = parts.at(-1) ?? {};
  const isCalled = (part: JsonObject) => toolCallId !== undefined && part['toolCallId'] === toolCallId;
  const call = parts.findLast((part) => isCalled(part) || isAskedBy(part, approvalId)) ?? {};
  if (type === 'start-step') parts.push({ type: 'step-start' });
  else if (type === 'text-start') parts.push({ type: 'text', text: '', state: 'streaming' });
  else if (type === 'reasoning-start') parts.push({ type: 'reasoning', id, text: '', state: 'streaming' });
  else if (type === 'text-delta' || type === 'reasoning-delta')
    last['text'] = (last['text'] as string) + (chunk['delta'] as string);
  else if (type === 'text-end' || type === 'reasoning-end') last['state'] = 'done';
  else if (type === 'tool-input-available') {
    const { toolName, input } = chunk;
    parts.push({ type: 'dynamic-tool', toolName, toolCallId, state: 'input-available', input });
  } else if (type === 'tool-approval-request')
    Object.assign(call, { state: 'approval-requested', approval: { id: approvalId } });
  else if (type === 'tool-approval-response')
    Object.assign(call, { state: 'approval-responded', approval: { id: approvalId, approved } });
  else if (type === 'tool-output-denied') call['state'] = 'output-denied';
  else if (type === 'tool-output-available')
    Object.assign(call, { state: 'output-available', output: chunk['output'] });
  else if (type === 'tool-output-error') Object.assign(call, { state: 'output-error', errorText: chunk['errorText'] });
  else if (/^(file|source|data)/.test(type)) parts.push(chunk);
}

const isAskedBy = ({ approval }: JsonObject, approvalId: unknown) =>
  approvalId !== undefined && (approval as { id?: unknown } | undefined)?.id === approvalId;
