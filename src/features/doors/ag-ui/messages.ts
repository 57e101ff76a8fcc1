import { CONFIRMATION_CALL } from '../../../agent/loop/confirmation.ts';
import {
  type FunctionCall,
  getFunctionCalls,
  getFunctionResponses,
  getParts,
  type Part,
} from '../../../core/content.ts';
import { type Event, withoutRewound } from '../../../core/event.ts';
import type { SessionHistory } from '../../../conversation/sessions/history-store.ts';
import { type AskedCall, isProvisional, listAskedCalls } from '../open-calls.ts';
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

/** Member of a part's notes that says from where it came. */
const NOTE = 'agUi';

/** The origin of a part: the message of the client, or what its application tells the model beside that. */
type Origin = { messageId: string } | { isContext: true };

/** Returns a part with its origin. */
export const withOrigin = (part: Part, origin: Origin): Part => ({ ...part, partMetadata: { [NOTE]: origin } });

const toOrigin = ({ partMetadata }: Part) =>
  (partMetadata?.[NOTE] ?? {}) as { messageId?: string | undefined; isContext?: boolean };

/** Returns the history of a thread as its front end shows it. */
export const toMessages = (events: readonly Event[]): Message[] =>
  withoutRewound([...events]).flatMap((event) =>
    event.author === 'user' ? toUserMessages(event) : toAgentMessages(event),
  );

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
export function toUserMessages({ id, content }: Event): Message[] {
  const messages: (Message & { content: object[] })[] = [];
  const answers: Message[] = [];
  for (const part of getParts(content)) {
    const { messageId, isContext } = toOrigin(part);
    const response = part.functionResponse;
    if (response && response.name !== CONFIRMATION_CALL)
      answers.push({ ...toToolMessage(id, response), ...(messageId !== undefined && { id: messageId }) });
    const shown = isContext ? undefined : toContentPart(part);
    if (!shown) continue;
    const last = messages.at(-1);
    if (last && last.id === (messageId ?? id)) last.content.push(shown);
    else messages.push({ id: messageId ?? id ?? '', role: 'user', content: [shown] });
  }
  return [...answers, ...messages.map(simplify)];
}

/** Texts go as a string where nothing else is there. */
const simplify = (message: Message & { content: object[] }): Message => {
  const [only, ...others] = message.content as { type: string; text?: string }[];
  return others.length === 0 && only?.text !== undefined ? { ...message, content: only.text } : message;
};

function toContentPart({ text, inlineData, fileData }: Part): object | undefined {
  if (text) return { type: 'text', text };
  const mimeType = (inlineData ?? fileData)?.mimeType ?? '';
  const kind = /^(image|audio|video)\//.exec(mimeType)?.[1] ?? 'document';
  if (inlineData?.data) return { type: kind, source: { type: 'data', value: inlineData.data, mimeType } };
  if (!fileData?.fileUri) return undefined;
  return { type: kind, source: { type: 'url', value: fileData.fileUri, ...(mimeType !== '' && { mimeType }) } };
}

/** Returns the id of a text of an event. */
export const toTextId = (eventId: string, part: number): string => `${eventId}.${part}`;

/** Returns the id of the message that has an event's calls: that of its last text, where it is an answer. */
export function toCallerId({ id = '', content }: Event): string {
  const texts = joinTexts(content);
  return toTextId(id ?? '', texts.at(-1)?.isThought === false ? texts.length - 1 : texts.length);
}

/** Returns the calls of an event that a front end sees: what asks for a confirmation is an interrupt instead. */
export const shownCalls = ({ content, longRunningToolIds }: Event): FunctionCall[] =>
  getFunctionCalls(content).filter(
    ({ id, name }) => name !== CONFIRMATION_CALL || !longRunningToolIds?.includes(id ?? ''),
  );

/** Returns the answers to calls in an event, without those that hold the place of a confirmation. */
export const shownResults = (event: Event): Message[] =>
  getFunctionResponses(event.content)
    .filter(({ id }) => !isProvisional(event, id))
    .map((response) => toToolMessage(event.id, response));

/** Returns the arguments of a call as the text that a model wrote. */
export const toArguments = ({ args }: FunctionCall): string => JSON.stringify(args ?? {});

function toToolMessage(eventId: string | null | undefined, answer: ReturnType<typeof getFunctionResponses>[number]) {
  const { id, response } = answer;
  const { result, error } = response ?? {};
  const isText = typeof result === 'string' && Object.keys(response ?? {}).length === 1;
  const message: Message = {
    id: `${eventId}.${id}`,
    role: 'tool',
    toolCallId: id ?? '',
    content: isText ? result : JSON.stringify(response ?? {}),
  };
  return typeof error === 'string' ? { ...message, error } : message;
}

function toAgentMessages(event: Event): Message[] {
  const messages: Message[] = joinTexts(event.content).map(({ isThought, text }, part) => ({
    id: toTextId(event.id ?? '', part),
    role: isThought ? 'reasoning' : 'assistant',
    content: text,
  }));
  const calls = shownCalls(event);
  if (calls.length > 0) {
    const id = toCallerId(event);
    const toolCalls = calls.map((call) => ({
      id: call.id ?? '',
      type: 'function' as const,
      function: { name: call.name ?? '', arguments: toArguments(call) },
    }));
    const speaker = messages.find((message) => message.id === id);
    if (speaker) speaker.toolCalls = toolCalls;
    else messages.push({ id, role: 'assistant', toolCalls });
  }
  return [...messages, ...shownResults(event)];
}

/** Returns the last invocation of a session that has calls which wait, and these; `undefined` where there is none. */
export function findWaiting({
  events,
  runtimeEventIds,
}: SessionHistory): { invocationId: string; calls: AskedCall[] } | undefined {
  const isOwn = ({ id, author }: Event) => author !== 'user' && runtimeEventIds.has(id ?? '');
  const waiting = listAskedCalls(withoutRewound(events), isOwn).filter(({ answeredBy }) => !answeredBy);
  const invocationId = waiting.at(-1)?.invocationId;
  if (invocationId === undefined) return undefined;
  return { invocationId, calls: waiting.filter((call) => call.invocationId === invocationId) };
}
