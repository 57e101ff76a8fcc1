import {
  type CallToolResult,
  MissingRequiredClientCapabilityError,
  type ServerContext,
} from '@modelcontextprotocol/server';
import { getAnswerText, type JsonObject } from '../../../core/content.ts';
import { InvalidError, NotFoundError } from '../../../core/errors.ts';
import type { Event } from '../../../core/event.ts';
import type { SessionKey } from '../../../core/session.ts';
import { listChosenEvents } from '../../../conversation/sessions/event-store.ts';
import { requestCancel } from '../../../invocations/fence.ts';
import type { Invocation } from '../../../invocations/invocation.ts';
import { type InvocationRef, readHandle, toHandle } from '../handle.ts';
import { startTurn } from '../start-turn.ts';
import { getCapabilities, type McpCall } from './mcp-call.ts';
import { toAnswers, toInputRequests } from './questions.ts';
import { toUri } from './resources.ts';
import { parseExactJson } from '../../../core/exact-json.ts';

/** The extension of the protocol for tasks. A task is an invocation: nothing else is stored. */
export const TASKS = 'io.modelcontextprotocol/tasks';

/** A client that asks more often learns nothing sooner. */
const POLL_INTERVAL_MS = 1_000;

/** An invocation with its events, those of one that runs left out. */
export interface Found extends InvocationRef {
  invocation: Invocation;
  events: Event[];
}

/** True for a client that can do tasks. */
export const hasTasks = (request: ServerContext['mcpReq']): boolean =>
  getCapabilities(request).extensions?.[TASKS] !== undefined;

/** @throws {MissingRequiredClientCapabilityError} for a client that did not say that it can do tasks */
export function requireTasks(request: ServerContext['mcpReq']): void {
  if (!hasTasks(request))
    throw new MissingRequiredClientCapabilityError({ requiredCapabilities: { extensions: { [TASKS]: {} } } });
}

/** Finds what a handle names among what its user has; `undefined` where there is nothing. */
export async function findTask(call: McpCall, handle: string): Promise<Found | undefined> {
  const ref = readHandle(handle, call.userId);
  return ref && call.appNames.includes(ref.key.appName) ? readTask(call, ref) : undefined;
}

/** Reads an invocation; where it does not run, with its events. */
export async function readTask({ context }: McpCall, { key, invocationId }: InvocationRef): Promise<Found | undefined> {
  const invocation = await context.feeds.readInvocation(key, invocationId);
  if (!invocation) return undefined;
  if (STATUS[invocation.status] === 'working') return { key, invocationId, invocation, events: [] };
  const { sessionId } = key;
  const isPaused = invocation.status === 'paused';
  // No result shows what its user said.
  const wanted = { sessionId, invocationId, said: 0, made: true, calls: isPaused };
  const [found = []] = await listChosenEvents(context.database.db, key, [wanted], 0);
  return { key, invocationId, invocation, events: found.map(({ text }) => parseExactJson(text) as Event) };
}

/**
 * Goes on with an invocation that waits for its user, once all is answered: nothing keeps half of the answers. Its row
 * keeps the idempotency key of the call that began it. @returns the ids of what still waits
 */
export async function resumeTask(call: McpCall, found: Found, sent: JsonObject): Promise<string[]> {
  const { key, invocationId, invocation, events } = found;
  if (invocation.status !== 'paused') return [];
  const { parts, missing } = toAnswers(events, sent);
  if (missing.length > 0) return missing;
  const turn = { content: { role: 'user', parts }, resumed: invocationId, overrides: {}, streaming: false };
  await startTurn(call.context, key, turn, { ...call, headers: {} });
  return [];
}

/** Returns an invocation as a result of a tool. */
export function toResult({ key, invocationId, invocation: { status, error }, events }: Found): CallToolResult {
  const said = events.filter(({ author }) => author !== 'user').map(({ content }) => getAnswerText(content));
  const text = error?.message ?? (status === 'paused' ? toPausedText(key, events) : (said.findLast(Boolean) ?? ''));
  const output = error ? undefined : events.findLast(({ author }) => author !== 'user')?.output;
  const value = output == null ? {} : { output };
  const saved = new Map(events.flatMap(({ actions }) => Object.entries(actions?.artifactDelta ?? {})));
  const links = [...saved].map(([name, version]) => ({
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

/** A confirmation is a person's: the model that called gets no way to give it. */
function toPausedText({ sessionId }: SessionKey, events: Event[]): string {
  const asked = Object.values(toInputRequests(events)).map(({ params }) => params.message);
  const where = `session ${sessionId} goes on once this is answered elsewhere`;
  return [`The agent waits for a person, whom this client cannot ask: ${where}.`, ...asked].join('\n');
}

const STATUS: Record<Invocation['status'], string> = {
  queued: 'working',
  running: 'working',
  paused: 'input_required',
  succeeded: 'completed',
  // In the words of the protocol only a broken request has failed: what an agent could not do is a result.
  failed: 'completed',
  interrupted: 'completed',
  cancelled: 'cancelled',
};

/** Returns an invocation as a task. */
export function toTask(found: Found) {
  const { status, createTime, startTime, endTime } = found.invocation;
  const toTime = (seconds: number) => new Date(seconds * 1000).toISOString();
  return {
    resultType: 'task',
    taskId: toHandle(found),
    status: STATUS[status],
    createdAt: toTime(createTime),
    lastUpdatedAt: toTime(endTime ?? startTime ?? createTime),
    // As long as its session is kept.
    ttlMs: null,
    pollIntervalMs: POLL_INTERVAL_MS,
  };
}

/** Answers how a task stands. @throws {NotFoundError} where its user has none of that id */
export async function getTask(call: McpCall, taskId: string): Promise<JsonObject> {
  const found = await requireTask(call, taskId);
  const task = { ...toTask(found), resultType: 'complete' };
  if (task.status === 'input_required') return { ...task, inputRequests: toInputRequests(found.events) };
  return task.status === 'completed' ? { ...task, result: toResult(found) } : task;
}

/** Cancels a task, on whatever replica it runs; one that has ended stays as it is. */
export async function cancelTask(call: McpCall, taskId: string): Promise<JsonObject> {
  const { key, invocationId } = await requireTask(call, taskId);
  await requestCancel(call.context, key, invocationId);
  return {};
}

/** Answers what a task waits for; what it does not wait for, or not any more, is passed over. */
export async function updateTask(call: McpCall, taskId: string, sent: JsonObject): Promise<JsonObject> {
  const missing = await resumeTask(call, await requireTask(call, taskId), sent);
  if (missing.length > 0) throw new InvalidError(`These wait for an answer, all in one update: ${missing.join(', ')}`);
  return {};
}

async function requireTask(call: McpCall, taskId: string): Promise<Found> {
  const found = await findTask(call, taskId);
  if (!found) throw new NotFoundError('Task not found.');
  return found;
}
