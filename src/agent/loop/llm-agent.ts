import { runInTrace } from '../../platform/context.ts';
import type { ConfirmedCalls, ObservedStep } from './run.ts';
import { AgentError } from '../../core/errors.ts';
import { getAnswerText, getParts, type Content, type JsonObject } from '../../core/content.ts';
import type { Event, NewEvent } from '../../core/event.ts';
import { abortError, orAborted } from '../../core/abort.ts';
import { beginRemoteCall, type RemoteCall, beginWith, findTool, noteWaits, toOpenCalls } from './record-calls.ts';
import { callWithFallbacks, type ModelNotes, noteTry, withNotes } from './call-model.ts';
import type { Decisions, OpenCall } from './call-ledger.ts';
import { callTools, withError } from './call-tools.ts';
import { toConfirmationRequest } from './confirmation.ts';
import { buildContents, ensureUserFirstAndLast } from './build-contents.ts';
import { fitPrompt, windowOf } from './compact.ts';
import { answerRoom } from './estimate.ts';
import { guardRequest } from './guard.ts';
import { stopLoop } from './loop-stop.ts';
import { notePrefix, type StoredPrefix, withPrefix } from './prefix.ts';
import { withReadResult } from './read-result.ts';
import { type InstructionPiece, renderPieces } from './instruction.ts';
import { afterModel, beforeModel, holdsText, type HookMarks, newMarks, onError, withMarks } from './hooks.ts';
import { isRejected, MAX_REPAIRS, noOutput, withOutput } from './structured-output.ts';
import type { ModelAnswer, ModelRequest, Sampling, ToolChoice } from '../definition/model.ts';
import {
  countCallsLeft,
  countTokensLeft,
  deriveId,
  newEvent,
  openInbox,
  recordEvent,
  takeMessages,
  toSampling,
  uniqueCallId,
  type InvocationState,
  type Steps,
  type AgentTurn,
} from './invocation-state.ts';

/**
 * Runs one turn of an `llm` agent: it calls the model and the tools that the model calls, in alternation, until the
 * model's answer has no tool call, or until a pause, a transfer or an error. `confirmed` are tool calls of an earlier
 * turn on which a person has decided; they run first.
 */
export async function* runLlmAgent(invocation: InvocationState, begun: AgentTurn, confirmed?: ConfirmedCalls): Steps {
  let turn = withReadResult(invocation, begun);
  if (confirmed) {
    const { event, paused } = yield* answerCalls(invocation, turn, confirmed.calls, confirmed.decisions);
    if (event) {
      if (endsTurn(event)) return { event, paused: paused && !event.errorCode };
      openInbox(invocation, turn, event);
      yield event;
    }
  }
  for (let repairs = 0; ; ) {
    takeMessages(invocation, turn);
    turn = withReadResult(invocation, turn);
    const fitted = yield* fitPrompt(invocation, turn);
    if (fitted instanceof AgentError)
      return { event: recordEvent(invocation, withError(newEvent(invocation, turn, {}), fitted)), paused: false };
    // Results that were dropped just now have handles too.
    turn = withReadResult(invocation, turn);
    const answer = yield* callModel(invocation, turn, fitted);
    if (isRejected(answer) && !answer.errorCode) {
      if (repairs === MAX_REPAIRS) {
        const error = noOutput(answer, turn.agent.modelName);
        return { event: recordEvent(invocation, withError(answer, error)), paused: false };
      }
      repairs += 1;
      yield recordEvent(invocation, answer);
      continue;
    }
    const calls = toOpenCalls(answer);
    if (answer.errorCode || calls.length === 0) return { event: recordOutput(invocation, turn, answer), paused: false };
    beginWith(invocation, turn, answer, calls);
    yield recordEvent(invocation, answer);
    const { event, paused } = yield* answerCalls(invocation, turn, calls);
    if (!event || paused || endsTurn(event)) return { event, paused: paused && !event?.errorCode };
    openInbox(invocation, turn, event);
    yield event;
  }
}

/** The answer's text, or its value if the agent has an output schema, is also stored in the state under `outputKey`. */
function recordOutput(invocation: InvocationState, { agent }: AgentTurn, answer: NewEvent): NewEvent {
  if (agent.outputKey === undefined || answer.errorCode) return recordEvent(invocation, answer);
  const value = agent.outputSchema ? answer.output : getAnswerText(answer.content);
  const before = answer.actions?.stateDelta;
  const stateDelta = Object.assign(Object.create(null) as JsonObject, before, { [agent.outputKey]: value });
  return recordEvent(invocation, { ...answer, actions: { ...answer.actions, stateDelta } });
}

/** Runs tool calls. As in ADK, the event that requests confirmations precedes that with the function responses. */
async function* answerCalls(
  invocation: InvocationState,
  turn: AgentTurn,
  calls: OpenCall[],
  decisions?: Decisions,
): Steps {
  const stored = invocation.input.script?.takeIf(turn, 'confirmation');
  const { event: answered, stillOpen, waitsForChild } = await callTools(invocation, turn, calls, decisions);
  if (waitsForChild) return { event: undefined, paused: true };
  const event = answered && stopLoop(invocation, turn, answered);
  const requested = event?.errorCode ? {} : (event?.actions?.requestedToolConfirmations ?? {});
  const request = stored ?? toConfirmationRequest(invocation, turn, calls, requested);
  if (!event?.errorCode) noteWaits(invocation, turn, calls, { request, event });
  if (request) yield recordEvent(invocation, request);
  if (event) recordEvent(invocation, event);
  return { event, paused: stillOpen || request !== undefined };
}

const endsTurn = ({ errorCode, actions }: NewEvent) =>
  Boolean(errorCode || actions?.skipSummarization || actions?.transferToAgent || actions?.escalate);

/**
 * Reason of the abort that ends each model call. Without a reason, `abort` creates an error with a stack trace each
 * time, which costs 2 % of an invocation.
 */
const CALL_ENDED = new DOMException('The model call has ended.', 'AbortError');

/**
 * Makes one model call. Yields partial events, with the id of the complete event, if the client asked for streaming.
 * Returns the complete event, or an event with an error.
 */
async function* callModel(
  invocation: InvocationState,
  turn: AgentTurn,
  promptTokens: number | undefined,
): AsyncGenerator<NewEvent, NewEvent, void> {
  const { toolChoice } = invocation;
  // The tool choice applies to the first model call only, even if a crashed process made that call.
  invocation.toolChoice = undefined;
  const stored = invocation.input.script?.take(turn, 'model');
  if (stored) {
    await noteStored(invocation, turn);
    return stored;
  }
  const { signal } = turn;
  const { maxLlmCalls, maxTokens } = invocation.input.agent;
  if (signal.aborted) return withError(newEvent(invocation, turn, {}), abortError(signal));
  // Beside agents that run in parallel, each has its part alone.
  const lent = turn.width === undefined ? undefined : invocation.input.children?.lent;
  if (countCallsLeft(invocation) <= (lent?.llmCalls ?? 0)) {
    const text = `Max number of llm calls limit of \`${maxLlmCalls}\` exceeded`;
    return withError(newEvent(invocation, turn, {}), new AgentError('llm_calls_limit', text));
  }
  if (countTokensLeft(invocation) <= (lent?.tokens ?? 0)) {
    const text = `The \`${maxTokens}\` tokens that the caller left to this invocation are used up`;
    return withError(newEvent(invocation, turn, {}), new AgentError('budget_exceeded', text));
  }
  invocation.used.llmCalls += 1;
  return yield* callProvider(invocation, turn, toolChoice, promptTokens);
}

/** Makes the request of a stored model call again, because the next one is compared with it. */
async function noteStored(invocation: InvocationState, turn: AgentTurn): Promise<void> {
  if (turn.agent.isRemote) return;
  const request = await toRequest(invocation, turn, turn.signal).catch(() => undefined);
  if (request) notePrefix(invocation, turn, request.made, request.pieces);
}

async function* callProvider(
  invocation: InvocationState,
  turn: AgentTurn,
  toolChoice: ToolChoice | undefined,
  promptTokens: number | undefined,
): AsyncGenerator<NewEvent, NewEvent, void> {
  const { agent, signal } = turn;
  const { streaming, observer, onRequest } = invocation.input;
  const ended = new AbortController();
  const marks = agent.hooks && newMarks();
  // Created once and copied for each partial event, because a response can have hundreds that differ only in their new
  // text.
  const partial = streaming ? newEvent(invocation, turn, { partial: true }) : undefined;
  // Text is not streamed before it is final if a hook may replace it or the output schema may reject it.
  const isHeld = agent.outputSchema !== undefined || (agent.hooks !== undefined && holdsText(agent.hooks));
  const notes: ModelNotes = { failedTries: [] };
  const call: OpenModelCall = { marks, notes, id: partial?.id, request: undefined, prefix: undefined };
  let step: ObservedStep<NewEvent> | undefined;
  let isStreamed = false;
  let remote: RemoteCall | undefined;
  let answer: NewEvent | undefined;
  try {
    const bound = AbortSignal.any([signal, ended.signal]);
    remote = agent.isRemote ? await beginRemoteCall(invocation, turn) : undefined;
    const caller = remote && { caller: remote.caller };
    const { made, pieces } = await toRequest(invocation, turn, bound);
    const request: ModelRequest = {
      ...made,
      ...(toolChoice && made.tools.length > 0 && { toolChoice }),
      ...caller,
      ...(promptTokens !== undefined && { promptTokens }),
      asWhole: (!partial || isHeld) && agent.firstTokenMs === undefined,
      onAsk: (asWhole) => {
        isStreamed = !asWhole;
        step?.ask?.(asWhole);
      },
      onFailedTry: (failed) => noteTry(notes, failed),
      onLeftOut: (omitted) => logLeftOut(invocation, agent.name, omitted),
      onPassedOver: (what) => {
        step?.passOver?.();
        invocation.input.log?.debug({ agent: agent.name, what }, 'a part of an answer was passed over');
      },
    };
    const outgoing = marks ? forHooks(request) : request;
    call.request = outgoing;
    onRequest?.(agent, request, outgoing);
    const replacement = marks && (await runBeforeModelHooks(invocation, turn, outgoing, pieces, marks));
    if (!replacement) call.prefix = notePrefix(invocation, turn, outgoing, pieces);
    step = observer?.modelCall?.(agent, request, outgoing);
    isStreamed = !outgoing.asWhole;
    if (replacement) answer = await toAnswered(invocation, turn, replacement, call);
    const stream = callWithFallbacks(invocation, agent, outgoing, notes);
    for (let isFirst = true; !answer; isFirst = false) {
      const next = await runInTrace(step?.traceparent, () => stream.next());
      if (isFirst && isStreamed) step?.begin?.();
      if (next.done) answer = await toAnswered(invocation, turn, next.value, call);
      else if (partial && !isHeld) yield { ...partial, ...next.value };
    }
    if (partial && (isHeld || replacement) && !isRejected(answer)) yield* wholeText(partial, answer);
    return answer;
  } catch (error) {
    if (invocation.input.ledger?.isFailure(error)) throw error;
    return (answer = await toFailed(invocation, turn, error, call));
  } finally {
    ended.abort(CALL_ENDED);
    step?.end(answer);
    if (answer) remote?.end(answer);
  }
}

/** Runs the guardrails, then the `beforeModel` hooks. If one returns an answer, the model is not called. */
async function runBeforeModelHooks(
  invocation: InvocationState,
  turn: AgentTurn,
  request: ModelRequest,
  pieces: InstructionPiece[],
  marks: HookMarks,
): Promise<ModelAnswer | undefined> {
  const blocked = await guardRequest(invocation, turn, request, pieces, marks);
  return blocked ?? beforeModel(invocation, turn, request, marks);
}

/** Copies a request for the hooks that may change it, because it shares objects with the agent and the history. */
const forHooks = (request: ModelRequest): ModelRequest => ({
  ...request,
  contents: [...request.contents],
  tools: request.tools.map((tool) => ({ ...tool })),
  sampling: { ...request.sampling },
});

/** Tools already logged as impossible to send to a provider, because each is logged only once. */
const loggedOmissions = new Set<string>();
const MAX_LOGGED_OMISSIONS = 1_000;

function logLeftOut(
  { input }: InvocationState,
  agent: string,
  { tool, reason }: { tool: string; reason: string },
): void {
  const words = JSON.stringify([agent, tool, reason]);
  if (loggedOmissions.has(words) || loggedOmissions.size >= MAX_LOGGED_OMISSIONS) return;
  loggedOmissions.add(words);
  input.log?.warn({ agent, tool, reason }, 'a tool is left out: the provider of the model would refuse it');
}

interface OpenModelCall {
  marks: HookMarks | undefined;
  notes: ModelNotes;
  id: string | undefined;
  request: ModelRequest | undefined;
  /** Where the request breaks with the one before it. */
  prefix: StoredPrefix | undefined;
}

async function toAnswered(
  invocation: InvocationState,
  turn: AgentTurn,
  raw: ModelAnswer,
  { marks, notes, id, prefix }: OpenModelCall,
): Promise<NewEvent> {
  const answer = marks ? await afterModel(invocation, turn, raw, marks) : raw;
  const made = withNotes(await withOutput(toAnswerEvent(invocation, turn, answer), turn), notes);
  const event = withPrefix(made, prefix);
  return { ...(marks ? withMarks(event, marks) : event), ...(id !== undefined && { id }) };
}

/** Returns the event of a failed model call: the error, or what the `onError` hooks return in its place. */
async function toFailed(
  invocation: InvocationState,
  turn: AgentTurn,
  failure: unknown,
  call: OpenModelCall,
): Promise<NewEvent> {
  let error = toAgentError(invocation, turn, failure);
  const { marks, request, id } = call;
  if (marks && request && !turn.signal.aborted && error.code !== 'hook_failed') {
    try {
      const hooked = { during: 'model', error, request } as const;
      const replacement = await onError<ModelAnswer>(invocation, turn, hooked, marks);
      if (replacement) return await toAnswered(invocation, turn, replacement, call);
    } catch (cause) {
      error = toAgentError(invocation, turn, cause);
    }
  }
  const event = withNotes(withError(newEvent(invocation, turn, {}), error), call.notes);
  return { ...withPrefix(event, call.prefix), ...(id !== undefined && { id }) };
}

/** Yields text that was not streamed as one partial event, for clients that show only partial events. */
function* wholeText(partial: NewEvent, { content, modelVersion, errorCode }: NewEvent): Generator<NewEvent> {
  const parts = getParts(content).filter(({ text }) => text);
  if (parts.length > 0 && !errorCode) yield { ...partial, content: { role: 'model', parts }, modelVersion };
}

async function toRequest(
  invocation: InvocationState,
  { agent, branch }: AgentTurn,
  signal: AbortSignal,
): Promise<{ made: ModelRequest; pieces: InstructionPiece[] }> {
  const { services, session } = invocation.input;
  const pieces = await orAborted(renderPieces(agent.instruction, invocation.state, services), signal);
  const made = {
    modelName: agent.modelName,
    instruction: pieces.map(({ text }) => text).join('') + agent.appendedInstruction,
    contents: ensureUserFirstAndLast(
      buildContents(invocation.events, { agentName: agent.name, branch, isOutside: agent.isRemote }),
    ),
    tools: agent.tools.map(({ name, description, parameters }) => ({ name, description, parameters })),
    sampling: toSampling(invocation, withinWindow(agent.sampling, windowOf(invocation, agent))),
    ...(agent.outputSchema && { outputSchema: agent.outputSchema.schema }),
    ...(agent.sampling.promptCaching !== false && {
      cacheKey: deriveId([session.appName, session.userId, session.sessionId]),
    }),
    signal,
  };
  return { made, pieces };
}

/** Lowers `maxOutputTokens` to what the context window has room for beside a prompt. */
const withinWindow = (sampling: Sampling, window: number | undefined): Sampling =>
  window === undefined || sampling.maxOutputTokens === undefined
    ? sampling
    : { ...sampling, maxOutputTokens: answerRoom(window, sampling.maxOutputTokens) };

function toAnswerEvent(invocation: InvocationState, turn: AgentTurn, answer: ModelAnswer): NewEvent {
  const content = answer.content ? withCallIds(invocation, turn, answer.content) : undefined;
  const event = newEvent(invocation, turn, { ...answer, ...(content ? { content } : {}) });
  if (isEmpty(content)) return withError(event, emptyAnswer(turn, answer));
  // As in ADK: `partial: false` tells streaming clients that they have already shown this text, from its partial
  // events.
  const whole = invocation.input.streaming ? { partial: false } : {};
  return { ...event, ...whole, ...longRunning(turn, event) };
}

/** Gives function calls unique ids, and marks the calls of tools that the client runs. */
const withCallIds = (invocation: InvocationState, turn: AgentTurn, content: Content): Content => ({
  ...content,
  parts: getParts(content).map((part) => {
    const call = part.functionCall;
    if (!call) return part;
    const isOfClient = findTool(turn, call)?.isOfClient === true;
    const notes = isOfClient ? { partMetadata: { ...part.partMetadata, clientTool: true } } : {};
    return { ...part, functionCall: { ...call, id: uniqueCallId(invocation, call.id) }, ...notes };
  }),
});

const isEmpty = (content: Content | undefined) =>
  getParts(content).every(
    (part) =>
      part.thought === true ||
      ((part.text ?? '').trim() === '' &&
        Object.keys(part).every((name) => name === 'text' || name === 'thoughtSignature')),
  );

function emptyAnswer({ agent }: AgentTurn, { finishReason }: ModelAnswer): AgentError {
  const reason = finishReason && finishReason !== 'STOP' ? ` It stopped with ${finishReason}.` : '';
  return new AgentError('empty_answer', `The model \`${agent.modelName}\` gave an empty answer.${reason}`);
}

/** As in ADK: an event with function calls always has the list of long-running calls, even if it is empty. */
export function longRunning(turn: AgentTurn, event: Event): Pick<Event, 'longRunningToolIds'> {
  const calls = toOpenCalls(event);
  if (calls.length === 0) return {};
  return { longRunningToolIds: calls.flatMap((call) => (findTool(turn, call)?.longRunning === true ? call.id : [])) };
}

function toAgentError(invocation: InvocationState, { agent, signal }: AgentTurn, error: unknown): AgentError {
  if (signal.aborted) return abortError(signal);
  if (error instanceof AgentError) return error;
  invocation.cause = error;
  return new AgentError(
    'model_failed',
    `The model \`${agent.modelName}\` (${agent.model.provider}) failed unexpectedly.`,
  );
}
