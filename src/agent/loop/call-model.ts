import { orAborted } from '../../core/abort.ts';
import { AgentError } from '../../core/errors.ts';
import type { NewEvent } from '../../core/event.ts';
import type { AgentNode, NamedModel } from '../definition/agent.ts';
import type { FailedTry, ModelAnswer, ModelDelta, ModelRequest } from '../definition/model.ts';
import { countTokens, type InvocationState } from './invocation-state.ts';

/** Failed tries that the event of one call names. */
const MAX_TRIES = 32;
/** Errors that say something of the request and nothing of the provider. */
const OF_REQUEST = new Set(['model_rejected', 'model_not_found']);

/** The way to an answer, where it was not that of the first try. */
export interface ModelNotes {
  failedTries: FailedTry[];
  /** The fallback that answered. */
  answeredBy?: { provider: string; model: string };
}

/** Returns what notes a failed try. */
export const noteTry =
  ({ failedTries }: ModelNotes) =>
  (failed: FailedTry) => {
    if (failedTries.length < MAX_TRIES) failedTries.push(failed);
  };

/** Returns an event with the notes of its model call. */
export const withNotes = (event: NewEvent, notes: ModelNotes): NewEvent =>
  notes.failedTries.length === 0 ? event : { ...event, customMetadata: { ...event.customMetadata, model: notes } };

/**
 * Asks the model of an agent, then its fallbacks in order, until one begins an answer. Each call is reserved in the
 * budgets and counted under its own name.
 */
export async function* callWithFallbacks(
  invocation: InvocationState,
  agent: Pick<AgentNode, 'model' | 'modelName' | 'fallbacks' | 'firstTokenMs'>,
  request: ModelRequest,
  notes?: ModelNotes,
): AsyncGenerator<ModelDelta, ModelAnswer, void> {
  const { userId } = invocation.input.session;
  const progress = { hasBegun: false };
  const left = [...(agent.fallbacks ?? [])];
  for (let target: NamedModel | undefined = agent; ; ) {
    const { model, modelName }: NamedModel = target;
    const told = { provider: model.provider, model: modelName };
    const next = left.shift();
    if (next && model.breaker?.passesOver(userId)) request.onFailedTry?.({ ...told, error: 'passed_over' });
    else {
      try {
        const answer = yield* callOne(invocation, target, request, next && agent.firstTokenMs, progress);
        model.breaker?.note(userId, false);
        if (notes && target !== agent) notes.answeredBy = told;
        return answer;
      } catch (error) {
        const code = error instanceof AgentError ? error.code : 'model_failed';
        if (request.signal.aborted || !code.startsWith('model_')) throw error;
        if (!OF_REQUEST.has(code)) model.breaker?.note(userId, true);
        if (!next || progress.hasBegun) throw error;
        request.onFailedTry?.({ ...told, error: code });
      }
    }
    target = next ?? target;
  }
}

/** @throws {AgentError} `model_timeout` where nothing of the answer came in time */
async function* callOne(
  invocation: InvocationState,
  { model, modelName }: NamedModel,
  request: ModelRequest,
  firstTokenMs: number | undefined,
  progress: { hasBegun: boolean },
): AsyncGenerator<ModelDelta, ModelAnswer, void> {
  // The request itself where it can be: an observer knows it again.
  const named = modelName === request.modelName ? request : { ...request, modelName };
  const reserved = await invocation.input.reserve?.(named);
  const late = firstTokenMs === undefined ? undefined : startLate(firstTokenMs, model.provider, modelName);
  const signal = late ? AbortSignal.any([request.signal, late.signal]) : request.signal;
  const sent = reserved?.request ?? named;
  try {
    const stream = model.generate(late ? { ...sent, signal, onBegin: late.stop } : sent);
    for (;;) {
      const next = await orAborted(stream.next(), signal);
      late?.stop();
      if (next.done) {
        countTokens(invocation, modelName, next.value);
        return next.value;
      }
      progress.hasBegun = true;
      yield next.value;
    }
  } finally {
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
