import type { JsonObject } from '../../../core/content.ts';
import { TooLargeError } from '../../../core/errors.ts';
import { type Event, isSteer, withoutRewound } from '../../../core/event.ts';
import type { SessionKey } from '../../../core/session.ts';
import { type FollowedEvent, listEventsAfter } from '../../../conversation/sessions/event-store.ts';
import type { Database } from '../../../platform/db/database.ts';
import { readWhole } from '../turn.ts';
import { type AiVersion, ChunkWriter, toMessageId, toMetadata, toUserParts, type UiChunk } from './chunks.ts';
import { parseExactJson } from '../../../core/exact-json.ts';

/** Maximum number of events per read. A read returns fewer if it reaches its byte limit. */
const PAGE = 100;
/** Maximum number of characters of an invocation's events, because all events of an invocation become one message. */
const MAX_CHARACTERS = 16_777_216;

interface UiMessage {
  id: string;
  role: 'user' | 'assistant';
  parts: JsonObject[];
  /** Of a message that an agent in the background has sent: whose result it is. */
  metadata?: { result: JsonObject };
}

/**
 * Lists messages after a sequence: about 100 events, in whole invocations; `undefined` without the session.
 * @throws {TooLargeError} if an invocation is too large for a message
 */
export async function listMessages(
  db: Database,
  key: SessionKey,
  after: number,
  version: AiVersion,
): Promise<{ messages: UiMessage[]; next: number | undefined } | undefined> {
  const events: FollowedEvent[] = [];
  for (;;) {
    const page = await listEventsAfter(db, key, events.at(-1)?.sequence ?? after, PAGE);
    if (!page) return undefined;
    events.push(...page.events);
    const last = events.at(-1);
    if (!last || last.sequence >= page.lastSequence) return { messages: toMessages(events, version), next: undefined };
    const whole = events.slice(0, events.findLastIndex(({ invocationId }) => invocationId !== last.invocationId) + 1);
    if (whole.length > 0) return { messages: toMessages(whole, version), next: whole.at(-1)?.sequence };
    if (events.reduce((sum, { text }) => sum + text.length, 0) > MAX_CHARACTERS)
      throw new TooLargeError(`Invocation ${last.invocationId} is too large for a message: read its events.`);
  }
}

function toMessages(followedEvents: FollowedEvent[], version: AiVersion): UiMessage[] {
  const messages: UiMessage[] = [];
  const answers = new Map<string, { parts: JsonObject[]; writer: ChunkWriter }>();
  const begun = new Map<string, string>();
  for (const event of withoutRewound(followedEvents.map(({ text }) => parseExactJson(text) as Event))) {
    const { id, invocationId, author, content } = event;
    const userParts = author === 'user' ? toUserParts(content) : [];
    const steers = isSteer(event);
    const turnId = invocationId ?? '';
    if (userParts.length > 0)
      messages.push({
        id: steers ? toMessageId(id) : (id ?? ''),
        role: 'user',
        parts: userParts,
        ...toMetadata(event),
      });
    // What answers a message that steered has the id of the invocation that its request began, as in its stream.
    if (steers) {
      begun.set(turnId, id ?? '');
      answers.delete(turnId);
    }
    let answer = answers.get(turnId);
    if (!answer && author !== 'user') {
      answer = { parts: [], writer: new ChunkWriter(version) };
      answers.set(turnId, answer);
      messages.push({ id: begun.get(turnId) ?? turnId, role: 'assistant', parts: answer.parts });
    }
    for (const step of answer ? readWhole(event) : [])
      for (const chunk of answer?.writer.take(step) ?? []) addChunk(answer?.parts ?? [], chunk);
  }
  return messages;
}

/** Adds the content of a chunk to the parts of a message, as the AI SDK's client does. */
function addChunk(parts: JsonObject[], chunk: UiChunk): void {
  const { type, id, toolName, toolCallId, input, output, errorText, approvalId, approved } = chunk;
  const last = parts.at(-1) ?? {};
  const isForApproval = ({ approval }: JsonObject) => (approval as { id?: unknown } | undefined)?.id === approvalId;
  const isForCall = (part: JsonObject) => part['toolCallId'] === toolCallId;
  const change = (members: JsonObject) =>
    void Object.assign(parts.findLast(toolCallId === undefined ? isForApproval : isForCall) ?? {}, members);
  if (type === 'start-step') parts.push({ type: 'step-start' });
  else if (type === 'text-start') parts.push({ type: 'text', text: '', state: 'streaming' });
  else if (type === 'reasoning-start') parts.push({ type: 'reasoning', id, text: '', state: 'streaming' });
  else if (type.endsWith('-delta')) last['text'] = `${last['text'] as string}${chunk['delta'] as string}`;
  else if (type.endsWith('-end')) last['state'] = 'done';
  else if (type === 'tool-input-available')
    parts.push({ type: 'dynamic-tool', toolName, toolCallId, state: 'input-available', input });
  else if (type === 'tool-approval-request') change({ state: 'approval-requested', approval: { id: approvalId } });
  else if (type === 'tool-approval-response')
    change({ state: 'approval-responded', approval: { id: approvalId, approved } });
  else if (type === 'tool-output-denied') change({ state: 'output-denied' });
  else if (type === 'tool-output-available') change({ state: 'output-available', output });
  else if (type === 'tool-output-error') change({ state: 'output-error', errorText });
  else if (/^(file|source|data)/.test(type)) parts.push(chunk);
}
