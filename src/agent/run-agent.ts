import type { NewEvent } from '../sessions/event.ts';
import type { RunEnd, RunInput } from './agent.ts';
import { withError } from './call-tools.ts';
import { findDecided } from './confirmation.ts';
import { runLlmAgent, type Steps } from './llm-agent.ts';
import { newEvent, startProgress, type Progress } from './progress.ts';

/**
 * The loop of one invocation. The consumer stores each complete event before it asks for the next one, so a function call is
 * stored before its tools run; partial events (`partial: true`, only when streaming) are never stored. The last event is
 * returned, not yielded. Never throws: a failure, a limit or an abort is the `error` of the end and stands on the last event.
 */
export async function* runAgent(input: RunInput): AsyncGenerator<NewEvent, RunEnd, void> {
  const progress = startProgress(input);
  let last: NewEvent | undefined;
  try {
    last = yield* steps(progress);
  } catch (error) {
    progress.cause = error;
    const failure = { code: 'internal', message: 'The agent failed unexpectedly; the log of the service says why.' };
    last = withError(newEvent(progress, { agent: input.agent, branch: undefined }, {}), failure);
  }
  return toEnd(progress, last);
}

function steps(progress: Progress): Steps {
  const { agent, history } = progress.input;
  const decided = findDecided(history);
  return runLlmAgent(progress, { agent, branch: decided?.branch }, decided);
}

function toEnd(progress: Progress, lastEvent: NewEvent | undefined): RunEnd {
  const { output, paused, llmCalls, promptTokens, outputTokens, cause } = progress;
  const counts = { llmCalls, promptTokens, outputTokens };
  if (!lastEvent?.errorCode) return { lastEvent, output, error: undefined, paused, ...counts };
  const error = { code: lastEvent.errorCode, message: lastEvent.errorMessage ?? '' };
  return { lastEvent, output: '', error: cause === undefined ? error : { ...error, cause }, paused: false, ...counts };
}
