import { getFunctionResponses, type JsonObject } from '../../../core/content.ts';
import { type Event, withoutRewound } from '../../../core/event.ts';
import { SessionExistsError } from '../../../core/errors.ts';
import { identifierSchema, type SessionKey } from '../../../core/session.ts';
import type { SessionHistory } from '../../../conversation/sessions/history-store.ts';
import type { Answer } from '../../../platform/http/operation/operation.ts';
import { newInvocationId } from '../../../invocations/context.ts';
import { invoke } from '../../../invocations/invoke.ts';
import { disconnectSignal, toInvocationOptions } from '../../../invocations/request.ts';
import { sendEvents } from '../start-turn.ts';
import { readWhole } from '../turn.ts';
import { RequestError } from './errors.ts';
import { type ResponseRef, toResponseId } from './ids.ts';
import { type Said, toTimeline } from './input.ts';
import { readEvents, waitForEnd } from './read.ts';
import type { ChatRequest } from './schemas.ts';
import {
  findAnswer,
  type OpenAiCall,
  type OpenAiContext,
  prepareAnswer,
  removeTemporary,
  startAnswer,
  toSessionName,
} from './start.ts';
import { type ResponseEvent, ResponseWriter } from './writer.ts';

/** The reason for which a completion ends, by that for which a response is incomplete. */
const CUT_SHORT: Record<string, string> = { max_output_tokens: 'length', content_filter: 'content_filter' };

/**
 * Answers a request of the Chat Completions API. It runs in the session that it names, where the messages go on with
 * what that has; else aside, in a session that goes with the answer: what a front end asks beside a conversation, such
 * as for its title, leaves nothing in it.
 */
export async function completeChat(context: OpenAiContext, call: OpenAiCall<ChatRequest>): Promise<Answer> {
  const { body, headers, userId } = call;
  const timeline = toTimeline(body.messages, 'messages');
  const repeated = await findAnswer(context, call, timeline);
  if (repeated) return answer(context, call, timeline, repeated, repeated);
  const { data: sessionId } = identifierSchema.safeParse(toSessionName(headers, body));
  if (sessionId === undefined) return answer(context, call, timeline);
  const key = { appName: body.model, userId, sessionId };
  const goOn = async () => answer(context, call, timeline, await findChat(context, key, timeline));
  if (timeline.length > 1) return goOn();
  // A first prompt mostly begins its session, which is read only where it is there.
  return answer(context, call, timeline, { key, history: null }).catch((error: unknown) => {
    if (error instanceof SessionExistsError) return goOn();
    throw error;
  });
}

/** Answers in the session of an earlier request, in one that goes on, or aside. */
async function answer(
  context: OpenAiContext,
  call: OpenAiCall<ChatRequest>,
  timeline: Said[],
  found?: { key: SessionKey; history?: SessionHistory | null },
  repeated?: ResponseRef,
): Promise<Answer> {
  const { body, headers, response } = call;
  const streaming = body.stream === true;
  const isTemporary = !found || found.key.sessionId !== toSessionName(headers, body);
  const asked = { timeline: isTemporary ? timeline : timeline.slice(-1), ...found, streaming, isTemporary };
  // Nobody comes back for an answer that is whole at its end, unless with the key of its request.
  if (!streaming && headers['idempotency-key'] === undefined) {
    const prepared = await prepareAnswer(context, asked, call);
    try {
      return await answerHere(context, { ...prepared, isTemporary }, call);
    } finally {
      if (isTemporary) await removeTemporary(context, prepared.ref);
    }
  }
  const ref = repeated ?? (await startAnswer(context, asked, call));
  try {
    return await (streaming ? sendChunks(context, ref, call) : toAnswer(ref, await waitForEnd(context, ref, response)));
  } finally {
    if (isTemporary) await removeTemporary(context, ref);
  }
}

/** Finds the session to go on with: one with as many prompts as the messages have before the last. */
async function findChat({ histories, database }: OpenAiContext, key: SessionKey, timeline: Said[]) {
  const history = (await histories.find(database.db, key)) ?? null;
  const isPrompt = ({ author, content }: Event) => author === 'user' && getFunctionResponses(content).length === 0;
  const stored = withoutRewound(history?.events ?? []).filter(isPrompt).length;
  const isSaid = ({ by, parts }: Said) => by === 'user' && getFunctionResponses({ parts }).length === 0;
  return stored === timeline.slice(0, -1).filter(isSaid).length ? { key, history } : undefined;
}

/** Answers in this process, as long as its client waits. */
async function answerHere(
  context: OpenAiContext,
  { ref, turn, isTemporary }: Awaited<ReturnType<typeof prepareAnswer>> & { isTemporary: boolean },
  { headers, response }: OpenAiCall,
): Promise<Answer> {
  const { key } = ref;
  const { requested, resumed, ...run } = turn;
  const invocationId = resumed ?? newInvocationId(context);
  const writer = new ResponseWriter({ key, invocationId });
  response.setHeader('x-invocation-id', invocationId);
  const request = {
    ...run,
    key,
    invocationId,
    resumes: resumed !== undefined,
    streaming: false,
    // Nobody finds what a client left that named no session.
    signal: disconnectSignal({ cancelOnDisconnect: isTemporary || context.cancelOnDisconnect }, response),
    ...toInvocationOptions(headers, requested),
  };
  const { error, paused } = await invoke(context, request, ({ text }) => {
    for (const step of readWhole(JSON.parse(text) as Event)) for (const _ of writer.take(step));
  });
  const isStopped = error?.code === 'cancelled' || error?.code === 'interrupted';
  const status = isStopped ? 'cancelled' : error ? 'failed' : paused ? 'paused' : 'succeeded';
  for (const _ of writer.end({ status, ...(error && { error: { ...error } }) }));
  return toAnswer({ ...ref, invocationId }, writer.response);
}

const toAnswer = (ref: ResponseRef, response: JsonObject): Answer => {
  const { created_at: created } = response;
  const { message, finish_reason, usage } = toCompletion(response);
  const choices = [{ index: 0, message, logprobs: null, finish_reason }];
  return { kind: 'value', value: { ...toFrame(ref), object: 'chat.completion', created, choices, usage } };
};

const toFrame = (ref: ResponseRef): JsonObject => ({
  id: toResponseId(ref, 'chatcmpl-'),
  model: ref.key.appName,
  system_fingerprint: null,
});

function sendChunks(
  context: OpenAiContext,
  ref: ResponseRef,
  { body, response }: OpenAiCall<ChatRequest>,
): Promise<Answer> {
  const toError = (message: string, type: string, code: string | null = null) => ({
    error: { message, type, param: null, code },
  });
  const withUsage = body.stream_options?.include_usage === true;
  const toExpired = (message: string) => toError(message, 'authentication_error');
  return sendEvents(context, response, toExpired, async function* (signal) {
    let calls = 0;
    const frame = { ...toFrame(ref), object: 'chat.completion.chunk', created: 0, ...(withUsage && { usage: null }) };
    const toChunk = (delta: JsonObject, finish_reason: string | null = null) => ({
      ...frame,
      choices: [{ index: 0, delta, logprobs: null, finish_reason }],
    });
    for await (const event of readEvents(context, ref, signal)) {
      if (event.type === 'response.created') frame.created = Number(event.response?.['created_at']);
      const delta = toDelta(event, calls);
      if (delta?.['tool_calls']) calls += 1;
      if (delta) yield toChunk(delta);
      if (event.type === 'error') yield toError(String(event['message']), 'server_error', 'server_error');
      if (!event.response || event.response['status'] === 'in_progress') continue;
      try {
        const { finish_reason, usage } = toCompletion(event.response);
        yield toChunk({}, finish_reason);
        if (withUsage) yield { ...frame, choices: [], usage };
      } catch (error) {
        const { message, reason } = error as RequestError;
        yield toError(message, 'server_error', reason.code);
      }
    }
    if (!signal.aborted) yield '[DONE]';
  });
}

/** Converts an event of a response to what a chunk adds; `undefined` where it adds nothing. */
function toDelta({ type, delta, item }: ResponseEvent, calls: number): JsonObject | undefined {
  if (type === 'response.created') return { role: 'assistant', content: '' };
  if (type === 'response.output_text.delta') return { content: delta };
  if (type === 'response.reasoning_summary_text.delta') return { reasoning_content: delta };
  const { type: kind, ...call } = (item ?? {}) as JsonObject;
  if (type !== 'response.output_item.done' || kind !== 'function_call') return undefined;
  return { tool_calls: [{ index: calls, ...toCall(call) }] };
}

const toCall = ({ call_id: id, name, arguments: args }: JsonObject) => ({
  id,
  type: 'function',
  function: { name, arguments: args },
});

/** Converts a whole response to a completion. @throws {RequestError} for one that has failed, or asks a person */
function toCompletion({ status, error, output, usage, incomplete_details: cut }: JsonObject) {
  const items = output as ({ type: string; content?: { text: string }[] } & JsonObject)[];
  const asked = items.find(({ type }) => type === 'mcp_approval_request');
  if (asked) {
    const name = String(asked['name']);
    const message = `The agent waits for a person to allow \`${name}\`, which only /v1/responses can ask.`;
    throw new RequestError(message, { code: 'approval_required', status: 409 });
  }
  if (status === 'failed' || status === 'cancelled') {
    const { message, code } = (error ?? { message: 'It was cancelled.', code: status }) as Record<string, string>;
    throw new RequestError(message ?? '', { code, status: 500 });
  }
  const calls = items.filter(({ type }) => type === 'function_call').map(toCall);
  const said = items.filter(({ type }) => type === 'message').flatMap(({ content }) => content ?? []);
  const text = said.map((part) => part.text).join('');
  const content = text === '' && calls.length > 0 ? null : text;
  const { reason = '' } = (cut ?? {}) as { reason?: string };
  const used = (usage ?? {}) as JsonObject;
  return {
    message: { role: 'assistant', content, refusal: null, ...(calls.length > 0 && { tool_calls: calls }) },
    finish_reason: CUT_SHORT[reason] ?? (calls.length > 0 ? 'tool_calls' : 'stop'),
    usage: {
      prompt_tokens: used['input_tokens'],
      completion_tokens: used['output_tokens'],
      total_tokens: used['total_tokens'],
      prompt_tokens_details: used['input_tokens_details'],
      completion_tokens_details: used['output_tokens_details'],
    },
  };
}
