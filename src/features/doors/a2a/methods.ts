import { hash } from 'node:crypto';
import { isActive } from '../../../invocations/invocation.ts';
import type { z } from 'zod';
import { CALLS, CHAIN, CHAIN_STATE, TIME, TOKENS } from '../../../agent/a2a/wire.ts';
import type { Config } from '../../../config/config.ts';
import { type JsonObject, toMembers } from '../../../core/content.ts';
import { cancel } from '../../../invocations/cancel.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { enableOutbox, listInvocationsOfUser } from '../../../invocations/invocation-store.ts';
import { newSecret, toAddress, toEgressPolicy, type WebhookSettings } from '../../../invocations/webhooks/address.ts';
import { insertDelivery } from '../../../invocations/webhooks/delivery-store.ts';
import {
  deleteWebhook,
  listPushes,
  replacePush,
  type WebhookRow,
} from '../../../invocations/webhooks/webhook-store.ts';
import { requireScope } from '../../../platform/http/access/authorize.ts';
import { toCursor, readCursor } from '../../../platform/http/operation/cursor.ts';
import type { Principal } from '../../../platform/http/operation/principal.ts';
import { ValidationFailedError } from '../../../platform/http/operation/request-errors.ts';
import { answerWhole, type Asked, begin, type DoorCall, toReply, type TurnRequest } from '../door.ts';
import { type InvocationRef, toHandle } from '../handle.ts';
import { answerCalls, listOpenCalls, toResponse } from '../open-calls.ts';
import { readTurn, readWholeTurn, readWholeTurns, toRunning, type WholeTurn } from '../turn.ts';
import { A2aError } from './errors.ts';
import type {
  A2aMessage,
  A2aPush,
  createPushParams,
  getParams,
  listParams,
  pushParams,
  sendParams,
  taskParams,
} from './params.ts';
import type { A2aSettings } from './settings.ts';
import {
  type Task,
  getMessageId,
  type TaskView,
  toParts,
  toRef,
  toStatuses,
  toStatusUpdate,
  toTask,
  toUpdates,
} from './task.ts';

/** Maximum bytes of events on a page of tasks. The first task of a page may exceed the maximum. */
const MAX_PAGE = 4_194_304;

export interface A2aContext extends InvocationContext {
  config: Pick<Config, 'auth' | 'PUBLIC_URL'> & A2aSettings & WebhookSettings;
  version: string;
}

export interface A2aCall extends DoorCall {
  context: A2aContext;
  principal: Principal;
  appName: string;
  userId: string;
  base: string;
  /** True: the client speaks version 0.3. */
  isOld: boolean;
}

/** A message starts a task or answers a paused one. */
async function send(call: A2aCall, { message, configuration }: z.output<typeof sendParams>): Promise<InvocationRef> {
  const push = configuration?.taskPushNotificationConfig;
  if (push) checkPush(call, push);
  const asked =
    message.taskId === undefined ? readPrompt(call, message) : await readAnswer(call, message.taskId, message);
  const ref = await begin(call, asked);
  if (push) await createPush(call, { ...push, taskId: toHandle(ref) });
  return ref;
}

function readPrompt({ appName, userId, headers }: A2aCall, message: A2aMessage): Asked {
  const { messageId, contextId, taskId: _, metadata: __, ...comparable } = message;
  // The idempotency key and a new session's id derive from the message id, so a retry reaches the same session.
  const idempotencyKey = hash('sha256', JSON.stringify([appName, contextId, messageId]));
  const key = { appName, userId, sessionId: contextId ?? idempotencyKey };
  const content = { role: 'user', parts: toParts(message) };
  const turn = { content, ...toLimits(message), identity: [key, comparable] };
  return { key, turn, headers: { ...headers, 'idempotency-key': idempotencyKey } };
}

async function readAnswer(call: A2aCall, taskId: string, message: A2aMessage): Promise<Asked> {
  const [{ partMetadata } = {}] = toParts(message);
  const task = await findTask(call, taskId);
  const { key, invocation, events } = task;
  if (message.contextId !== undefined && message.contextId !== key.sessionId)
    throw new A2aError('INVALID_PARAMS', 'message.contextId: the task is of another context');
  if (events.some((event) => getMessageId(event) === message.messageId)) return task;
  if (invocation.status !== 'paused') {
    const way = isActive(invocation) ? ' One of its context, without the taskId, can steer it (X-Double-Texting).' : '';
    const reason = `The task does not wait for a message: it is ${invocation.status}.${way}`;
    throw new A2aError('UNSUPPORTED_OPERATION', reason);
  }
  const answers = toAnswers(task, message);
  if (answers.missing.length > 0)
    throw new A2aError('INVALID_PARAMS', `Each waits for a part data with its callId: ${answers.missing.join(', ')}`);
  const [first, ...rest] = answers.parts;
  return toReply(toRunning(task), [{ ...first, partMetadata }, ...rest], toLimits(message));
}

/** The chain of agents that wait for this task and must not be called again, and limits of calls, tokens and time. */
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

/** Matches the message's parts with the task's open questions by `callId`, or the whole message if only one is open. */
function toAnswers({ events }: Task, { parts }: A2aMessage): ReturnType<typeof answerCalls> {
  const questions = listOpenCalls(events);
  const values = parts.flatMap(({ data }) => (data == null ? [] : [data]));
  const byCallId = new Map(values.map((data) => [toMembers(data)['callId'], toMembers(data)]));
  byCallId.delete(undefined);
  const plain = values.find((data) => toMembers(data)['callId'] === undefined);
  const text = parts.map((part) => part.text ?? '').join('');
  const isOnly = questions.length === 1 && byCallId.size === 0;
  return answerCalls(questions, ({ id, kind }) => {
    const { callId, response, ...members } = byCallId.get(id) ?? {};
    if (callId === undefined && !isOnly) return undefined;
    const value = callId === undefined ? (plain ?? text) : response === undefined ? members : response;
    if (kind !== 'confirmation') return toResponse(value);
    // Any text other than "yes" refuses the confirmation.
    const decision = typeof value === 'string' ? { confirmed: /^\s*yes\W*$/i.test(value) } : toMembers(value);
    return { ...decision, confirmed: decision['confirmed'] === true };
  });
}

/** @throws {A2aError} if the task does not exist */
async function readTask(call: A2aCall, { key, invocationId }: InvocationRef, view: TaskView = {}): Promise<Task> {
  const invocation = await call.context.feeds.readInvocation(key, invocationId);
  if (!invocation) throw new A2aError('TASK_NOT_FOUND', 'Task not found.');
  const turn = await readWholeTurn(call.context, { key, invocationId, invocation }, toSelection(view), MAX_PAGE);
  return { ...(turn as WholeTurn), base: call.base };
}

const toSelection = ({ historyLength, includeArtifacts: agentEvents }: TaskView) => ({
  maxUserEvents: historyLength ?? undefined,
  agentEvents,
});

/** Reads the events that `view` includes; after the first task only as many as fit on a page. */
async function readTasks(
  { context: { database }, base, ...user }: A2aCall,
  refs: Omit<Task, 'events' | 'sequence' | 'base'>[],
  view: TaskView,
): Promise<Task[]> {
  const turns = await readWholeTurns(database.reads, user, refs, toSelection(view), MAX_PAGE);
  return turns.map((turn) => ({ ...turn, base }));
}

const findTask = (call: A2aCall, taskId: string, view: TaskView = {}) => readTask(call, toRef(call, taskId), view);

/** Removes the events before the client's own message if the client's credential lacks the scope `read`. */
function toOwnPart({ principal }: A2aCall, task: Task, { messageId }: A2aMessage): Task {
  if (principal.scopes.has('read')) return task;
  const first = task.events.findIndex((event) => getMessageId(event) === messageId);
  return { ...task, events: first < 0 ? [] : task.events.slice(first) };
}

const isOver = ({ invocation }: Task) => !isActive(invocation) && invocation.status !== 'paused';

/** Sends a message and waits for the end of its task, unless the client asks to return immediately. */
export async function sendMessage(call: A2aCall, params: z.output<typeof sendParams>): Promise<{ task: JsonObject }> {
  const { historyLength, returnImmediately = false } = params.configuration ?? {};
  const ref = await send(call, params);
  const asItStands = () => readTask(call, ref);
  const whole = (turn: WholeTurn): Task => ({ ...turn, base: call.base });
  const task = await (returnImmediately ? asItStands() : answerWhole(call, ref, { whole, left: asItStands }));
  return { task: toTask(toOwnPart(call, task, params.message), { historyLength }) };
}

/** A function that streams a task's updates. It is called when the request has been accepted. */
export type Updates = (signal: AbortSignal) => AsyncGenerator<JsonObject>;

export async function streamMessage(call: A2aCall, params: z.output<typeof sendParams>): Promise<Updates> {
  const ref = await send(call, params);
  const task = { ...(await readTask(call, ref)), run: ref.run };
  return follow(call, toOwnPart(call, task, params.message), params.configuration ?? {});
}

/** Streams a task: its current state, then updates. @throws {A2aError} if the task has ended */
export async function subscribe(call: A2aCall, { id }: z.output<typeof taskParams>): Promise<Updates> {
  const task = await findTask(call, id);
  if (isOver(task)) throw new A2aError('UNSUPPORTED_OPERATION', `The task is over: ${task.invocation.status}.`);
  return follow(call, task, { fromAnswer: task.invocation.status === 'paused' });
}

/** @param fromAnswer - true for a task that had paused: updates start with the answer that resumed the task */
const follow = (
  call: A2aCall,
  task: Task,
  { historyLength, fromAnswer = false }: TaskView & { fromAnswer?: boolean },
): Updates =>
  async function* updates(signal) {
    const { key, invocationId, run } = task;
    let { sequence: after } = task;
    yield { task: toTask(task, { historyLength }) };
    const toWait = { key, invocationId, withText: false, throughPauses: true };
    if (fromAnswer)
      for await (const step of readTurn(call.context, { ...toWait, after }, signal)) {
        if (step.kind === 'event') after = step.sequence;
        break;
      }
    if (!isActive(task.invocation) && !fromAnswer) return;
    const end = yield* toUpdates(readTurn(call.context, { key, invocationId, after, run }, signal), task);
    if (signal.aborted) return;
    // The status of a paused task contains its questions, which are in its events.
    const isKnown = end && end.status !== 'paused';
    yield toStatusUpdate(isKnown ? { ...task, invocation: end } : await readTask(call, task));
  };

export async function getTask(call: A2aCall, { id, ...view }: z.output<typeof getParams>): Promise<JsonObject> {
  return toTask(await findTask(call, id, view), view);
}

/** The state of a task, without messages and artifacts. */
const STATE: TaskView = { historyLength: 0, includeArtifacts: false };

/** Cancels a task, on whatever replica it runs. @throws {A2aError} if the task has ended */
export async function cancelTask(call: A2aCall, { id }: z.output<typeof taskParams>): Promise<JsonObject> {
  const task = await findTask(call, id, STATE);
  if (isOver(task)) throw new A2aError('TASK_NOT_CANCELABLE', `The task is over: ${task.invocation.status}.`);
  const { id: runs } = task.invocation;
  if (runs !== task.invocationId)
    throw new A2aError('TASK_NOT_CANCELABLE', `Its message cannot be taken back: invocation ${runs} has it.`);
  await cancel(call.context, task.key, runs);
  return toTask(await readTask(call, { key: task.key, invocationId: task.invocation.id }, STATE), STATE);
}

export async function listTasks(call: A2aCall, params: z.output<typeof listParams>): Promise<JsonObject> {
  const { pageSize, pageToken, status, statusTimestampAfter: since, ...view } = params;
  const statuses = status ? toStatuses(status.replace('AUTH', 'INPUT')) : undefined;
  const after = pageToken ? readCursor(pageToken) : undefined;
  if (pageToken && !after) throw new A2aError('INVALID_PARAMS', 'pageToken: not one of this list');
  const time = since ? new Date(since) : undefined;
  // Refuses years that either JavaScript or PostgreSQL cannot represent.
  if (time && !(time.getUTCFullYear() >= 1 && time.getUTCFullYear() <= 9_999))
    throw new A2aError('INVALID_PARAMS', 'statusTimestampAfter: not a time');
  const { context, appName, userId } = call;
  const filter = { sessionId: params.contextId || undefined, statuses, since: time?.toISOString() };
  const db = context.database.reads;
  const { rows, total } = await listInvocationsOfUser(db, { appName, userId }, filter, after, pageSize + 1);
  const page = rows.slice(0, pageSize);
  const invocations = page.map(({ invocation }) => {
    return { key: { appName, userId, sessionId: invocation.sessionId }, invocationId: invocation.id, invocation };
  });
  const tasks = (await readTasks(call, invocations, view)).map((task) => toTask(task, view));
  const last = rows.length > tasks.length ? page[tasks.length - 1] : undefined;
  return { tasks, nextPageToken: last ? toCursor(last.place) : '', pageSize, totalSize: total };
}

/** Maximum number of push configurations of a task. */
const MAX_PUSHES = 10;
const NO_PUSH = 'Push notifications are not supported here: subscribe to the task.';

/** @throws {A2aError} if webhooks are disabled */
export function requirePush({ context }: A2aCall): void {
  if (!context.config.WEBHOOKS) throw new A2aError('PUSH_NOTIFICATION_NOT_SUPPORTED', NO_PUSH);
}

/** Validates the URL of a push configuration before the task starts. @throws {A2aError} */
function checkPush(call: A2aCall, { url }: A2aPush): URL {
  requirePush(call);
  requireScope(call.principal, { scope: 'write', because: 'it registers an address.' });
  try {
    return toAddress(url, toEgressPolicy(call.context.config));
  } catch (error) {
    if (!(error instanceof ValidationFailedError)) throw error;
    throw new A2aError('INVALID_PARAMS', `url: ${error.details[0]?.msg}`);
  }
}

const toKey = ({ appName, userId }: A2aCall, taskId: string, id: string) => ({
  appName,
  userId,
  id: hash('sha256', JSON.stringify([userId, taskId, id])),
});

/** Replaces a push configuration of the same id. Notified when the task ends or pauses, or at once if it has. */
export async function createPush(
  call: A2aCall,
  { taskId, ...request }: z.output<typeof createPushParams>,
): Promise<JsonObject> {
  const { href: url, host } = checkPush(call, request);
  const ref = toRef(call, taskId);
  const { id = 'default', token, authentication } = request;
  const { scheme, credentials = '' } = authentication ?? {};
  const ids = { sessionId: ref.key.sessionId, invocationId: ref.invocationId };
  const push = {
    ...ids,
    isOld: call.isOld,
    shown: { id, taskId, token, ...(scheme && { authentication: { scheme } }) },
    headers: {
      ...(!call.isOld && { 'content-type': 'application/a2a+json' }),
      ...(token && { 'x-a2a-notification-token': token }),
      ...(scheme && { authorization: `${scheme} ${credentials}`.trim() }),
    },
  };
  const hook = { ...toKey(call, taskId, id), url, host, secret: newSecret(), includesOutput: false, push };
  await call.context.database.transaction(async (tx) => {
    // With the task's row locked, a task that has ended gets its delivery here, and any other when it ends.
    const status = await enableOutbox(tx, ref);
    if (!status) throw new A2aError('TASK_NOT_FOUND', 'Task not found.');
    const others = (await listPushes(tx, hook, taskId)).filter((other) => other.id !== hook.id);
    if (others.length >= MAX_PUSHES)
      throw new A2aError('INVALID_PARAMS', `The task has ${MAX_PUSHES} configurations, the most. Delete one first.`);
    await replacePush(tx, hook);
    if (!isActive({ status })) await insertDelivery(tx, hook, 'task', { ...ids, status });
  });
  return toConfig(hook);
}

/** Leaves the credentials out. */
const toConfig = ({ url, push }: Pick<WebhookRow, 'url' | 'push'>): JsonObject => ({ ...push?.shown, url });

export async function listPush(call: A2aCall, { taskId }: { taskId: string }): Promise<{ configs: JsonObject[] }> {
  toRef(call, taskId);
  return { configs: (await listPushes(call.context.database.reads, call, taskId)).map(toConfig) };
}

/** Finds a push configuration by id, without id the task's first. @throws {A2aError} if it does not exist */
export async function getPush(call: A2aCall, { taskId, id }: z.output<typeof pushParams>): Promise<JsonObject> {
  const config = (await listPush(call, { taskId })).configs.find((each) => id === undefined || each['id'] === id);
  if (!config) throw new A2aError('TASK_NOT_FOUND', 'The task has no such push notification configuration.');
  return config;
}

/** Deletes a push configuration and its pending deliveries. Idempotent. */
export async function deletePush(call: A2aCall, { taskId, id = '' }: z.output<typeof pushParams>): Promise<JsonObject> {
  toRef(call, taskId);
  await deleteWebhook(call.context.database.db, toKey(call, taskId, id));
  return {};
}
