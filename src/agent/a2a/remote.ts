import { setTimeout as sleep } from 'node:timers/promises';
import { type Part as A2aPart, SendMessageRequest, type Task, TaskState, taskStateToJSON } from '@a2a-js/sdk';
import type { Transport } from '@a2a-js/sdk/client';
import { UnsupportedOperationError } from '@a2a-js/sdk/errors';
import { z } from 'zod';
import { abortError } from '../../core/abort.ts';
import {
  type Content,
  getFunctionResponses,
  getParts,
  type JsonObject,
  type Part,
  toMembers,
} from '../../core/content.ts';
import { AgentError } from '../../core/errors.ts';
import { createEgress } from '../../platform/net/egress.ts';
import type { RemoteAgent } from '../definition/agent.ts';
import type { CallingInvocation, Model, ModelAnswer, ModelDelta, ModelRequest } from '../definition/model.ts';
import type { McpSettings } from '../mcp/mcp-tools.ts';
import { promptPerson } from '../tools/waits.ts';
import { awaitAnswer, connect, MAX_MESSAGE, type Peer, POLL_MS, toFailure, toNext } from './connection.ts';
import { CALLS, callsSchema, CHAIN, chainSchema, CHAIN_STATE, MAX_CHAIN, TIME, TOKENS, usedSchema } from './wire.ts';
import { mark, unmark } from '../../core/exact-json.ts';

const MAX_ANSWER_CHARACTERS = 100_000;
/** The same of an agent that is a tool: its answer is no event, and a large one is kept for `read_result`. */
const MAX_RESULT_CHARACTERS = 4_194_304;
/** Maximum length of the id of a task or message, in characters. */
const MAX_ID_CHARACTERS = 4_096;
const MAX_QUESTION_CHARACTERS = 2_000;
/** Member of `partMetadata` of a question to the user: the A2A task that waits for the reply, and the calls in it. */
const NOTE = 'a2a';
const noteSchema = z.looseObject({ taskId: z.string(), calls: z.array(z.looseObject({ callId: z.string() })) });

const getNote = ({ partMetadata }: Part) => toMembers(partMetadata?.[NOTE]);
const getState = ({ status }: Pick<Task, 'status'>) => status?.state ?? TaskState.UNRECOGNIZED;
const RUNNING = [TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING];
const WAITING = [TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED];

const joinText = (parts: readonly A2aPart[]): string =>
  parts.map(({ content }) => (content?.$case === 'text' ? content.value : '')).join('');
const listData = (parts: readonly A2aPart[]): unknown[] =>
  parts.flatMap(({ content }) => (content?.$case === 'data' ? [unmark(content.value)] : []));

interface TaskCall extends Peer {
  caller: CallingInvocation;
  transport: Transport;
  streams: boolean;
}

/** A model whose output is the reply of another service's agent, to which it sends the conversation over A2A. */
export const remoteModel = (name: string, remote: RemoteAgent, settings: McpSettings): Model => ({
  provider: 'a2a',
  async *generate(request) {
    const { caller, signal } = request;
    if (!caller) throw new AgentError('remote_failed', `The agent \`${name}\` is asked by agents only.`);
    const { sessionId, userId } = caller.session;
    const egress = createEgress(settings.egress, userId);
    const user = await openAccess(name, remote, settings, userId);
    const peer: Peer = { name, remote, egress, signal, access: user?.toAuthProvider(egress.fetch) };
    try {
      const call = { ...peer, caller, ...(await connect(peer)) };
      request.onAsk?.(!call.streams);
      const begun = await begin(call, request);
      return typeof begun === 'string' ? yield* follow(call, begun) : begun;
    } catch (error) {
      if (user?.isMissing(error) !== true) throw error;
      return promptForInput(peer, (await user.requestConsent(sessionId)).hint, CONFIRMED, { consent: true });
    } finally {
      await egress.close();
    }
  },
});

async function openAccess(name: string, { url, userOauth }: RemoteAgent, settings: McpSettings, userId: string) {
  if (!userOauth) return undefined;
  const { openUserToken } = await import('../mcp/mcp-consent.ts');
  return openUserToken({ name, url, userOauth }, settings.openCredentials, userId);
}

/**
 * Sends the messages that the agent has not received yet, or continues with the task that an earlier attempt created.
 * Returns the task's id, or the agent's reply if the agent has already replied.
 */
async function begin(call: TaskCall, request: ModelRequest): Promise<string | ModelAnswer> {
  const { question, kept, operationId, conversationId } = call.caller;
  const { contents } = request;
  const note = noteSchema.safeParse(question && getNote(question)).data;
  const answer = getFunctionResponses(contents.at(-1)).find(({ id }) => id === question?.functionCall?.id);
  if (note && answer) return sendAnswer(call, request, note, answer.response ?? {});
  if (typeof kept?.['taskId'] === 'string') return kept['taskId'];
  // False for this runtime's request for OAuth consent, which the agent did not send.
  const isAnswer = (content: Content) => !getParts(content).some((part) => getNote(part)['consent'] === true);
  const last = contents.findLastIndex((content) => content.role === 'model' && isAnswer(content));
  const parts = contents
    .slice(last + 1)
    .flatMap(getParts)
    .flatMap(toA2aPart);
  return send(call, request, { messageId: operationId, contextId: conversationId, parts });
}

function toA2aPart({ text, inlineData, fileData }: Part): JsonObject[] {
  if (text) return [{ text }];
  const { mimeType: mediaType, displayName: filename } = inlineData ?? fileData ?? {};
  const content = inlineData ? { raw: inlineData.data } : { url: fileData?.fileUri };
  return Object.values(content)[0] ? [{ ...content, mediaType, filename }] : [];
}

/** Sends a message. Returns the id of the agent's task without waiting for its end, or a reply that comes at once. */
async function send(call: TaskCall, { sampling }: ModelRequest, members: JsonObject): Promise<string | ModelAnswer> {
  const { state, modelCalls, endTime } = call.caller;
  const chain = chainSchema.safeParse(state[CHAIN_STATE]).data ?? [];
  const { url } = call.remote;
  if (chain.includes(url) || chain.length >= MAX_CHAIN)
    throw toFailure(call, 'it is one of the agents that wait for this answer, or there are too many of them');
  const timeMs = Math.max(1, Math.floor((endTime ?? Infinity) - performance.now()));
  const metadata = {
    [CHAIN]: [...chain, url],
    [CALLS]: modelCalls.remaining,
    ...(endTime && { [TIME]: timeMs }),
    ...(sampling.maxOutputTokens && { [TOKENS]: sampling.maxOutputTokens }),
  };
  const message = { role: 'ROLE_USER', ...members, metadata };
  const request = SendMessageRequest.fromJSON({ message: mark(message), configuration: { returnImmediately: true } });
  // An abort of the invocation does not abort this request, because the id of the task would be lost with the response.
  const whole = { signal: new AbortController().signal };
  const answer = await awaitAnswer(call, call.transport.sendMessage(request, whole));
  if ('messageId' in answer) return toText(call, joinText(answer.parts));
  if (!answer.id || answer.id.length > MAX_ID_CHARACTERS) throw toFailure(call, 'its task has no id of a usual length');
  await call.caller.keep({ taskId: answer.id }).catch((error: unknown) => {
    // After the invocation has ended, the id of the remote task cannot be stored any more; the task is then cancelled.
    if (!call.signal.aborted) throw error;
  });
  return isComplete(answer) ? toAnswer(call, answer) : answer.id;
}

/** True if the task has its output, which is used at once, because some services forget a task after sending it. */
const isComplete = (task: Task): boolean =>
  getState(task) !== TaskState.UNRECOGNIZED &&
  !RUNNING.includes(getState(task)) &&
  (task.artifacts.length > 0 || (task.status?.message?.parts.length ?? 0) > 0);

/** Sends a person's reply to the task, unless the task already has it. Returns the same as {@link send}. */
async function sendAnswer(
  call: TaskCall,
  request: ModelRequest,
  { taskId, calls }: z.output<typeof noteSchema>,
  answer: JsonObject,
): Promise<string | ModelAnswer> {
  const isOne = calls.length === 1;
  const responses = calls.map(({ callId }) => ({ data: { callId, response: isOne ? answer : answer[callId] } }));
  const text = typeof answer['answer'] === 'string' ? answer['answer'] : JSON.stringify(answer);
  const parts = responses.length > 0 ? responses : [{ text }];
  return send(call, request, { taskId, messageId: call.caller.operationId, parts }).catch((error: unknown) => {
    // The task has already ended, so an earlier attempt must have delivered the person's reply.
    if (error instanceof AgentError && error.cause instanceof UnsupportedOperationError) return taskId;
    throw error;
  });
}

/** Reads the events of a task and polls it, until it ends or asks for input; cancels it if the invocation ends. */
async function* follow(call: TaskCall, id: string): AsyncGenerator<ModelDelta, ModelAnswer, void> {
  const { transport, streams, signal } = call;
  const task = { tenant: '', id };
  const text = new TextSoFar(call.name);
  try {
    for (let pauseMs = POLL_MS.least; ; pauseMs = toNext(pauseMs)) {
      const current = await awaitAnswer(call, transport.getTask(task));
      if (!RUNNING.includes(getState(current))) return toAnswer(call, current);
      if (streams) yield* listen(transport, id, text);
      await sleep(pauseMs, undefined, { signal });
    }
  } finally {
    // `interrupted` means that only this process stops: another process continues the task, so it is not cancelled.
    if (signal.aborted && abortError(signal).code !== 'interrupted') {
      const limit = { signal: AbortSignal.timeout(POLL_MS.most) };
      await transport.cancelTask({ ...task, metadata: undefined }, limit).catch(() => undefined);
    }
  }
}

/** Yields the task's text while its event stream is open; returns when the task waits for input. */
async function* listen(transport: Transport, id: string, text: TextSoFar): AsyncGenerator<ModelDelta> {
  try {
    for await (const { payload } of transport.resubscribeTask({ tenant: '', id })) {
      if (payload?.$case === 'task')
        for (const { artifactId, parts } of payload.value.artifacts) text.set(artifactId, joinText(parts));
      if (payload?.$case === 'artifactUpdate') {
        const { artifact, append } = payload.value;
        if (artifact) text.set(artifact.artifactId, joinText(artifact.parts), append);
      }
      yield* text.takeNew();
      if ((payload?.$case === 'task' || payload?.$case === 'statusUpdate') && WAITING.includes(getState(payload.value)))
        return;
    }
  } catch {
    // A stream that breaks or becomes too large is no failure: the task goes on and is polled.
  }
}

/** The text that a running task has produced so far, by artifact id. */
class TextSoFar {
  readonly #modelVersion: string;
  readonly #texts = new Map<string, string>();
  #yielded = '';

  constructor(modelVersion: string) {
    this.#modelVersion = modelVersion;
  }

  set(artifactId: string, text: string, append = false): void {
    this.#texts.set(artifactId, append ? (this.#texts.get(artifactId) ?? '') + text : text);
  }

  /**
   * Yields the text that was added since the last call. If the agent replaces earlier text, only the final output shows
   * it, because streamed text can only be appended.
   */
  *takeNew(): Generator<ModelDelta> {
    const whole = joinTexts([...this.#texts.values()]);
    const text = whole.startsWith(this.#yielded) ? whole.slice(this.#yielded.length) : '';
    if (text === '') return;
    this.#yielded = whole;
    yield { content: { role: 'model', parts: [{ text }] }, modelVersion: this.#modelVersion };
  }
}

const joinTexts = (texts: string[], maximum = MAX_ANSWER_CHARACTERS): string =>
  texts.filter(Boolean).join('\n').slice(0, maximum);

/** An agent that is a tool of the caller has no conversation with it. */
const getMaximum = ({ caller }: TaskCall): number =>
  caller.conversationId === undefined ? MAX_RESULT_CHARACTERS : MAX_ANSWER_CHARACTERS;

const toText = (call: TaskCall, text: string): ModelAnswer => ({
  content: { role: 'model', parts: [{ text: text.slice(0, getMaximum(call)) }] },
  modelVersion: call.name,
});

function toAnswer(call: TaskCall, task: Task): ModelAnswer {
  const { status, artifacts, metadata } = task;
  const message = joinText(status?.message?.parts ?? []);
  if (WAITING.includes(getState(task))) return toQuestion(call, task);
  call.caller.modelCalls.count(callsSchema.safeParse(metadata?.[CALLS]).data ?? 1);
  if (getState(task) !== TaskState.TASK_STATE_COMPLETED) {
    const why = (message || taskStateToJSON(getState(task))).slice(0, MAX_MESSAGE);
    throw new AgentError('remote_failed', `The agent \`${call.name}\` did not succeed: ${why}`);
  }
  const values = artifacts.flatMap(({ parts }) => listData(parts));
  const data = values.length > 0 ? JSON.stringify(values.length === 1 ? values[0] : values) : '';
  const { prompt, output } = usedSchema.safeParse(metadata?.[TOKENS]).data ?? {};
  const usageMetadata = { promptTokenCount: prompt, candidatesTokenCount: output };
  const text =
    joinTexts(
      artifacts.map(({ parts }) => joinText(parts)),
      getMaximum(call),
    ) ||
    message ||
    data;
  return { ...toText(call, text), ...(prompt !== undefined && { usageMetadata }) };
}

const CONFIRMED = { type: 'object', properties: { confirmed: { type: 'boolean' } }, required: ['confirmed'] };
const ANSWERED = { type: 'object', properties: { answer: { type: 'string' } }, required: ['answer'] };

/** Makes a question to the user of the session from the other agent's request for input; the agent's text is quoted. */
function toQuestion(peer: Peer, { id: taskId, status }: Task): ModelAnswer {
  const { parts = [] } = status?.message ?? {};
  const calls = listData(parts)
    .map(toMembers)
    .filter(({ callId }) => typeof callId === 'string');
  const links = parts.flatMap(({ content }) => (content?.$case === 'url' ? [content.value] : []));
  const question = [`The agent \`${peer.name}\` asks: ${joinText(parts)}`, ...links].join('\n');
  const forms = calls.map(({ callId, kind, schema }) => [
    String(callId),
    kind === 'confirmation' ? CONFIRMED : (schema ?? ANSWERED),
  ]);
  const all = { type: 'object', properties: Object.fromEntries(forms), required: forms.map(([callId]) => callId) };
  const schema = forms.length > 1 ? all : (forms[0]?.[1] ?? ANSWERED);
  return promptForInput(peer, question, schema, { taskId, calls: calls.map(({ callId }) => ({ callId })) });
}

/** Asks the user for input. `note` is stored with the question: it says to which A2A task the reply belongs. */
function promptForInput({ name }: Peer, question: string, schema: unknown, note: JsonObject): ModelAnswer {
  const functionCall = {
    name: promptPerson.name,
    args: { question: question.slice(0, MAX_QUESTION_CHARACTERS), schema },
  };
  return { content: { role: 'model', parts: [{ functionCall, partMetadata: { [NOTE]: note } }] }, modelVersion: name };
}
