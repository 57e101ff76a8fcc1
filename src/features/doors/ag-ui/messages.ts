import { CONFIRMATION_CALL } from '../../../agent/loop/confirmation.ts';
import {
  type FunctionResponse,
  getFunctionCalls,
  getFunctionResponses,
  getParts,
  type Part,
} from '../../../core/content.ts';
import { type Event, withoutRewound } from '../../../core/event.ts';
import { isProvisional } from '../open-calls.ts';
import { joinTexts } from '../text-cutter.ts';

/** A message of AG-UI, with its id. */
export interface Message {
  id: string;
  role: 'user' | 'assistant' | 'reasoning' | 'tool';
  content?: string | object[];
  toolCalls?: { id: string; type: 'function'; function: { name: string; arguments: string } }[];
  toolCallId?: string;
  error?: string;
}

/** Member of a part's notes that has the id of the client's message. */
const NOTE = 'agUiMessage';
/** In place of an id: what the application tells the model is in no message. */
const NO_MESSAGE = '';

/** Returns a part with the id of the message that it is of [none: no message shows it]. */
export const withMessageId = (part: Part, messageId = NO_MESSAGE): Part => ({
  ...part,
  partMetadata: { [NOTE]: messageId },
});

/** Returns the history of a thread as its front end shows it. */
export const toMessages = (events: readonly Event[]): Message[] => withoutRewound([...events]).flatMap(toEventMessages);

/** Returns the messages in an event. */
export const toEventMessages = (event: Event): Message[] =>
  event.author === 'user' ? toUserMessages(event) : toAgentMessages(event);

/** Most messages of a snapshot, and their characters as JSON: a snapshot is one frame. */
const MAX_MESSAGES = 1_000;
const MAX_CHARACTERS = 4_194_304;

/** Returns the newest of some messages as a snapshot has them, and how many it leaves out. */
export function toNewest(messages: Message[]): { newest: Message[]; omitted: number } {
  let characters = 0;
  const isOver = (message: Message) => (characters += JSON.stringify(message).length) > MAX_CHARACTERS;
  const last = messages.slice(-MAX_MESSAGES);
  const from = last.findLastIndex((message, place) => isOver(message) && place < last.length - 1) + 1;
  // No answer of a tool without its call.
  const begin = last.findIndex(({ role }, place) => place >= from && role !== 'tool');
  const newest = begin < 0 ? [] : last.slice(begin);
  return { newest, omitted: messages.length - newest.length };
}

/** Returns the messages in what a user says: as the client sent them, where it came through this door. */
function toUserMessages({ id: eventId, content }: Event): Message[] {
  const byId = Map.groupBy(getParts(content), ({ partMetadata: notes }) => {
    const given = notes?.[NOTE];
    return typeof given === 'string' ? given : (eventId ?? '');
  });
  return [...byId].flatMap(([id, parts]) => {
    const answers = parts.flatMap(({ functionResponse: answer }) =>
      answer && answer.name !== CONFIRMATION_CALL
        ? toToolMessage(eventId, answer, id === eventId ? undefined : id)
        : [],
    );
    const said = parts.flatMap((part) => toContentPart(part) ?? []);
    const [only, ...others] = said;
    if (!only || id === NO_MESSAGE) return answers;
    return [
      ...answers,
      { id, role: 'user', content: others.length === 0 && only.text !== undefined ? only.text : said },
    ];
  });
}

/** A part of what a user says. */
type ContentPart = { type: string; text?: string; source?: object };

function toContentPart({ text, inlineData, fileData }: Part): ContentPart | undefined {
  if (text) return { type: 'text', text };
  const mimeType = (inlineData ?? fileData)?.mimeType ?? '';
  const kind = /^(image|audio|video)\//.exec(mimeType)?.[1] ?? 'document';
  if (inlineData?.data) return { type: kind, source: { type: 'data', value: inlineData.data, mimeType } };
  if (!fileData?.fileUri) return undefined;
  return { type: kind, source: { type: 'url', value: fileData.fileUri, ...(mimeType !== '' && { mimeType }) } };
}

/** Returns the id of a text of an event. */
export const toTextId = (eventId: string, part: number): string => `${eventId}.${part}`;

/** Returns the messages of an agent: its last text has the calls. One that asks for a confirmation is an interrupt. */
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
