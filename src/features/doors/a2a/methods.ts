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

/** Bytes of events of a page of tasks, but for its first one. */
const MAX_PAGE = 4_194_304;

/** Dependencies of this door. */
export interface A2aContext extends InvocationContext {
  config: Pick<Config, 'auth' | 'A2A_CARD_KEY' | 'PUBLIC_URL' | 'WEBHOOKS' | 'WEBHOOKS_ALLOWED_HOSTS'>;
  version: string;
}

/** One request of a client of an application, and whose it is. */
export interface A2aCall extends TurnCall {
  context: A2aContext;
  principal: Principal;
  appName: string;
  userId: string;
  /** Address of the service. */
  base: string;
  /** True: in the words of 0.3. */
  isOld: boolean;
}

/** Sends a message, and has the address that it names told of its task. */
async function begin(call: A2aCall, { message, configuration }: z.output<typeof sendParams>): Promise<Found> {
  const push = configuration?.taskPushNotificationConfig;
  if (push) checkPush(call, push);
  const found = await start(call, message);
  if (push) await createPush(call, { ...push, taskId: toHandle(found) });
  return found;
}

/** Sends a message: a new task, or the answer to what one waits for. @returns the task as it stands */
async function start(call: A2aCall, message: A2aMessage): Promise<Found> {
  const { context, appName, userId } = call;
  const { messageId, contextId, taskId, metadata: _, ...requested } = message;
  const parts = toParts(message);
  if (taskId !== undefined) return goOn(call, taskId, message, parts);
  // The same message again means the same new session, and the same task.
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
  // Its row keeps the key of the message that began it.
  return look(call, await startTurn(call.context, key, turn, { ...call, headers: {} }));
}

/** Reads which agents wait for the answer, and are not asked in turn, and the calls, tokens and time it may take. */
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

/** Returns the answers of a message to what a task asks: by `callId`, or all of it where there is one question. */
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
    // What is not a clear yes is a no.
    const said = typeof given === 'string' ? { confirmed: /^\s*yes\W*$/i.test(given) } : toMembers(given);
    return { ...said, confirmed: said['confirmed'] === true };
  });
}

/** Of an invocation all that it has. */
const ALL: Shown = {};

/** Reads an invocation with those of its events that are shown. @throws {A2aError} where it is gone */
async function look(call: A2aCall, { key, invocationId }: InvocationRef, shown = ALL): Promise<Found> {
  const invocation = await call.context.feeds.readInvocation(key, invocationId);
  if (!invocation) throw new A2aError('TASK_NOT_FOUND', 'Task not found.');
  const [found] = await readEvents(call, [{ key, invocationId, invocation }], shown);
  return found as Found;
}

/** Reads those events of invocations that are shown: of those behind the first as many as a page may have. */
async function readEvents(
  { context, base, appName, userId }: A2aCall,
  read: Omit<Found, 'events' | 'sequence' | 'base'>[],
  { historyLength, includeArtifacts: made = true }: Shown,
): Promise<Found[]> {
  const wanted = read.map(({ key, invocationId, invocation: { status } }) => {
    const { sessionId } = key;
    return { sessionId, invocationId, said: historyLength ?? undefined, made, calls: status === 'paused' };
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

/** Returns a task as a client sees it that has sent a message of it: without the scope to read from there on. */
function toOwnPart({ principal }: A2aCall, found: Found, { messageId }: A2aMessage): Found {
  if (principal.scopes.has('read')) return found;
  const first = found.events.findIndex((event) => getMessageId(event) === messageId);
  return { ...found, events: first < 0 ? [] : found.events.slice(first) };
}

const isActive = ({ invocation: { status } }: Found) => status === 'running' || status === 'queued';
const isOver = (found: Found) => !isActive(found) && found.invocation.status !== 'paused';

/** Waits for the end of a task, or until it asks something. @returns it as it stands then, or when `signal` aborts */
async function wait(call: A2aCall, ref: InvocationRef, signal: AbortSignal, shown = ALL): Promise<Found> {
  for await (const _ of readTurn(call.context, { ...ref, withText: false }, signal));
  return look(call, ref, shown);
}

/** Sends a message, and waits for the end unless it is not to. */
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

/** The events of a stream, once its request is accepted. */
export type Updates = (signal: AbortSignal) => AsyncGenerator<JsonObject>;

/** Sends a message, and tells what becomes of it. */
export async function streamMessage(call: A2aCall, params: z.output<typeof sendParams>): Promise<Updates> {
  const found = await begin(call, params);
  return follow(call, toOwnPart(call, found, params.message), params.configuration ?? {});
}

/** Tells what becomes of a task that is under way: as it stands, then all that comes. */
export async function subscribe(call: A2aCall, { id }: z.output<typeof taskParams>): Promise<Updates> {
  const found = await findTask(call, id);
  if (isOver(found)) throw new A2aError('UNSUPPORTED_OPERATION', `The task is over: ${found.invocation.status}.`);
  return follow(call, found, { fromAnswer: found.invocation.status === 'paused' });
}

/** @param fromAnswer - true for a task that waits: what is told comes once it is answered */
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

/** Answers how a task stands. */
export async function getTask(call: A2aCall, { id, ...shown }: z.output<typeof getParams>): Promise<JsonObject> {
  return toTask(await findTask(call, id, shown), shown);
}

/** The state of a task alone. */
const STATE: Shown = { historyLength: 0, includeArtifacts: false };

/** Cancels a task, on whatever replica it runs. @returns how it stands @throws {A2aError} for one that is over */
export async function cancelTask(call: A2aCall, { id }: z.output<typeof taskParams>): Promise<JsonObject> {
  const found = await findTask(call, id, STATE);
  if (isOver(found)) throw new A2aError('TASK_NOT_CANCELABLE', `The task is over: ${found.invocation.status}.`);
  await cancel(call.context, found.key, found.invocation.id);
  return toTask(await look(call, { key: found.key, invocationId: found.invocation.id }, STATE), STATE);
}

/** Lists the tasks that a user has with an application, those that changed last first. */
export async function listTasks(call: A2aCall, params: z.output<typeof listParams>): Promise<JsonObject> {
  const { pageSize, pageToken, status, statusTimestampAfter: since, ...shown } = params;
  const statuses = status ? toStatuses(status.replace('AUTH', 'INPUT')) : undefined;
  const after = pageToken ? readCursor(pageToken) : undefined;
  if (pageToken && !after) throw new A2aError('INVALID_PARAMS', 'pageToken: not one of this list');
  const time = since ? new Date(since) : undefined;
  // Years that both JavaScript and PostgreSQL know.
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
