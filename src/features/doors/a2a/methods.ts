import { hash } from 'node:crypto';
import type { z } from 'zod';
import { CALLS, CHAIN, CHAIN_STATE, TIME, TOKENS } from '../../../agent/a2a/wire.ts';
import type { Config } from '../../../config/config.ts';
import { type JsonObject, type Part, toMembers } from '../../../core/content.ts';
import type { Event } from '../../../core/event.ts';
import { listChosenEvents } from '../../../conversation/sessions/event-store.ts';
import { cancel } from '../../../invocations/cancel.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { listInvocationsOfUser } from '../../../invocations/invocation-store.ts';
import { toCursor, readCursor } from '../../../platform/http/operation/cursor.ts';
import type { Principal } from '../../../platform/http/operation/principal.ts';
import { type InvocationRef, toHandle } from '../handle.ts';
import { answerCalls, toResponse } from '../open-calls.ts';
import { startTurn, type TurnCall, type TurnRequest } from '../start-turn.ts';
import { readTurn } from '../turn.ts';
import { A2aError } from './errors.ts';
import type { A2aMessage, getParams, listParams, sendParams, taskParams } from './params.ts';
import { checkPush, createPush } from './push.ts';
import {
  type Found,
  getMessageId,
  listQuestions,
  type Shown,
  toParts,
  toRef,
  toStatuses,
  toStatusUpdate,
  toTask,
  toUpdates,
} from './task.ts';
import { parseExactJson } from '../../../core/exact-json.ts';

/** Maximum bytes of events on a page of tasks; the first task is always complete. */
const MAX_PAGE = 4_194_304;

export interface A2aContext extends InvocationContext {
  config: Pick<Config, 'auth' | 'A2A_CARD_KEY' | 'PUBLIC_URL' | 'WEBHOOKS' | 'WEBHOOKS_ALLOWED_HOSTS'>;
  version: string;
}

export interface A2aCall extends TurnCall {
  context: A2aContext;
  principal: Principal;
  appName: string;
  userId: string;
  /** Public address of this service. */
  base: string;
  /** True: the client speaks version 0.3. */
  isOld: boolean;
}

/** Sends a message, and registers its push configuration. */
async function begin(call: A2aCall, { message, configuration }: z.output<typeof sendParams>): Promise<Found> {
  const push = configuration?.taskPushNotificationConfig;
  if (push) checkPush(call, push);
  const found = await start(call, message);
  if (push) await createPush(call, { ...push, taskId: toHandle(found) });
  return found;
}

/** Sends a message: it starts a task, or answers a paused one. @returns the task as it stands */
async function start(call: A2aCall, message: A2aMessage): Promise<Found> {
  const { context, appName, userId } = call;
  const { messageId, contextId, taskId, metadata: _, ...requested } = message;
  const parts = toParts(message);
  if (taskId !== undefined) return goOn(call, taskId, message, parts);
  // The session id derives from the message id, so that a retry of the first message reaches the same session and task.
  const idempotencyKey = hash('sha256', JSON.stringify([appName, contextId, messageId]));
  const key = { appName, userId, sessionId: contextId ?? idempotencyKey };
  const content = { role: 'user', parts };
  const turn = { content, ...toLimits(message), requested: [key, requested] };
  const headers = { ...call.headers, 'idempotency-key': idempotencyKey };
  return look(call, await startTurn(context, key, turn, { ...call, headers }));
}

async function goOn(call: A2aCall, taskId: string, message: A2aMessage, parts: Part[]): Promise<Found> {
  const found = await findTask(call, taskId);
  const { key, invocation, events } = found;
  if (message.contextId !== undefined && message.contextId !== key.sessionId)
    throw new A2aError('INVALID_PARAMS', 'message.contextId: the task is of another context');
  if (events.some((event) => getMessageId(event) === message.messageId)) return found;
  if (invocation.status !== 'paused')
    throw new A2aError('UNSUPPORTED_OPERATION', `The task does not wait for a message: it is ${invocation.status}.`);
  const answers = toAnswers(found, message);
  if (answers.missing.length > 0)
    throw new A2aError('INVALID_PARAMS', `Each waits for a part data with its callId: ${answers.missing.join(', ')}`);
  const [first, ...rest] = answers.parts;
  const content = { role: 'user', parts: [{ ...first, partMetadata: parts[0]?.partMetadata }, ...rest] };
  const turn = { content, resumed: invocation.id, ...toLimits(message) };
  // No idempotency key: the row keeps that of the message that started the task.
  return look(call, await startTurn(call.context, key, turn, { ...call, headers: {} }));
}

/** Reads the chain of waiting agents, which must not be called again, and the limits of calls, tokens and time. */
function toLimits({ metadata }: A2aMessage): Pick<TurnRequest, 'overrides' | 'stateDelta'> {
  const { [CHAIN]: chain, [CALLS]: llmCallsAtMost, [TOKENS]: tokensAtMost, [TIME]: timeAtMostMs } = metadata ?? {};
  return {
    overrides: {
      ...(llmCallsAtMost && { llmCallsAtMost }),
      ...(tokensAtMost && { tokensAtMost }),
      ...(timeAtMostMs && { timeAtMostMs }),
    },
    ...(chain && { stateDelta: { [CHAIN_STATE]: chain } }),
  };
}

/** Matches a message with the open questions of a task: by `callId`, or as a whole if there is only one question. */
function toAnswers(found: Found, { parts }: A2aMessage): ReturnType<typeof answerCalls> {
  const questions = listQuestions(found);
  const values = parts.flatMap(({ data }) => (data == null ? [] : [data]));
  const named = new Map(values.map((data) => [toMembers(data)['callId'], toMembers(data)]));
  named.delete(undefined);
  const plain = values.find((data) => toMembers(data)['callId'] === undefined);
  const text = parts.map((part) => part.text ?? '').join('');
  const isOnly = questions.length === 1 && named.size === 0;
  return answerCalls(questions, ({ id, kind }) => {
    const { callId, response, ...members } = named.get(id) ?? {};
    if (callId === undefined && !isOnly) return undefined;
    const given = callId === undefined ? (plain ?? text) : response === undefined ? members : response;
    if (kind !== 'confirmation') return toResponse(given);
    // Anything but a clear yes is a no.
    const said = typeof given === 'string' ? { confirmed: /^\s*yes\W*$/i.test(given) } : toMembers(given);
    return { ...said, confirmed: said['confirmed'] === true };
  });
}

const ALL: Shown = {};

/** Reads an invocation and the events that the view includes. @throws {A2aError} if it does not exist */
async function look(call: A2aCall, { key, invocationId }: InvocationRef, shown = ALL): Promise<Found> {
  const invocation = await call.context.feeds.readInvocation(key, invocationId);
  if (!invocation) throw new A2aError('TASK_NOT_FOUND', 'Task not found.');
  const [found] = await readEvents(call, [{ key, invocationId, invocation }], shown);
  return found as Found;
}

/** Reads the events that the view includes; after the first invocation, only as many as fit on a page. */
async function readEvents(
  { context, base, appName, userId }: A2aCall,
  read: Omit<Found, 'events' | 'sequence' | 'base'>[],
  { historyLength, includeArtifacts: made = true }: Shown,
): Promise<Found[]> {
  const wanted = read.map(({ key, invocationId, invocation: { status } }) => {
    const { sessionId } = key;
    return {
      sessionId,
      invocationId,
      maxUserEvents: historyLength ?? undefined,
      agentEvents: made,
      calls: status === 'paused',
    };
  });
  const db = context.database.reads;
  const chosen = await listChosenEvents(db, { appName, userId }, wanted, MAX_PAGE);
  return chosen.map((events, place) => ({
    ...(read[place] as (typeof read)[number]),
    events: events.map(({ text }) => parseExactJson(text) as Event),
    sequence: events.at(-1)?.sequence,
    base,
  }));
}

const findTask = (call: A2aCall, taskId: string, shown = ALL) => look(call, toRef(call, taskId), shown);

/** Hides the events before the client's own message if its credential lacks the scope `read`. */
function toOwnPart({ principal }: A2aCall, found: Found, { messageId }: A2aMessage): Found {
  if (principal.scopes.has('read')) return found;
  const first = found.events.findIndex((event) => getMessageId(event) === messageId);
  return { ...found, events: first < 0 ? [] : found.events.slice(first) };
}

const isActive = ({ invocation: { status } }: Found) => status === 'running' || status === 'queued';
const isOver = (found: Found) => !isActive(found) && found.invocation.status !== 'paused';

/** Waits until a task ends or pauses, or until `signal` aborts. @returns the task as it stands then */
async function wait(call: A2aCall, ref: InvocationRef, signal: AbortSignal, shown = ALL): Promise<Found> {
  for await (const _ of readTurn(call.context, { ...ref, withText: false }, signal));
  return look(call, ref, shown);
}

/** Sends a message and waits for the end of its task, unless the client asks to return immediately. */
export async function sendMessage(call: A2aCall, params: z.output<typeof sendParams>): Promise<{ task: JsonObject }> {
  const { historyLength: length, returnImmediately } = params.configuration ?? {};
  let found = await begin(call, params);
  if (isActive(found) && returnImmediately !== true) {
    const left = new AbortController();
    call.response.once('close', () => left.abort());
    found = await wait(call, found, AbortSignal.any([left.signal, call.context.draining]));
  }
  return { task: toTask(toOwnPart(call, found, params.message), { historyLength: length }) };
}

/** Streams updates; called once the request has been accepted. */
export type Updates = (signal: AbortSignal) => AsyncGenerator<JsonObject>;

export async function streamMessage(call: A2aCall, params: z.output<typeof sendParams>): Promise<Updates> {
  const found = await begin(call, params);
  return follow(call, toOwnPart(call, found, params.message), params.configuration ?? {});
}

/** Streams a task: its current state, then updates. @throws {A2aError} if it has ended */
export async function subscribe(call: A2aCall, { id }: z.output<typeof taskParams>): Promise<Updates> {
  const found = await findTask(call, id);
  if (isOver(found)) throw new A2aError('UNSUPPORTED_OPERATION', `The task is over: ${found.invocation.status}.`);
  return follow(call, found, { fromAnswer: found.invocation.status === 'paused' });
}

/** @param fromAnswer - true for a paused task: updates start with the answer */
const follow = (
  call: A2aCall,
  found: Found,
  { historyLength, fromAnswer = false }: Shown & { fromAnswer?: boolean },
): Updates =>
  async function* updates(signal) {
    const { key, invocationId } = found;
    let { sequence: after } = found;
    yield { task: toTask(found, { historyLength }) };
    const toWait = { key, invocationId, withText: false, throughPauses: true };
    if (fromAnswer)
      for await (const step of readTurn(call.context, { ...toWait, after }, signal)) {
        if (step.kind === 'event') after = step.sequence;
        break;
      }
    if (!isActive(found) && !fromAnswer) return;
    yield* toUpdates(readTurn(call.context, { key, invocationId, after }, signal), found);
    if (!signal.aborted) yield toStatusUpdate(await look(call, found));
  };

export async function getTask(call: A2aCall, { id, ...shown }: z.output<typeof getParams>): Promise<JsonObject> {
  return toTask(await findTask(call, id, shown), shown);
}

/** The state of a task, without messages and artifacts. */
const STATE: Shown = { historyLength: 0, includeArtifacts: false };

/** Cancels a task, on whatever replica it runs. @throws {A2aError} if it has ended */
export async function cancelTask(call: A2aCall, { id }: z.output<typeof taskParams>): Promise<JsonObject> {
  const found = await findTask(call, id, STATE);
  if (isOver(found)) throw new A2aError('TASK_NOT_CANCELABLE', `The task is over: ${found.invocation.status}.`);
  await cancel(call.context, found.key, found.invocation.id);
  return toTask(await look(call, { key: found.key, invocationId: found.invocation.id }, STATE), STATE);
}

/** Lists a user's tasks with an application, most recently changed first. */
export async function listTasks(call: A2aCall, params: z.output<typeof listParams>): Promise<JsonObject> {
  const { pageSize, pageToken, status, statusTimestampAfter: since, ...shown } = params;
  const statuses = status ? toStatuses(status.replace('AUTH', 'INPUT')) : undefined;
  const after = pageToken ? readCursor(pageToken) : undefined;
  if (pageToken && !after) throw new A2aError('INVALID_PARAMS', 'pageToken: not one of this list');
  const time = since ? new Date(since) : undefined;
  // Only years that both JavaScript and PostgreSQL can represent.
  if (time && !(time.getUTCFullYear() >= 1 && time.getUTCFullYear() <= 9_999))
    throw new A2aError('INVALID_PARAMS', 'statusTimestampAfter: not a time');
  const { context, appName, userId } = call;
  const wanted = { sessionId: params.contextId || undefined, statuses, since: time?.toISOString() };
  const db = context.database.reads;
  const { rows, total } = await listInvocationsOfUser(db, { appName, userId }, wanted, after, pageSize + 1);
  const page = rows.slice(0, pageSize);
  const read = page.map(({ invocation }) => {
    return { key: { appName, userId, sessionId: invocation.sessionId }, invocationId: invocation.id, invocation };
  });
  const tasks = (await readEvents(call, read, shown)).map((found) => toTask(found, shown));
  const last = rows.length > tasks.length ? page[tasks.length - 1] : undefined;
  return { tasks, nextPageToken: last ? toCursor(last.place) : '', pageSize, totalSize: total };
}
