import {
  type CallToolResult,
  inputResponse,
  MissingRequiredClientCapabilityError,
  type ServerContext,
} from '@modelcontextprotocol/server';
import { getAnswerText, type JsonObject } from '../../../core/content.ts';
import { InvalidError, NotFoundError } from '../../../core/errors.ts';
import type { Event } from '../../../core/event.ts';
import type { SessionKey } from '../../../core/session.ts';
import { requestCancel } from '../../../invocations/cancel.ts';
import { type Invocation, isActive } from '../../../invocations/invocation.ts';
import { type Asked, begin, toReply } from '../door.ts';
import { type InvocationRef, readHandle, toHandle } from '../handle.ts';
import { answerCalls, listOpenCalls } from '../open-calls.ts';
import { readWholeTurn, toRunning, type WholeTurn } from '../turn.ts';
import { getCapabilities, type McpCall } from './mcp-call.ts';
import { toUri } from './resources.ts';

/** Name of the MCP extension for tasks. A task is an invocation; nothing else is stored for the task. */
export const TASKS = 'io.modelcontextprotocol/tasks';

/** Poll interval that clients are advised to use, because a shorter interval brings no earlier result. */
const POLL_INTERVAL_MS = 1_000;

/** An invocation with its events. The events of a {@link findTask} that still runs are not read. */
export type Task = Omit<WholeTurn, 'sequence'>;

export const hasTasks = (request: ServerContext['mcpReq']): boolean =>
  getCapabilities(request).extensions?.[TASKS] !== undefined;

/** @throws {MissingRequiredClientCapabilityError} if the client does not support tasks */
export function requireTasks(request: ServerContext['mcpReq']): void {
  if (!hasTasks(request))
    throw new MissingRequiredClientCapabilityError({ requiredCapabilities: { extensions: { [TASKS]: {} } } });
}

export async function findTask(call: McpCall, handle: string): Promise<Task | undefined> {
  const ref = readHandle(handle, call.userId);
  return ref && call.appNames.includes(ref.key.appName) ? readTask(call, ref) : undefined;
}

/** Reads an invocation, and its events unless the invocation is still running. */
export async function readTask({ context }: McpCall, { key, invocationId }: InvocationRef): Promise<Task | undefined> {
  const invocation = await context.feeds.readInvocation(key, invocationId);
  if (!invocation) return undefined;
  const turn = { key, invocationId, invocation };
  if (isActive(invocation)) return { ...turn, events: [] };
  // The user's messages are not read, because results do not contain them.
  return readWholeTurn(context, turn, { maxUserEvents: 0 }, 0);
}

/** A paused task asks to be resumed if every open call has an answer; any other is only read. */
export function readAnswers(task: Task, responses: JsonObject): { asked: Asked; missing: string[] } {
  if (task.invocation.status !== 'paused') return { asked: task, missing: [] };
  const { parts, missing } = toAnswers(task.events, responses);
  return { asked: toReply(toRunning(task), parts, { streaming: false }), missing };
}

export function toResult({ key, invocationId, invocation: { status, error }, events }: Task): CallToolResult {
  const answers = events.filter(({ author }) => author !== 'user');
  const texts = answers.map(({ content }) => getAnswerText(content));
  const text = error?.message ?? (status === 'paused' ? toPausedText(key, events) : (texts.findLast(Boolean) ?? ''));
  const output = error ? undefined : answers.at(-1)?.output;
  const value = output == null ? {} : { output };
  const artifacts = new Map(events.flatMap(({ actions }) => Object.entries(actions?.artifactDelta ?? {})));
  const links = [...artifacts].map(([name, version]) => ({
    type: 'resource_link' as const,
    name,
    uri: `${toUri({ ...key, artifactName: name })}?version=${String(version)}`,
  }));
  return {
    content: [{ type: 'text', text }, ...links],
    structuredContent: { session: key.sessionId, invocation: invocationId, status, text, ...value },
    ...(error ? { isError: true } : {}),
  };
}

/** Tells the calling model about a paused invocation, but not how to confirm a call, because only a person may. */
function toPausedText({ sessionId }: SessionKey, events: Event[]): string {
  const questions = Object.values(toInputRequests(events)).map(({ params }) => params.message);
  const where = `session ${sessionId} goes on once this is answered elsewhere`;
  return [`The agent waits for a person, whom this client cannot ask: ${where}.`, ...questions].join('\n');
}

const STATUS: Record<Invocation['status'], string> = {
  queued: 'working',
  running: 'working',
  paused: 'input_required',
  succeeded: 'completed',
  // `failed` in MCP means that the request could not be processed; the result contains an agent's error.
  failed: 'completed',
  interrupted: 'completed',
  cancelled: 'cancelled',
};

export function toTask(task: Task) {
  const { status, createTime, startTime, endTime } = task.invocation;
  const toTime = (seconds: number) => new Date(seconds * 1000).toISOString();
  return {
    resultType: 'task',
    taskId: toHandle(task),
    status: STATUS[status],
    createdAt: toTime(createTime),
    lastUpdatedAt: toTime(endTime ?? startTime ?? createTime),
    // `null` means that the task does not expire, because it exists as long as its session.
    ttlMs: null,
    pollIntervalMs: POLL_INTERVAL_MS,
  };
}

/** @throws {NotFoundError} if the user has no such task */
export async function getTask(call: McpCall, taskId: string): Promise<JsonObject> {
  const task = await requireTask(call, taskId);
  const view = { ...toTask(task), resultType: 'complete' };
  if (view.status === 'input_required') return { ...view, inputRequests: toInputRequests(task.events) };
  return view.status === 'completed' ? { ...view, result: toResult(task) } : view;
}

/** Cancels a task, on whatever replica it runs; a task that has ended stays as it is. */
export async function cancelTask(call: McpCall, taskId: string): Promise<JsonObject> {
  const { key, invocationId } = await requireTask(call, taskId);
  await requestCancel(call.context, key, invocationId);
  return {};
}

/** Answers the open calls of a task; answers to other calls are ignored. */
export async function updateTask(call: McpCall, taskId: string, answers: JsonObject): Promise<JsonObject> {
  const { asked, missing } = readAnswers(await requireTask(call, taskId), answers);
  if (missing.length > 0) throw new InvalidError(`These wait for an answer, all in one update: ${missing.join(', ')}`);
  await begin(call, asked);
  return {};
}

async function requireTask(call: McpCall, taskId: string): Promise<Task> {
  const task = await findTask(call, taskId);
  if (!task) throw new NotFoundError('Task not found.');
  return task;
}

/** Maximum number of characters of a call's arguments that its question quotes. */
const MAX_QUOTED = 2_000;

const CONFIRM = {
  type: 'object',
  properties: { confirmed: { type: 'boolean', title: 'Allow it' } },
  required: ['confirmed'],
};
const ANSWER = { type: 'object', properties: { answer: { type: 'string', title: 'Answer' } }, required: ['answer'] };

/** True if the client can show forms to a person. An empty capability `elicitation` means that it can. */
export function hasForms(request: ServerContext['mcpReq']): boolean {
  const { elicitation } = getCapabilities(request);
  return elicitation !== undefined && (elicitation.form !== undefined || Object.keys(elicitation).length === 0);
}

/** Returns the open questions of a paused invocation as MCP forms, by call id. */
export const toInputRequests = (events: Event[]) =>
  Object.fromEntries(
    listOpenCalls(events).map(({ id, kind, shown: { name, args }, message }) => {
      const quotation = `${name} ${JSON.stringify(args)}`;
      const excerpt = quotation.length > MAX_QUOTED ? `${quotation.slice(0, MAX_QUOTED).toWellFormed()}…` : quotation;
      const params = {
        mode: 'form',
        message: [message, excerpt].filter(Boolean).join('\n'),
        requestedSchema: kind === 'confirmation' ? CONFIRM : ANSWER,
      };
      return [id, { method: 'elicitation/create', params }];
    }),
  );

/** Answers to a paused invocation's open calls, and ids of unanswered calls. Only a clear yes confirms. */
const toAnswers = (events: Event[], responses: Record<string, unknown>): ReturnType<typeof answerCalls> =>
  answerCalls(listOpenCalls(events), ({ id, kind }) => {
    const answer = inputResponse(responses, id);
    if (answer.kind !== 'elicit') return undefined;
    const form = answer.action === 'accept' ? (answer.content ?? {}) : undefined;
    if (kind === 'confirmation') return { confirmed: form?.['confirmed'] === true };
    return form ? { result: form['answer'] ?? null } : { error: 'It was declined.' };
  });
