import { type Event, withoutRewound } from '../../../core/event.ts';
import { getFunctionResponses, type JsonObject, type Part } from '../../../core/content.ts';
import { HandedOverError } from '../../../core/errors.ts';
import { identifierSchema, type SessionKey } from '../../../core/session.ts';
import type { Answer } from '../../../platform/http/operation/operation.ts';
import { newInvocationId } from '../../../invocations/context.ts';
import { invoke } from '../../../invocations/invoke.ts';
import { disconnectSignal, toInvocationOptions } from '../../../invocations/request.ts';
import { sendEvents } from '../start-turn.ts';
import { readWhole } from '../turn.ts';
import { RequestError } from './errors.ts';
import { type ResponseRef, toResponseId } from './ids.ts';
import { type Said, toChatTimeline } from './input.ts';
import { readEvents } from './read.ts';
import type { ChatRequest } from './schemas.ts';
import {
  deleteTemporary,
  type OpenAiCall,
  type OpenAiContext,
  prepareAnswer,
  startAnswer,
  toOverrides,
} from './start.ts';
import { type ResponseEvent, ResponseWriter } from './writer.ts';

/** Headers by which front ends name a conversation. */
type ChatHeaders = { [Name in 'x-session-id' | 'x-openwebui-chat-id']?: string | undefined };

/** Why a completion ends, by the reason for which a response is incomplete. */
const CUT_SHORT: Record<string, string> = { max_output_tokens: 'length', content_filter: 'content_filter' };

/**
 * Answers a request of the Chat Completions API. It runs in the session that it names, where the messages go on with
 * what that has; else aside, in a session that goes with the answer: what a front end asks beside a conversation, such
 * as for its title, leaves nothing in it.
 */
export async function completeChat(
  context: OpenAiContext,
  { body, userId, ...call }: { body: ChatRequest; userId: string; headers: ChatHeaders } & OpenAiCall,
): Promise<Answer> {
  const { n } = body as ChatRequest & JsonObject;
  if (n != null && n !== 1) throw new RequestError('There is one answer: leave `n` out.', { param: 'n' });
  const timeline = toChatTimeline(body.messages);
  const found = await findChat(
    context,
    { appName: body.model, userId },
    toSessionName(call.headers, body.metadata),
    timeline,
  );
  const isTemporary = found === undefined;
  const isStream = body.stream === true;
  const asked = {
    timeline: isTemporary ? timeline : timeline.slice(-1),
    param: 'messages',
    key: found?.key,
    ...(found && { createSession: true, isAbsent: found.isAbsent }),
    appName: body.model,
    userId,
    overrides: toOverrides(body),
    streaming: isStream,
    isTemporary,
    requested: body,
    note: (parts: Part[]) => parts,
  };
  // Nobody comes back for an answer that is whole at its end, unless with the key of its request.
  if (!isStream && call.headers['idempotency-key'] === undefined) {
    const prepared = await prepareAnswer(context, asked, call);
    try {
      return await answerHere(context, { ...prepared, isTemporary }, call);
    } finally {
      if (isTemporary) await deleteTemporary(context, prepared.ref);
    }
  }
  const ref = await startAnswer(context, asked, call);
  try {
    return await (isStream ? sendChunks(context, ref, body, call) : answerWhole(context, ref, call));
  } finally {
    if (isTemporary) await deleteTemporary(context, ref);
  }
}

/** Finds the session to go on with: one with as many prompts as the messages have before the last. */
async function findChat(
  context: OpenAiContext,
  user: Omit<SessionKey, 'sessionId'>,
  named: string | undefined,
  timeline: Said[],
): Promise<{ key: SessionKey; isAbsent: boolean } | undefined> {
  const { data: sessionId } = identifierSchema.safeParse(named);
  if (sessionId === undefined) return undefined;
  const key = { ...user, sessionId };
  const history = await context.histories.find(context.database.db, key);
  const isPrompt = ({ author, content }: Event) => author === 'user' && getFunctionResponses(content).length === 0;
  const stored = withoutRewound([...(history?.events ?? [])]).filter(isPrompt).length;
  const isSaid = ({ by, parts }: Said) => by === 'user' && parts.every(({ functionResponse }) => !functionResponse);
  const last = timeline.at(-1);
  const said = timeline.filter(isSaid).length - (last && isSaid(last) ? 1 : 0);
  return stored === said ? { key, isAbsent: !history } : undefined;
}

/** Answers in this process, as long as its client waits. */
async function answerHere(
  context: OpenAiContext,
  { ref: { key, answered }, turn, isTemporary }: Awaited<ReturnType<typeof prepareAnswer>> & { isTemporary: boolean },
  { headers, response }: OpenAiCall,
): Promise<Answer> {
  const { requested, resumed, ...run } = turn;
  const invocationId = resumed ?? newInvocationId(context);
  const ref = { key, invocationId, answered };
  const [writer, chunks] = [new ResponseWriter(ref), new ChatWriter(ref)];
  const take = (events: Iterable<ResponseEvent>) => {
    for (const event of events) chunks.take(event);
  };
  response.setHeader('x-invocation-id', invocationId);
  const request = {
    createSession: false,
    ...run,
    key,
    invocationId,
    resumes: resumed !== undefined,
    streaming: false,
    // Nobody finds what a client left that named no session.
    signal: disconnectSignal({ cancelOnDisconnect: isTemporary || context.cancelOnDisconnect }, response),
    ...toInvocationOptions(headers, [key, requested]),
  };
  const { error, paused } = await invoke(context, request, ({ text }) => {
    for (const step of readWhole(JSON.parse(text) as Event)) take(writer.take(step));
  });
  const isStopped = error?.code === 'cancelled' || error?.code === 'interrupted';
  const status = isStopped ? 'cancelled' : error ? 'failed' : paused ? 'paused' : 'succeeded';
  take(writer.end({ status, ...(error && { error: { ...error } }) }));
  return toAnswer(chunks, ref);
}

async function answerWhole(context: OpenAiContext, ref: ResponseRef, { response }: OpenAiCall): Promise<Answer> {
  const left = new AbortController();
  response.once('close', () => left.abort());
  const chunks = new ChatWriter(ref);
  const until = AbortSignal.any([left.signal, context.draining]);
  for await (const event of readEvents(context, ref, until, { withText: false })) chunks.take(event);
  return toAnswer(chunks, ref);
}

function toAnswer(chunks: ChatWriter, ref: ResponseRef): Answer {
  const { error, finishReason, message } = chunks;
  if (error) throw new RequestError(error.message, { code: error.code, status: error.status });
  if (finishReason === undefined) throw new HandedOverError(ref.invocationId);
  const choice = { index: 0, message, logprobs: null, finish_reason: finishReason };
  return {
    kind: 'value',
    value: { ...chunks.frame, object: 'chat.completion', choices: [choice], usage: chunks.usage },
  };
}

function sendChunks(
  context: OpenAiContext,
  ref: ResponseRef,
  body: ChatRequest,
  { response }: OpenAiCall,
): Promise<Answer> {
  const toExpired = (message: string) => ({
    error: { message, type: 'authentication_error', param: null, code: null },
  });
  const withUsage = body.stream_options?.include_usage === true;
  const members = withUsage ? { usage: null } : {};
  return sendEvents(context, response, toExpired, async function* (signal) {
    const writer = new ChatWriter(ref);
    for await (const event of readEvents(context, ref, signal))
      for (const choice of writer.take(event))
        yield { ...writer.frame, object: 'chat.completion.chunk', choices: [choice], ...members };
    if (writer.error) yield { error: toError(writer.error) };
    else if (withUsage && writer.finishReason !== undefined)
      yield { ...writer.frame, object: 'chat.completion.chunk', choices: [], usage: writer.usage };
    if (!signal.aborted) yield '[DONE]';
  });
}

/** Converts the events of a response to those of a completion, and gathers the message. */
class ChatWriter {
  readonly frame: JsonObject;
  finishReason: string | undefined;
  usage: JsonObject = {};
  error: { message: string; code: string; status: 409 | 500 } | undefined;
  readonly #calls: JsonObject[] = [];
  #text = '';

  constructor(ref: ResponseRef) {
    this.frame = { id: toResponseId(ref, 'chatcmpl-'), created: 0, model: ref.key.appName, system_fingerprint: null };
  }

  get message(): JsonObject {
    const calls = this.#calls;
    const content = this.#text === '' && calls.length > 0 ? null : this.#text;
    return { role: 'assistant', content, refusal: null, ...(calls.length > 0 ? { tool_calls: calls } : {}) };
  }

  /** Takes an event. @returns the choices of the chunks that it becomes */
  take({ type, ...event }: ResponseEvent): JsonObject[] {
    if (type === 'response.created') {
      this.frame['created'] = event.response?.['created_at'];
      return [toChoice({ role: 'assistant', content: '' })];
    }
    if (type === 'response.output_text.delta') {
      this.#text += String(event['delta']);
      return [toChoice({ content: event['delta'] })];
    }
    if (type === 'response.reasoning_summary_text.delta') return [toChoice({ reasoning_content: event['delta'] })];
    if (type === 'response.output_item.done') return this.#takeItem(event['item'] as JsonObject);
    if (type === 'error') this.error = { message: String(event['message']), code: 'server_error', status: 500 };
    return event.response && type !== 'response.in_progress' ? this.#end(event.response) : [];
  }

  #takeItem({ type, call_id: id, name, arguments: args }: JsonObject): JsonObject[] {
    if (type === 'mcp_approval_request') {
      const message = `The agent waits for a person to allow \`${String(name)}\`, which only /v1/responses can ask.`;
      this.error = { message, code: 'approval_required', status: 409 };
    }
    if (type !== 'function_call') return [];
    const call = { id, type: 'function', function: { name, arguments: args } };
    this.#calls.push(call);
    return [toChoice({ tool_calls: [{ index: this.#calls.length - 1, ...call }] })];
  }

  #end({ status, error, incomplete_details: cut, usage }: JsonObject): JsonObject[] {
    const {
      input_tokens: prompt,
      output_tokens: output,
      total_tokens: total,
      ...details
    } = (usage ?? {}) as JsonObject;
    this.usage = {
      prompt_tokens: prompt,
      completion_tokens: output,
      total_tokens: total,
      prompt_tokens_details: details['input_tokens_details'],
      completion_tokens_details: details['output_tokens_details'],
    };
    if (status === 'failed' || status === 'cancelled') {
      const { message, code } = (error ?? { message: 'It was cancelled.' }) as { message: string; code?: string };
      this.error = { message, code: code ?? 'cancelled', status: 500 };
    }
    if (this.error) return [];
    const reason = (cut as { reason?: string } | null)?.reason ?? '';
    this.finishReason = CUT_SHORT[reason] ?? (this.#calls.length > 0 ? 'tool_calls' : 'stop');
    return [{ ...toChoice({}), finish_reason: this.finishReason }];
  }
}

const toChoice = (delta: JsonObject) => ({ index: 0, delta, logprobs: null, finish_reason: null });

const toError = ({ message, code }: { message: string; code: string }) => ({
  message,
  type: 'server_error',
  param: null,
  code,
});

/** Returns the name that a request gives its conversation. */
const toSessionName = (headers: ChatHeaders, metadata: ChatRequest['metadata']): string | undefined =>
  headers['x-session-id'] ?? headers['x-openwebui-chat-id'] ?? metadata?.['session_id'];
