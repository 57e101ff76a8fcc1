import type { RunObserver } from './run.ts';
import { AgentError } from '../../core/errors.ts';
import { answerTextOf, partsOf, type Content, type JsonObject } from '../../core/content.ts';
import type { Event, NewEvent } from '../../core/event.ts';
import { abortError, orAborted } from '../../core/abort.ts';
import { callTools, openCallsOf, withError, type OpenCall } from './call-tools.ts';
import { toConfirmationRequest, type Decided } from './confirmation.ts';
import { toContents } from './build-contents.ts';
import { renderInstruction } from './instruction.ts';
import type { ModelAnswer, ModelRequest } from '../definition/model.ts';
import {
  countTokens,
  newEvent,
  note,
  uniqueCallId,
  type Progress,
  type Steps,
  type Voice,
} from './invocation-state.ts';

/**
 * One agent's turn: model → tool calls → model, until an answer without calls, a pause, a transfer or an error. `decided` are
 * confirmed calls of an earlier turn: they run first.
 */
export async function* runLlmAgent(progress: Progress, voice: Voice, decided?: Decided): Steps {
  if (decided) {
    const { event } = await callTools(progress, voice, decided.calls, decided.decisions);
    if (event) {
      if (endsTurn(note(progress, event))) return { event, paused: false };
      yield event;
    }
  }
  for (;;) {
    const answer = yield* askModel(progress, voice);
    const calls = openCallsOf(answer);
    if (answer.errorCode || calls.length === 0) return { event: keepOutput(progress, voice, answer), paused: false };
    yield note(progress, answer);
    const { event, paused } = yield* answerCalls(progress, voice, calls);
    if (!event || paused || endsTurn(event)) return { event, paused: paused && !event?.errorCode };
    yield event;
  }
}

/** Notes an agent's last answer; its text goes to the agent's key of the state, where it has one. */
function keepOutput(progress: Progress, { agent }: Voice, answer: NewEvent): NewEvent {
  const text = answerTextOf(answer.content);
  if (agent.outputKey === undefined || answer.errorCode) return note(progress, answer);
  const stateDelta = Object.assign(Object.create(null) as JsonObject, { [agent.outputKey]: text });
  return note(progress, { ...answer, actions: { ...answer.actions, stateDelta } });
}

/** Runs the tools of one step; the confirmation request, if any, comes before the responses, as in ADK. */
async function* answerCalls(progress: Progress, voice: Voice, calls: OpenCall[]): Steps {
  const { event, stillOpen } = await callTools(progress, voice, calls);
  const requested = event?.errorCode ? {} : (event?.actions?.requestedToolConfirmations ?? {});
  const request = toConfirmationRequest(progress, voice, calls, requested);
  if (request) yield note(progress, request);
  if (event) note(progress, event);
  return { event, paused: stillOpen || request !== undefined };
}

const endsTurn = ({ errorCode, actions }: NewEvent) =>
  Boolean(errorCode || actions?.skipSummarization || actions?.transferToAgent || actions?.escalate);

/** One model call: partial events on the way where they are wanted, then the complete event, or an event with an error. */
async function* askModel(progress: Progress, voice: Voice): AsyncGenerator<NewEvent, NewEvent, void> {
  const { agent, signal } = voice;
  const { maxLlmCalls } = progress.input.agent;
  if (signal.aborted) return withError(newEvent(progress, voice, {}), abortError(signal));
  if (progress.used.llmCalls >= maxLlmCalls) {
    const text = `Max number of llm calls limit of \`${maxLlmCalls}\` exceeded`;
    return withError(newEvent(progress, voice, {}), new AgentError('llm_calls_limit', text));
  }
  progress.used.llmCalls += 1;
  const ended = new AbortController();
  let heard: ReturnType<RunObserver['modelCall']> | undefined;
  let answer: NewEvent | undefined;
  try {
    const request = await toRequest(progress, voice, AbortSignal.any([signal, ended.signal]));
    heard = progress.input.observer?.modelCall(agent.name, request);
    const stream = agent.model.generate(request);
    for (;;) {
      const next = await orAborted(stream.next(), signal);
      if (next.done) return (answer = toAnswerEvent(progress, voice, next.value));
      if (progress.input.streaming) yield newEvent(progress, voice, { content: next.value, partial: true });
    }
  } catch (error) {
    return (answer = withError(newEvent(progress, voice, {}), toAgentError(progress, voice, error)));
  } finally {
    ended.abort();
    heard?.(answer);
  }
}

async function toRequest(progress: Progress, { agent, branch }: Voice, signal: AbortSignal): Promise<ModelRequest> {
  const { services } = progress.input;
  const instruction = await orAborted(renderInstruction(agent.instruction, progress.state, services), signal);
  return {
    modelName: agent.modelName,
    instruction: instruction + agent.fixedInstruction,
    contents: toContents(progress.events, { agentName: agent.name, branch }),
    tools: agent.tools.map(({ name, description, parameters }) => ({ name, description, parameters })),
    sampling: agent.sampling,
    signal,
  };
}

function toAnswerEvent(progress: Progress, voice: Voice, answer: ModelAnswer): NewEvent {
  countTokens(progress, answer.usageMetadata);
  const content = answer.content ? withCallIds(progress, answer.content) : undefined;
  const event = newEvent(progress, voice, { ...answer, ...(content ? { content } : {}) });
  if (isEmpty(content)) return withError(event, emptyAnswer(voice, answer));
  return { ...event, ...longRunning(voice, event) };
}

const withCallIds = (progress: Progress, content: Content): Content => ({
  ...content,
  parts: partsOf(content).map((part) =>
    part.functionCall
      ? { ...part, functionCall: { ...part.functionCall, id: uniqueCallId(progress, part.functionCall.id) } }
      : part,
  ),
});

/** True where nothing is there but blank text and thoughts. */
const isEmpty = (content: Content | undefined) =>
  partsOf(content).every(
    (part) =>
      part.thought === true ||
      ((part.text ?? '').trim() === '' &&
        Object.keys(part).every((name) => name === 'text' || name === 'thoughtSignature')),
  );

function emptyAnswer({ agent }: Voice, { finishReason }: ModelAnswer): AgentError {
  const reason = finishReason && finishReason !== 'STOP' ? ` It stopped with ${finishReason}.` : '';
  return new AgentError('empty_answer', `The model \`${agent.modelName}\` gave an empty answer.${reason}`);
}

function longRunning({ agent }: Voice, event: Event): Pick<Event, 'longRunningToolIds'> {
  const names = new Set(agent.tools.filter((tool) => tool.longRunning === true).map((tool) => tool.name));
  const ids = openCallsOf(event).flatMap((call) => (names.has(call.name) ? [call.id] : []));
  return ids.length > 0 ? { longRunningToolIds: ids } : {};
}

function toAgentError(progress: Progress, { agent, signal }: Voice, error: unknown): AgentError {
  if (signal.aborted) return abortError(signal);
  if (error instanceof AgentError) return error;
  progress.cause = error;
  return new AgentError(
    'model_failed',
    `The model \`${agent.modelName}\` (${agent.model.provider}) failed unexpectedly.`,
  );
}
