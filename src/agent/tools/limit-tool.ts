import { setTimeout as delay } from 'node:timers/promises';
import { orAborted } from '../../core/abort.ts';
import { AgentError, ChildWaitsError, UnknownOutcomeError } from '../../core/errors.ts';
import { FairSemaphore } from '../../platform/work/fair-semaphore.ts';
import { getEffect, type Tool, type ToolContext, type ToolLimits } from '../definition/tool.ts';
import { cloneJson } from '../../core/exact-json.ts';

/** Pause before the first retry, in milliseconds; it doubles with each retry. */
const RETRY_DELAY_MS = 200;

/** Semaphores that limit concurrent calls in this process; users take turns. A key object belongs to one tool of one agent. */
const places = new WeakMap<ToolLimits, FairSemaphore>();

const isRepeatable = (tool: Tool) => ['none', 'idempotent'].includes(getEffect(tool));

/** @throws {AgentError} for retries of a tool whose effect is neither `none` nor `idempotent` */
export function limitTool(tool: Tool, limits: ToolLimits): Tool {
  const { concurrency, retries = 0 } = limits;
  if (retries > 0 && !isRepeatable(tool)) {
    const why = 'has retries, and its effect is not `none` or `idempotent`: declare that, or leave them out';
    throw new AgentError('unknown_tool', `The tool \`${tool.name}\` ${why}.`);
  }
  if (concurrency !== undefined && !places.has(limits)) places.set(limits, new FairSemaphore(concurrency));
  return {
    ...tool,
    limits,
    run: async (args, context) => {
      const release = await places.get(limits)?.acquire(context.session.userId, context.signal);
      try {
        return await runWithRetries(tool, limits, args, context);
      } finally {
        release?.();
      }
    },
  };
}

async function runWithRetries(
  tool: Tool,
  limits: ToolLimits,
  args: Parameters<Tool['run']>[0],
  context: ToolContext,
): Promise<unknown> {
  const { retries = 0 } = limits;
  const before = cloneJson(context.actions);
  const attachmentCount = context.attachments.length;
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await runInTime(tool, limits.timeoutMs, args, context);
    } catch (error) {
      const isRefused = error instanceof AgentError && error.code === 'egress_denied';
      const isFinal = isRefused || error instanceof ChildWaitsError;
      if (attempt >= retries || isFinal || context.signal.aborted) throw error;
      context.log.warn('a call failed and is made again', { attempt: attempt + 1 });
      // Removes the event actions that the failed attempt had set, so that a retry starts without them.
      for (const name of Object.keys(context.actions)) delete context.actions[name as keyof typeof before];
      Object.assign(context.actions, cloneJson(before));
      context.attachments.length = attachmentCount;
      await delay(RETRY_DELAY_MS * 2 ** attempt, undefined, { signal: context.signal });
    }
  }
}

/** @throws {UnknownOutcomeError} if the time limit is exceeded and the call may have taken effect */
async function runInTime(
  tool: Tool,
  timeoutMs: number | undefined,
  args: Parameters<Tool['run']>[0],
  context: ToolContext,
): Promise<unknown> {
  if (timeoutMs === undefined) return tool.run(args, context);
  const late = new AbortController();
  const text = `The tool took longer than ${timeoutMs} ms.`;
  const error = getEffect(tool) === 'once' ? new UnknownOutcomeError('tool_failed', text) : new Error(text);
  const timer = setTimeout(() => late.abort(error), timeoutMs);
  const signal = AbortSignal.any([context.signal, late.signal]);
  try {
    const callAgent: ToolContext['callAgent'] = (agent, request, own = signal) =>
      context.callAgent(agent, request, own);
    return await orAborted(tool.run(args, { ...context, signal, callAgent }), signal);
  } catch (failure) {
    throw late.signal.aborted && !context.signal.aborted ? error : failure;
  } finally {
    clearTimeout(timer);
  }
}
