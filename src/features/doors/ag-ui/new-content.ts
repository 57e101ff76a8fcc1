import { readDataUrl } from '../../../core/base64.ts';
import type { Content, JsonObject, Part } from '../../../core/content.ts';
import { InvalidError } from '../../../core/errors.ts';
import type { Log } from '../../../platform/log.ts';
import type { RunInput } from './input.ts';
import { answerAll, type ExternalCall, toAnswerText, toResponse } from '../open-calls.ts';
import { type Message, withMessageId } from './messages.ts';

type UserMessage = Extract<RunInput['messages'][number], { role: 'user' }>;
type ToolMessage = Extract<RunInput['messages'][number], { role: 'tool' }>;
type UserPart = Exclude<UserMessage['content'], string>[number];
type MediaSource = Extract<UserPart, { source: unknown }>['source'];
type BinaryPart = Extract<UserPart, { type: 'binary' }>;
type ResumeEntry = NonNullable<RunInput['resume']>[number];

/**
 * Extracts what is new in an input: messages after the last one that the thread has, and answers to its open calls.
 * Everything else that a client claims about calls is ignored.
 * @throws {InvalidError} if nothing is new. @throws {ConflictError} if a call would stay without an answer
 */
export function toNewContent(
  input: RunInput,
  messages: readonly Message[],
  paused: { invocationId: string; calls: ExternalCall[] } | undefined,
  log: Pick<Log, 'warn'>,
): { content: Content; resumedId: string | undefined } {
  const threadIds = new Set(messages.map(({ id }) => id));
  const newMessages = input.messages.slice(
    input.messages.findLastIndex(({ id, role }) => role === 'assistant' || threadIds.has(id)) + 1,
  );
  const tools = new Map(newMessages.flatMap((each) => (each.role === 'tool' ? [[each.toolCallId, each]] : [])));
  const entries = new Map(input.resume?.map((entry) => [entry.interruptId, entry]));
  const calls = paused?.calls ?? [];
  const answers = answerAll(calls, (call) => toAnswer(call, entries.get(call.id), tools.get(call.id)));
  const resumedId = answers.length > 0 ? paused?.invocationId : undefined;
  const open = new Set(calls.map(({ id }) => id));
  const unknown = [...entries.keys(), ...tools.keys()].filter((id) => !open.has(id));
  if (unknown.length > 0) log.warn({ threadId: input.threadId, unknown }, 'answers to calls that are not open');
  const userParts = newMessages.flatMap((each) => (each.role === 'user' ? toParts(each) : []));
  const answerParts = answers.map((part) => {
    const tool = tools.get(part.functionResponse?.id ?? '');
    return tool ? withMessageId(part, tool.id) : part;
  });
  const parts = [...answerParts, ...(userParts.length > 0 ? toContext(input) : []), ...userParts];
  if (parts.length === 0)
    throw new InvalidError('The input has nothing new: no user message and no answer that the thread lacks.');
  return { content: { role: 'user', parts }, resumedId };
}

function toAnswer({ kind }: ExternalCall, entry?: ResumeEntry, tool?: ToolMessage): JsonObject | undefined {
  if (kind === 'client' && tool) {
    const text = toAnswerText(tool.content);
    return tool.error == null ? toResponse(text) : { error: tool.error, content: text };
  }
  if (!entry) return undefined;
  const payload = entry.status === 'resolved' ? entry.payload : undefined;
  if (kind === 'confirmation') {
    const { approved, confirmed, payload: form } = (payload ?? {}) as JsonObject;
    return { confirmed: approved === true || confirmed === true, ...(form !== undefined && { payload: form }) };
  }
  return entry.status === 'resolved' ? toResponse(payload) : { error: 'It was cancelled.' };
}

function toParts({ id, content }: UserMessage): Part[] {
  const parts = typeof content === 'string' ? [{ type: 'text' as const, text: content }] : content;
  return parts.flatMap((part) => {
    if (part.type === 'text') return part.text === '' ? [] : [withMessageId({ text: part.text }, id)];
    return [withMessageId(part.type === 'binary' ? toBinary(part) : toMedia(part.source), id)];
  });
}

function toMedia({ type, value, mimeType }: MediaSource): Part {
  if (type === 'data') return { inlineData: { data: value, mimeType } };
  const data = readDataUrl(value);
  if (data) return { inlineData: { ...data, mimeType: mimeType ?? data.mimeType } };
  return { fileData: { fileUri: value, mimeType } };
}

function toBinary({ data, url, mimeType, filename }: BinaryPart): Part {
  const nameMember = filename ? { displayName: filename } : {};
  const { inlineData, fileData } = toMedia(
    data ? { type: 'data', value: data, mimeType } : { type: 'url', value: url ?? '', mimeType },
  );
  return inlineData ? { inlineData: { ...inlineData, ...nameMember } } : { fileData: { ...fileData, ...nameMember } };
}

function toContext({ context }: RunInput): Part[] {
  if (!context?.length) return [];
  const lines = context.map(({ description, value }) => `- ${description}: ${value}`);
  return [withMessageId({ text: `The application says:\n${lines.join('\n')}` })];
}
