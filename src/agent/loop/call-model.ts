import { waitsUntil } from '../../core/abort.ts';
import { getAnswerText } from '../../core/content.ts';
import { AgentError } from '../../core/errors.ts';
import type { NewEvent } from '../../core/event.ts';
import type { AgentNode, NamedModel } from '../definition/tool.ts';
import type { FailedTry, ModelAnswer, ModelDelta, ModelRequest } from '../definition/model.ts';
import { answerRoom } from './estimate.ts';
import { countCall, countTokens, type InvocationState } from './invocation-state.ts';

/** Maximum number of failed model attempts that one event lists. */
const MAX_FAILED_TRIES = 32;
/** Codes of errors that the request itself caused. They do not count for the provider's circuit breaker. */
const REQUEST_ERRORS = new Set(['model_rejected', 'model_not_found']);

/** The failed attempts before the model's output, and the model that produced it if that was a fallback. */
export interface ModelNotes {
  failedTries: FailedTry[];
  answeredBy?: { provider: string; model: string };
}

export function noteTry({ failedTries }: ModelNotes, failed: FailedTry): void {
  if (failedTries.length < MAX_FAILED_TRIES) failedTries.push(failed);
}

export const withNotes = (event: NewEvent, notes: ModelNotes): NewEvent =>
  notes.failedTries.length === 0 ? event : { ...event, customMetadata: { ...event.customMetadata, model: notes } };

/**
 * Calls an agent's model and, if it fails without output, its fallback models in order. Budgets reserve and count each
 * call under the name of the model that is called.
 */
export async function* callWithFallbacks(
  invocation: InvocationState,
  agent: Pick<AgentNode, 'model' | 'modelName' | 'fallbacks' | 'firstTokenMs'>,
  request: ModelRequest,
  notes?: ModelNotes,
): AsyncGenerator<ModelDelta, ModelAnswer, void> {
  const { userId } = invocation.input.session;
  const progress = { hasBegun: false };
  const fallbacks = (agent.fallbacks ?? []).filter((each) => hasRoom(each, request));
  const full = (agent.fallbacks ?? []).filter((each) => !fallbacks.includes(each));
  for (let target: NamedModel | undefined = agent; ; ) {
    const { model, modelName }: NamedModel = target;
    const names = { provider: model.provider, model: modelName };
    const next = fallbacks.shift();
    if (next && model.breaker?.passesOver(userId)) request.onFailedTry?.({ ...names, error: 'passed_over' });
    else {
      try {
        const limits = { hasFallback: next !== undefined, firstTokenMs: next && agent.firstTokenMs };
        const answer = yield* callOne(invocation, target, request, limits, progress);
        model.breaker?.note(userId, false);
        if (notes && target !== agent) notes.answeredBy = names;
        return answer;
      } catch (error) {
        const code = error instanceof AgentError ? error.code : 'model_failed';
        if (request.signal.aborted || !code.startsWith('model_')) throw error;
        if (!REQUEST_ERRORS.has(code)) model.breaker?.note(userId, true);
        if (!progress.hasBegun)
          for (const each of full.splice(0))
            request.onFailedTry?.({ provider: each.model.provider, model: each.modelName, error: 'passed_over' });
        if (!next || progress.hasBegun) throw error;
        request.onFailedTry?.({ ...names, error: code });
      }
    }
    target = next ?? target;
  }
}

/** False: the prompt is larger than the context window of a fallback model, which would refuse it. */
const hasRoom = ({ contextTokens }: NamedModel, { promptTokens, sampling }: ModelRequest): boolean =>
  contextTokens === undefined ||
  promptTokens === undefined ||
  promptTokens <= contextTokens - answerRoom(contextTokens, sampling.maxOutputTokens);

/** @throws {AgentError} `model_timeout` if the model produced no output in time */
async function* callOne(
  invocation: InvocationState,
  { model, modelName }: NamedModel,
  request: ModelRequest,
  { hasFallback, firstTokenMs }: { hasFallback: boolean; firstTokenMs: number | undefined },
  progress: { hasBegun: boolean },
): AsyncGenerator<ModelDelta, ModelAnswer, void> {
  // Keeps the request object if the model's name is the same, because observers identify a request by it.
  const ownRequest = modelName === request.modelName ? request : { ...request, modelName };
  const reserved = await invocation.input.reserve?.(ownRequest);
  const late = firstTokenMs === undefined ? undefined : startLate(firstTokenMs, model.provider, modelName);
  const signal = late ? AbortSignal.any([request.signal, late.signal]) : request.signal;
  const bounded = reserved?.request ?? ownRequest;
  const waits = waitsUntil(signal);
  try {
    const timed = late ? { ...bounded, signal, onBegin: late.stop } : bounded;
    const stream = model.generate(hasFallback ? { ...timed, hasFallback } : timed);
    for (;;) {
      const next = await waits.wait(stream.next());
      late?.stop();
      if (next.done) {
        countTokens(invocation, modelName, next.value);
        return next.value;
      }
      progress.hasBegun = true;
      yield next.value;
    }
  } finally {
    waits.end();
    late?.stop();
    reserved?.end();
  }
}

function startLate(ms: number, provider: string, modelName: string) {
  const controller = new AbortController();
  const text = `The model \`${modelName}\` of ${provider} had not begun to answer after ${ms} ms.`;
  const timer = setTimeout(() => controller.abort(new AgentError('model_timeout', text)), ms);
  return { signal: controller.signal, stop: () => clearTimeout(timer) };
}

/**
 * Calls a model for the loop itself: for a summary, or for a hook. Limits and budgets apply as to the agent's own calls.
 * @returns the text of the answer
 */
export async function callForText(
  invocation: InvocationState,
  agent: AgentNode,
  { instruction, text, signal }: { instruction: string; text: string; signal: AbortSignal },
): Promise<string> {
  countCall(invocation);
  const contents = [{ role: 'user', parts: [{ text }] }];
  const asWhole = agent.firstTokenMs === undefined;
  const request = { modelName: agent.modelName, instruction, contents, tools: [], sampling: {}, signal, asWhole };
  const stream = callWithFallbacks(invocation, agent, request);
  for (;;) {
    const next = await stream.next();
    if (next.done) return getAnswerText(next.value.content);
  }
}
