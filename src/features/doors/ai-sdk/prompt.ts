import type { z } from 'zod';
import { readDataUrl } from '../../../core/base64.ts';
import type { Content, JsonObject, Part } from '../../../core/content.ts';
import { ConflictError, NotFoundError } from '../../../core/errors.ts';
import type { SessionKey } from '../../../core/session.ts';
import { listInvocationEvents } from '../../../conversation/sessions/event-store.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { type invocationHeaders, invocationNotFound } from '../../../invocations/wire-request.ts';
import type { Database } from '../../../platform/db/database.ts';
import { requireScope } from '../../../platform/http/access/authorize.ts';
import type { Call } from '../../../platform/http/operation/operation.ts';
import { ValidationFailedError, valueError } from '../../../platform/http/operation/request-errors.ts';
import { begin } from '../door.ts';
import { type doorQuery, toDoorKey } from '../door-user.ts';
import { answerCalls, isOpen, listExternalCalls, toResponse } from '../open-calls.ts';
import type { AiVersion } from './chunks.ts';
import { sendRun } from './read-chat.ts';
import type { Chat } from './schemas.ts';

type SentPart = Chat['messages'][number]['parts'][number];

const refuse = (text: string, input: unknown, ...loc: (string | number)[]) =>
  new ValidationFailedError([valueError(['body', ...loc], text, input)]);

type ChatCall = Call<
  { appName: string },
  z.output<typeof doorQuery> & { version: AiVersion },
  z.output<typeof invocationHeaders>,
  Chat
>;

/** Runs the last message, a prompt or answers to open calls, and streams the run. */
export async function answerChat(context: InvocationContext, { path, body, ...call }: ChatCall) {
  const prompt = toPrompt(body);
  const key = toDoorKey({ ...path, sessionId: body.id || context.newId() }, call);
  const answers = prompt ? undefined : await toAnswers(context.database.db, key, body);
  const { invocationId: resumedId, content = prompt, answeredCallId } = answers ?? {};
  // An earlier request gave the answer, so this one runs nothing and only reads.
  if (!content) requireScope(call.principal, { scope: 'read', because: 'the answer was given before.' });
  const turn = content && { content, resumedId, overrides: {} };
  const ref = await begin({ ...call, context }, turn ? { key, turn } : { key, invocationId: resumedId ?? '' });
  return sendRun(context, { ...ref, answeredCallId }, call.query, call.response);
}

/** Answers to calls of a paused invocation. `content` is absent if an earlier request has answered the calls. */
interface Answers {
  invocationId: string;
  answeredCallId: string;
  content?: Content;
}

/** The last message's prompt, if it is the user's. @throws {ValidationFailedError} if something is not supported */
function toPrompt({ messages, trigger, messageId }: Chat): Content | undefined {
  const at = ['messages', messages.length - 1];
  const last = messages.at(-1);
  if (trigger === 'regenerate-message')
    throw refuse('an answer is not made again: rewind the session, and send the prompt', trigger, 'trigger');
  if (last?.role === 'system') throw refuse('the instruction is that of the deployed agent', last.role, ...at, 'role');
  if (!last || last.role === 'assistant') return undefined;
  if (messageId != null)
    throw refuse('a message is not changed: rewind the session to before it, and send it', messageId, 'messageId');
  if (last.parts.length === 0) throw refuse('a message says something', [], ...at, 'parts');
  // Ignores `data-` parts: they are meant for the web page, and the AI SDK does not send them to a model either.
  const parts = last.parts.flatMap((part, index) =>
    part.type.startsWith('data-') ? [] : toPart(part, [...at, 'parts', index]),
  );
  if (parts.length === 0) throw refuse('a message says something beside `data-` parts', last.parts, ...at, 'parts');
  return { role: 'user', parts };
}

function toPart(part: SentPart, at: (string | number)[]): Part {
  const { type, text, url, mediaType: mimeType, filename } = part as JsonObject;
  if (type === 'text' && typeof text === 'string') return { text };
  if (type !== 'file' || typeof url !== 'string' || typeof mimeType !== 'string')
    throw refuse('the user sends parts `text` with a text, and `file` with an url and a mediaType', part, ...at);
  const fileMembers = { mimeType, ...(typeof filename === 'string' ? { displayName: filename } : {}) };
  if (!url.startsWith('data:')) return { fileData: { fileUri: url, ...fileMembers } };
  const dataUrl = readDataUrl(url);
  if (!dataUrl) throw refuse('a data URL holds base64', undefined, ...at, 'url');
  return { inlineData: { data: dataUrl.data, ...fileMembers } };
}

/**
 * Name and arguments of a call are taken from the store, because a client may only answer a call.
 * @throws {ConflictError} if no call waits for the answers. @throws {ValidationFailedError} if a call is not answered
 */
async function toAnswers(db: Database, key: SessionKey, { messages }: Chat): Promise<Answers> {
  const message = messages.at(-1);
  const invocationId = message?.id ?? '';
  const events = await listInvocationEvents(db, key, invocationId);
  if (events.length === 0) throw new NotFoundError(invocationNotFound(invocationId));
  const answers = new Map((message?.parts ?? []).flatMap(toAnswer));
  const calls = listExternalCalls(events);
  const open = calls.filter(isOpen);
  const { parts, missing } = answerCalls(open, ({ id }) => answers.get(id));
  const [first] = open;
  if (first && missing.length === 0)
    return { invocationId, answeredCallId: first.id, content: { role: 'user', parts } };
  if (parts.length > 0)
    throw refuse(`these calls wait too: ${missing.join(', ')}`, undefined, 'messages', messages.length - 1, 'parts');
  // Another tab or the first attempt of a retry gave the answers before: the client gets their result.
  const before = calls.findLast(({ id, answeredBy }) => answers.has(id) && answeredBy === 'user');
  if (!before) throw new ConflictError('Nothing waits for an answer of this message.');
  return { invocationId, answeredCallId: before.id };
}

function toAnswer(part: SentPart): [callId: string, response: JsonObject][] {
  const { state, toolCallId, approval, output, errorText } = part as JsonObject;
  const { id, approved, reason } = (approval ?? {}) as JsonObject;
  if (state === 'approval-responded' && typeof id === 'string')
    return [[id, { confirmed: approved === true, ...(typeof reason === 'string' ? { reason } : {}) }]];
  if (typeof toolCallId !== 'string') return [];
  if (state === 'output-error') return [[toolCallId, { error: errorText ?? 'The tool failed.' }]];
  return state === 'output-available' ? [[toolCallId, toResponse(output)]] : [];
}
