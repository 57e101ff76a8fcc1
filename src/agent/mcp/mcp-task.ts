import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { AgentError, UnknownOutcomeError } from '../../core/errors.ts';
import { abortError } from '../../core/abort.ts';
import type { JsonObject } from '../../core/content.ts';
import type { ToolContext } from '../definition/tool.ts';
import { sendRequest, type CallResult, checkResult, type Connected } from './mcp-request.ts';
import { toMcpError } from './mcp-error.ts';
import { type OpenQuestions, type readAnswers, toOpenQuestions } from './mcp-question.ts';
import { received } from './mcp-wire.ts';

/** Name of the MCP extension for tasks: a server responds to a long call with a task that the client polls. */
export const TASKS = 'io.modelcontextprotocol/tasks';
/** Limits and default of the polling interval, which a server may choose; below, how many polls in a row may fail. */
const POLL_MS = { least: 100, usual: 1_000, most: 30_000 };
const MAX_FAILURES = 5;

const task = z.looseObject({
  taskId: z.string().min(1).max(1_024),
  status: z.enum(['working', 'input_required', 'completed', 'failed', 'cancelled']),
  pollIntervalMs: z.number().optional(),
  result: z.looseObject({}).optional(),
  error: z.looseObject({ code: z.number() }).optional(),
  inputRequests: z.record(z.string(), z.looseObject({})).optional(),
});

/** @throws {Error} if the server responded with a task that has no id */
export const getTaskId = (answer: Record<string, unknown>): string | undefined =>
  answer['resultType'] === 'task' ? task.parse(answer).taskId : undefined;

/**
 * Polls a task until it ends or asks the user. If the invocation ends, the task is cancelled; if only this process
 * stops, it is not, because another process goes on polling.
 */
export async function followTask(
  connected: Connected,
  name: string,
  context: ToolContext,
  taskId: string,
  before: ReturnType<typeof readAnswers>,
): Promise<{ result?: CallResult; pending?: OpenQuestions }> {
  const { signal } = context;
  const send = <Result>(method: string, more: JsonObject, toResult: (answer: Record<string, unknown>) => Result) =>
    sendRequest(
      connected,
      `\`${name}\``,
      context,
      async (options) =>
        toResult(
          await connected.client.request({ method, params: { taskId, ...more } }, received(z.looseObject({})), options),
        ),
      { Unsure: UnknownOutcomeError },
    );
  await context.keep({ taskId });
  const answers = { ...before?.pending.answers, ...before?.answers };
  try {
    if (before?.pending.taskId !== undefined) await send('tasks/update', { inputResponses: before.answers }, () => {});
    for (let failures = 0; ; ) {
      const step = await send('tasks/get', {}, (state) => toStep(state, taskId, answers)).catch((error: unknown) => {
        failures += 1;
        if (signal.aborted) throw error;
        const isOver = connected.bounded.failure || failures >= MAX_FAILURES || !(error instanceof UnknownOutcomeError);
        if (isOver) throw new UnknownOutcomeError('mcp_failed', (error as Error).message);
        return { waitMs: POLL_MS.usual };
      });
      if ('failure' in step) throw toMcpError(connected.server, `failed in \`${name}\``, step.failure, signal);
      if (!('waitMs' in step)) return step;
      await sleep(step.waitMs, undefined, { signal });
    }
  } finally {
    if (signal.aborted && abortError(signal).code !== 'interrupted') {
      const cancelling = connected.client.request({ method: 'tasks/cancel', params: { taskId } }, z.looseObject({}));
      connected.ending.push(cancelling.catch(() => {}));
    }
  }
}

type Step = { result: CallResult } | { pending: OpenQuestions } | { failure: AgentError } | { waitMs: number };

function toStep(state: Record<string, unknown>, taskId: string, answers: NonNullable<OpenQuestions['answers']>): Step {
  const { status, result, error, inputRequests = {}, pollIntervalMs } = task.parse(state);
  if (status === 'completed') return { result: checkResult(result ?? {}) };
  if (status === 'failed' || status === 'cancelled') {
    const how = status === 'failed' ? `failed with error ${error?.code ?? 'unknown'}` : 'was cancelled';
    return { failure: new AgentError('mcp_failed', `Its task ${how}.`) };
  }
  const open = Object.entries(inputRequests).filter(([key]) => !Object.hasOwn(answers, key));
  if (status === 'input_required' && open.length > 0)
    return { pending: toOpenQuestions(Object.fromEntries(open), { taskId, answers }) };
  return { waitMs: Math.min(Math.max(pollIntervalMs ?? POLL_MS.usual, POLL_MS.least), POLL_MS.most) };
}
