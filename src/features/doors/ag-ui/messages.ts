import { CONFIRMATION_CALL } from '../../../core/names.ts';
import {
  type FunctionResponse,
  getFunctionCalls,
  getFunctionResponses,
  getParts,
  type Part,
} from '../../../core/content.ts';
import { type Event, getResult, withoutRewound } from '../../../core/event.ts';
import { isProvisional } from '../open-calls.ts';
import { joinTexts } from '../text-cutter.ts';

export interface Message {
  id: string;
  role: 'user' | 'assistant' | 'reasoning' | 'tool';
  /** Of a message that an agent in the background has sent: that agent. */
  name?: string;
  content?: string | object[];
  toolCalls?: { id: string; type: 'function'; function: { name: string; arguments: string } }[];
  toolCallId?: string;
  error?: string;
}

/** Key in a part's `partMetadata` under which the id of the client's message is stored. */
const NOTE = 'agUiMessage';
/** Marks a part that belongs to no message, such as the context that the application gives the model. */
const NO_MESSAGE = '';

export const withMessageId = (part: Part, messageId = NO_MESSAGE): Part => ({
  ...part,
  partMetadata: { [NOTE]: messageId },
});

export const toMessages = (events: readonly Event[]): Message[] => withoutRewound([...events]).flatMap(toEventMessages);

export const toEventMessages = (event: Event): Message[] =>
  event.author === 'user' ? toUserMessages(event) : toAgentMessages(event);

/** Maximum messages in a snapshot, and characters of their JSON, because a snapshot is sent as one frame. */
const MAX_MESSAGES = 1_000;
const MAX_CHARACTERS = 4_194_304;

/** Returns the newest messages that fit into a snapshot, and the number of omitted messages. */
export function toNewest(messages: Message[]): { newest: Message[]; omitted: number } {
  let characters = 0;
  const isOver = (message: Message) => (characters += JSON.stringify(message).length) > MAX_CHARACTERS;
  const last = messages.slice(-MAX_MESSAGES);
  const from = last.findLastIndex((message, place) => isOver(message) && place < last.length - 1) + 1;
  // A snapshot must not start with a tool's answer whose call is missing.
  const begin = last.findIndex(({ role }, place) => place >= from && role !== 'tool');
  const newest = begin < 0 ? [] : last.slice(begin);
  return { newest, omitted: messages.length - newest.length };
}

/** User messages that an AG-UI client sent are restored as the client sent them. */
function toUserMessages(event: Event): Message[] {
  const { id: eventId, content } = event;
  const name = getResult(event)?.agent;
  const byId = Map.groupBy(getParts(content), ({ partMetadata: notes }) => {
    const messageId = notes?.[NOTE];
    return typeof messageId === 'string' ? messageId : (eventId ?? '');
  });
  return [...byId].flatMap(([id, parts]) => {
    const answers = parts.flatMap(({ functionResponse: answer }) =>
      answer && answer.name !== CONFIRMATION_CALL
        ? toToolMessage(eventId, answer, id === eventId ? undefined : id)
        : [],
    );
    const contentParts = parts.flatMap((part) => toContentPart(part) ?? []);
    const [only, ...others] = contentParts;
    if (!only || id === NO_MESSAGE) return answers;
    return [
      ...answers,
      {
        id,
        role: 'user',
        ...(name !== undefined && { name }),
        content: others.length === 0 && only.text !== undefined ? only.text : contentParts,
      },
    ];
  });
}

type ContentPart = { type: string; text?: string; source?: object };

function toContentPart({ text, inlineData, fileData }: Part): ContentPart | undefined {
  if (text) return { type: 'text', text };
  const mimeType = (inlineData ?? fileData)?.mimeType ?? '';
  const kind = /^(image|audio|video)\//.exec(mimeType)?.[1] ?? 'document';
  if (inlineData?.data) return { type: kind, source: { type: 'data', value: inlineData.data, mimeType } };
  if (!fileData?.fileUri) return undefined;
  return { type: kind, source: { type: 'url', value: fileData.fileUri, ...(mimeType !== '' && { mimeType }) } };
}

export const toTextId = (eventId: string, part: number): string => `${eventId}.${part}`;

/** An event's calls are attached to the message of its last text. A request for confirmation becomes an interrupt. */
function toAgentMessages(event: Event): Message[] {
  const { id: eventId, content, longRunningToolIds } = event;
  const messages: Message[] = joinTexts(content).map(({ isThought, text }, part) => ({
    id: toTextId(eventId ?? '', part),
    role: isThought ? 'reasoning' : 'assistant',
    content: text,
  }));
  const calls = getFunctionCalls(content).filter(
    ({ id, name }) => name !== CONFIRMATION_CALL || !longRunningToolIds?.includes(id ?? ''),
  );
  const toolCalls = calls.map(({ id, name, args }) => ({
    id: id ?? '',
    type: 'function' as const,
    function: { name: name ?? '', arguments: JSON.stringify(args ?? {}) },
  }));
  const last = messages.at(-1);
  if (toolCalls.length > 0 && last?.role === 'assistant') last.toolCalls = toolCalls;
  else if (toolCalls.length > 0)
    messages.push({ id: toTextId(eventId ?? '', messages.length), role: 'assistant', toolCalls });
  const results = getFunctionResponses(content).filter(({ id }) => !isProvisional(event, id));
  return [...messages, ...results.map((response) => toToolMessage(eventId, response))];
}

function toToolMessage(
  eventId: string | null | undefined,
  { id: callId, response }: FunctionResponse,
  id = `${eventId}.${callId}`,
): Message {
  const { result, error } = response ?? {};
  const isText = typeof result === 'string' && Object.keys(response ?? {}).length === 1;
  const content = isText ? result : JSON.stringify(response ?? {});
  const message = { id, role: 'tool' as const, toolCallId: callId ?? '', content };
  return typeof error === 'string' ? { ...message, error } : message;
}
