import { CONFIRMATION_CALL } from '../../../agent/loop/confirmation.ts';
import type { Content, Part } from '../../../core/content.ts';
import { ConflictError, InvalidError } from '../../../core/errors.ts';
import type { Log } from '../../../platform/log.ts';
import type { RunInput } from './input.ts';
import { type AskedCall, toResponse } from '../open-calls.ts';
import { type Message, withOrigin } from './messages.ts';

type UserMessage = Extract<RunInput['messages'][number], { role: 'user' }>;
type ToolMessage = Extract<RunInput['messages'][number], { role: 'tool' }>;
type ResumeEntry = NonNullable<RunInput['resume']>[number];

/** The messages and open calls of a thread. */
interface Known {
  messages: readonly Message[];
  /** The paused invocation, and the calls that it waits for. */
  waiting: { invocationId: string; calls: AskedCall[] } | undefined;
}

/**
 * Returns what is new in an input: messages behind the last one that the thread has, and answers to calls that it waits
 * for. Whatever else a client says of calls is not believed.
 * @throws {InvalidError} where nothing is new. @throws {ConflictError} where a call would stay without an answer
 */
export function toNewContent(
  input: RunInput,
  { messages, waiting }: Known,
  log: Pick<Log, 'warn'>,
): { content: Content; resumed: string | undefined } {
  const fresh = listNew(input, new Set(messages.map((known) => known.id)));
  const tools = new Map(fresh.flatMap((each) => (each.role === 'tool' ? [[each.toolCallId, each]] : [])));
  const entries = new Map(input.resume?.map((entry) => [entry.interruptId, entry]));
  const calls = waiting?.calls ?? [];
  const answers = calls.flatMap((call) => toAnswer(call, entries.get(call.id), tools.get(call.id)) ?? []);
  const answered = new Set(answers.map(({ functionResponse }) => functionResponse?.id));
  // Who goes on talking leaves tools of the front end behind, but nothing that a person was asked.
  const missing = calls.filter((call) => !answered.has(call.id) && (answers.length > 0 || call.kind !== 'client'));
  if (missing.length > 0) {
    const ids = missing.map((call) => call.id).join(', ');
    throw new ConflictError(`The thread waits for answers to ${ids}: give or cancel all of them in one run.`);
  }
  const unknown = [...entries.keys(), ...tools.keys()].filter((callId) => !answered.has(callId));
  if (unknown.length > 0) log.warn({ threadId: input.threadId, unknown }, 'answers to calls that are not open');
  const said = fresh.flatMap((each) => (each.role === 'user' ? toParts(each) : []));
  const parts = [...answers, ...(said.length > 0 ? toContext(input) : []), ...said];
  if (parts.length === 0)
    throw new InvalidError('The input has nothing new: no user message and no answer that the thread lacks.');
  return { content: { role: 'user', parts }, resumed: answers.length > 0 ? waiting?.invocationId : undefined };
}

/** Returns the messages behind the last one of an agent or of the thread. */
function listNew({ messages }: RunInput, known: ReadonlySet<string>): (UserMessage | ToolMessage)[] {
  const last = messages.findLastIndex((each) => each.role === 'assistant' || known.has(each.id));
  return messages.slice(last + 1).flatMap((each) => (each.role === 'user' || each.role === 'tool' ? [each] : []));
}

function toAnswer(call: AskedCall, entry?: ResumeEntry, tool?: ToolMessage): Part | undefined {
  if (call.kind === 'client' && tool) {
    const said = typeof tool.content === 'string' ? tool.content : JSON.stringify(tool.content);
    const response = tool.error == null ? toResponse(said) : { error: tool.error, content: said };
    return withOrigin({ functionResponse: { id: call.id, name: call.name, response } }, { messageId: tool.id });
  }
  if (!entry) return undefined;
  const payload = entry.status === 'resolved' ? entry.payload : undefined;
  if (call.kind === 'confirmation') {
    const { approved, confirmed, payload: form } = (payload ?? {}) as Record<string, unknown>;
    const response = {
      confirmed: approved === true || confirmed === true,
      ...(form !== undefined && { payload: form }),
    };
    return { functionResponse: { id: call.id, name: CONFIRMATION_CALL, response } };
  }
  const response = entry.status === 'resolved' ? toResponse(payload) : { error: 'It was cancelled.' };
  return { functionResponse: { id: call.id, name: call.name, response } };
}

function toParts(said: UserMessage): Part[] {
  const parts = typeof said.content === 'string' ? [{ type: 'text' as const, text: said.content }] : said.content;
  return parts.flatMap((part) => {
    if (part.type === 'text') return part.text === '' ? [] : [withOrigin({ text: part.text }, { messageId: said.id })];
    const { type, value, mimeType: kind } = part.source;
    const media =
      type === 'data'
        ? { inlineData: { data: value, mimeType: kind } }
        : { fileData: { fileUri: value, mimeType: kind } };
    return [withOrigin(media, { messageId: said.id })];
  });
}

function toContext({ context }: RunInput): Part[] {
  if (!context?.length) return [];
  const lines = context.map(({ description, value }) => `- ${description}: ${value}`);
  return [withOrigin({ text: `The application says:\n${lines.join('\n')}` }, { isContext: true })];
}
