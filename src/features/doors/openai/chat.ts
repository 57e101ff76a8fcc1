import type { ChatCompletionChunk } from 'openai/resources/chat/completions';
import type { Response, ResponseFunctionToolCall, ResponseStreamEvent } from 'openai/resources/responses/responses';
import { findPlaceholders } from '../../../agent/loop/instruction.ts';
import { type Event, withoutRewound } from '../../../core/event.ts';
import { HandedOverError, SessionExistsError } from '../../../core/errors.ts';
import { identifierSchema, type SessionKey } from '../../../core/session.ts';
import type { Answer } from '../../../platform/http/operation/operation.ts';
import type { InvocationEnd } from '../../../invocations/request.ts';
import { invoke } from '../../../invocations/invoke.ts';
import { disconnectSignal } from '../../../invocations/wire-request.ts';
import { sendEvents, toRun, type TurnRequest } from '../door.ts';
import { type InvocationRef, toHandle } from '../handle.ts';
import { RequestError } from './errors.ts';
import { type Utterance, toUtterance, toSystemText, toTimeline, toComparableText } from './items.ts';
import { readEvents, readResponse, ResponseState } from './response.ts';
import type { ChatRequest, InputItem } from './schemas.ts';
import { answer, isTemporary, type OpenAiCall, type OpenAiContext, toSessionName } from './start.ts';
import { parseExactJson } from '../../../core/exact-json.ts';

type ChatCall = OpenAiCall<ChatRequest>;

/**
 * Chat Completions continue the named session if the messages continue its history, else run in a temporary one deleted
 * after the answer, so that auxiliary requests of a front end (for a title) are not stored.
 */
export async function completeChat(context: OpenAiContext, request: ChatCall): Promise<Answer> {
  const call = { ...request, body: withInstructions(context, request) };
  const { body, headers, response, userId } = call;
  const timeline = toTimeline(body.messages, 'messages');
  const streaming = body.stream === true;
  const isHere = !streaming && headers['idempotency-key'] === undefined;
  const plan = {
    timeline,
    streaming,
    run: isHere ? (ref: InvocationRef, turn: TurnRequest) => answerHere(context, ref, turn, call) : undefined,
    show: async (ref: InvocationRef) =>
      streaming ? sendChunks(context, ref, call) : toAnswer(ref, await readResponse(context, ref, response)),
  };
  const { data: sessionId } = identifierSchema.safeParse(toSessionName(call));
  const key = sessionId === undefined ? undefined : { appName: body.model, userId, sessionId };
  const continueChat = () =>
    answer(context, call, { ...plan, find: async () => key && findChat(context, key, timeline) });
  if (!key || timeline.length > 1) return continueChat();
  // A first prompt reads the history only if creating the session fails because it exists: usually it does not.
  const find = () => Promise.resolve({ key, history: null });
  return answer(context, call, { ...plan, find }).catch((error: unknown) => {
    if (error instanceof SessionExistsError) return continueChat();
    throw error;
  });
}

/**
 * Replaces the agent's instruction by the leading system messages, if the caller may override the agent. They stay
 * messages if the root agent has no instruction, or if they contain placeholders of an instruction template.
 */
function withInstructions({ agents }: OpenAiContext, { body, principal }: ChatCall): ChatRequest {
  const isSystem = ({ role }: InputItem) => role === 'system' || role === 'developer';
  const count = body.messages.findIndex((message) => !isSystem(message));
  const isLlm = agents.get(body.model)?.describe().kind === 'llm';
  if (count < 1 || !isLlm || !principal.scopes.has('override')) return body;
  const texts = toTimeline(body.messages.slice(0, count), 'messages').flatMap(({ parts }) => parts.map(toSystemText));
  const instructions = texts.join('\n');
  const { keys, artifacts } = findPlaceholders(instructions);
  if (instructions.trim() === '' || keys.length + artifacts.length > 0) return body;
  return { ...body, messages: body.messages.slice(count), instructions };
}

/** Finds the named session if its history equals all messages but the last. */
async function findChat({ histories, database }: OpenAiContext, key: SessionKey, timeline: Utterance[]) {
  const history = (await histories.find(database.db, key)) ?? null;
  const storedUtterances = withoutRewound(history?.events ?? []).map(toUtterance);
  return toComparableText(storedUtterances) === toComparableText(timeline.slice(0, -1)) ? { key, history } : undefined;
}

/** A chat runs within the HTTP request, because without an idempotency key the client cannot resume it later. */
async function answerHere(
  context: OpenAiContext,
  ref: InvocationRef,
  turn: TurnRequest,
  call: ChatCall,
): Promise<Answer> {
  // A disconnected client cannot find a temporary session again, so its invocation is cancelled.
  const cancelOnDisconnect = context.cancelOnDisconnect || isTemporary(call, ref.key);
  const signal = disconnectSignal({ cancelOnDisconnect }, call.response);
  const run = { ...toRun(context, ref.key, turn, call.headers), inBackground: false, streaming: false, signal };
  call.response.setHeader('x-invocation-id', ref.invocationId);
  const state = new ResponseState({ ...ref, answeredCallId: undefined });
  let end: InvocationEnd;
  try {
    end = await invoke(context, run, ({ text }) => {
      state.take({ kind: 'event', event: parseExactJson(text) as Event, sequence: 0 });
    });
  } catch (error) {
    // If another process has taken the invocation over, this process waits for the result.
    if (!(error instanceof HandedOverError) || context.draining.aborted) throw error;
    return toAnswer(ref, await readResponse(context, ref, call.response));
  }
  const { error, paused } = end;
  const isStopped = error?.code === 'cancelled' || error?.code === 'interrupted';
  const status = isStopped ? 'cancelled' : error ? 'failed' : paused ? 'paused' : 'succeeded';
  state.end = { status, ...(error && { error: { ...error } }) };
  return toAnswer(ref, state);
}

const toFrame = (ref: InvocationRef, created: number) => ({
  id: `chatcmpl-${toHandle(ref)}`,
  model: ref.key.appName,
  created,
});

function toAnswer(ref: InvocationRef, state: ResponseState): Answer {
  const response = state.toResponse();
  const { usage, ...choice } = toCompletion(response);
  const choices = [{ index: 0, ...choice, logprobs: null }];
  return { kind: 'value', value: { ...toFrame(ref, response.created_at), object: 'chat.completion', choices, usage } };
}

const toError = (message: string, type: string, code: string | null = null) => ({
  error: { message, type, param: null, code },
});

function sendChunks(context: OpenAiContext, ref: InvocationRef, { body, response }: ChatCall): Promise<Answer> {
  const withUsage = body.stream_options?.include_usage === true;
  const toExpired = (message: string) => toError(message, 'authentication_error');
  return sendEvents(context, response, toExpired, async function* (signal) {
    let calls = 0;
    const frame = { ...toFrame(ref, 0), object: 'chat.completion.chunk', ...(withUsage && { usage: null }) };
    const toChunk = (delta: Delta, finish_reason: string | null = null) => ({
      ...frame,
      choices: [{ index: 0, delta, logprobs: null, finish_reason }],
    });
    for await (const event of readEvents(context, ref, signal)) {
      if (event.type === 'response.created') frame.created = event.response.created_at;
      const delta = toDelta(event, calls);
      if (delta?.tool_calls) calls += 1;
      if (delta) yield toChunk(delta);
      if (event.type === 'error') yield toError(event.message, 'server_error', 'server_error');
      if (!('response' in event) || event.response.status === 'in_progress') continue;
      try {
        const { finish_reason, usage } = toCompletion(event.response);
        yield toChunk({}, finish_reason);
        if (withUsage) yield { ...frame, choices: [], usage };
      } catch (error) {
        yield toError((error as RequestError).message, 'server_error', (error as RequestError).reason.code);
      }
    }
    if (!signal.aborted) yield '[DONE]';
  });
}

/** The delta of a chunk. Front ends know `reasoning_content`, but the OpenAI package does not declare it. */
type Delta = ChatCompletionChunk.Choice.Delta & { reasoning_content?: string };

/** A chat chunk's delta from an event of the Responses API; `undefined` if the event adds no content. */
function toDelta(event: ResponseStreamEvent, calls: number): Delta | undefined {
  if (event.type === 'response.created') return { role: 'assistant', content: '' };
  if (event.type === 'response.output_text.delta') return { content: event.delta };
  if (event.type === 'response.reasoning_summary_text.delta') return { reasoning_content: event.delta };
  if (event.type !== 'response.output_item.done' || event.item.type !== 'function_call') return undefined;
  return { tool_calls: [{ index: calls, ...toCall(event.item) }] };
}

const toCall = ({ call_id: id, name, arguments: args }: ResponseFunctionToolCall) =>
  ({ id, type: 'function', function: { name, arguments: args } }) as const;

/** `finish_reason` of a completion, by the reason for which a response is incomplete. */
const CUT_SHORT: Record<string, string> = { max_output_tokens: 'length', content_filter: 'content_filter' };

/** Converts a complete response. @throws {RequestError} if it failed or waits for an approval */
function toCompletion({ status, error, output, usage: tokens, incomplete_details: incomplete }: Response) {
  const approval = output.find((item) => item.type === 'mcp_approval_request');
  if (approval) {
    const message = `The agent waits for a person to allow \`${approval.name}\`, which only /v1/responses can ask.`;
    throw new RequestError(message, { code: 'approval_required', status: 409 });
  }
  if (status === 'failed' || status === 'cancelled')
    throw new RequestError(error?.message ?? 'It was cancelled.', { code: error?.code ?? status, status: 500 });
  const calls = output.flatMap((item) => (item.type === 'function_call' ? toCall(item) : []));
  const contents = output.flatMap((item) => (item.type === 'message' ? item.content : []));
  const text = contents.map((part) => ('text' in part ? part.text : '')).join('');
  const content = text === '' && calls.length > 0 ? null : text;
  const usage = tokens && {
    prompt_tokens: tokens.input_tokens,
    completion_tokens: tokens.output_tokens,
    total_tokens: tokens.total_tokens,
    prompt_tokens_details: tokens.input_tokens_details,
    completion_tokens_details: tokens.output_tokens_details,
  };
  const message = { role: 'assistant', content, refusal: null, ...(calls.length > 0 && { tool_calls: calls }) };
  return {
    message,
    finish_reason: CUT_SHORT[incomplete?.reason ?? ''] ?? (calls.length > 0 ? 'tool_calls' : 'stop'),
    usage,
  };
}
