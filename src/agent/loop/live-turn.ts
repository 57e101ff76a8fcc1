import { abortError, orAborted } from '../../core/abort.ts';
import type { Part } from '../../core/content.ts';
import { AgentError } from '../../core/errors.ts';
import type { Event, NewEvent } from '../../core/event.ts';
import type { LiveConnection, LiveMessage, LiveRequest, ModelRequest } from '../definition/model.ts';
import { buildContents } from './build-contents.ts';
import { callTools, withError } from './call-tools.ts';
import { beginWith, noteWaits, toOpenCalls } from './record-calls.ts';
import {
  type AgentTurn,
  countTokens,
  type InvocationState,
  newEvent,
  newInvocationState,
  recordEvent,
  uniqueCallId,
  countCall,
} from './invocation-state.ts';
import { guardEvents, guardSetUp, guardTyped } from './guard.ts';
import { newMarks, withMarks } from './hooks.ts';
import { renderPieces } from './instruction.ts';
import { longRunning } from './llm-agent.ts';
import type { LiveAudio } from './live-audio.ts';
import { callAgent, toEnd } from './run-agent.ts';
import type { RunEnd, RunInput } from './run.ts';

export interface LiveTurn {
  connection: LiveConnection;
  /** The text that the user typed; it is sent first. `undefined` if the model responds to speech. */
  content: NonNullable<Event['content']> | undefined;
  /** Transcript of what the user said before the turn began. */
  inputTranscript: string;
  audio: LiveAudio | undefined;
}

interface OpenTurn {
  invocation: InvocationState;
  turn: AgentTurn;
  /** Text of the model that has been sent only in partial events so far. */
  text: string;
  isThought: boolean;
  /** Transcripts that have been sent only in partial events so far. */
  inputTranscript: string;
  outputTranscript: string;
  usage: LiveMessage['usageMetadata'];
  grounding: LiveMessage['groundingMetadata'];
  paused: boolean;
}

/**
 * Runs one turn of a live session as an invocation, until the model completes the turn. Yields events as ADK does: text
 * and transcripts come in partial events and then in complete ones. Audio comes in partial events only, so it is never
 * stored with the session. Like {@link runAgent} it never throws, and returns the last event, which its consumer
 * stores, instead of yielding it.
 */
export async function* runLiveTurn(input: RunInput, live: LiveTurn): AsyncGenerator<NewEvent, RunEnd, void> {
  const { agent, signal } = input;
  const invocation = newInvocationState(input, (...args) => callAgent(invocation, ...args));
  const turn = { root: agent, agent, branch: undefined, signal };
  const open: OpenTurn = {
    invocation,
    turn,
    text: '',
    isThought: false,
    inputTranscript: live.inputTranscript,
    outputTranscript: '',
    usage: undefined,
    grounding: undefined,
    paused: false,
  };
  try {
    const last = yield* getAnswer(open, live);
    return toEnd(invocation, { event: last, paused: open.paused });
  } catch (error) {
    if (!signal.aborted && !(error instanceof AgentError)) invocation.cause = error;
    const failure = signal.aborted ? abortError(signal) : error;
    const agentError = failure instanceof AgentError ? failure : new AgentError('internal', 'The live session failed.');
    yield* flushText(open);
    yield* flushTranscript(open, 'inputTranscription');
    yield* flushTranscript(open, 'outputTranscription');
    return toEnd(invocation, { event: withError(liveEvent(open, {}), agentError), paused: false });
  }
}

/**
 * Yields the events of a turn and returns the last one.
 * @throws {AgentError} at a limit, after an abort, or if the connection ends
 */
async function* getAnswer(open: OpenTurn, live: LiveTurn): AsyncGenerator<NewEvent, NewEvent, void> {
  const { connection, audio } = live;
  const { invocation, turn } = open;
  // Each time that the model begins to respond counts as a model call.
  countCall(invocation);
  if (live.content) {
    const marks = newMarks();
    const { content, answer } = await guardTyped(invocation, turn, live.content, marks);
    if (answer) {
      yield recordEvent(invocation, withMarks(liveEvent(open, answer), marks));
      return turnEnd(open, false);
    }
    connection.send({ kind: 'content', content });
  }
  for (;;) {
    await orAborted(connection.ready(), turn.signal);
    const message = connection.shift() ?? {};
    if (message.closed) throw message.closed;
    open.usage = message.usageMetadata ?? open.usage;
    open.grounding = message.groundingMetadata ?? open.grounding;
    audio?.addOutput(message.parts ?? []);
    yield* getPieces(open, message);
    if (message.calls) yield* answerCalls(open, connection, message.calls);
    for (const { role, part } of (await audio?.save(message, invocation.input)) ?? []) {
      const author = role === 'user' ? { author: 'user' } : {};
      yield recordEvent(invocation, { ...liveEvent(open, { content: { role, parts: [part] } }), ...author });
    }
    if (message.turnComplete) return turnEnd(open, message.interrupted === true);
    if (message.interrupted) yield recordEvent(invocation, liveEvent(open, { interrupted: true }));
  }
}

/**
 * Makes the settings of a live session. The agent cannot transfer the conversation, because the connection is for one
 * agent. Guardrails redact the history.
 * @throws {AgentError} if a guardrail blocks anything else
 */
export async function toLiveRequest(
  input: RunInput,
): Promise<Pick<LiveRequest, 'instruction' | 'contents' | 'tools' | 'sampling'>> {
  const { agent, state, services, history, signal } = input;
  const invocation = newInvocationState(input, (...args) => callAgent(invocation, ...args));
  const turn = { root: agent, agent, branch: undefined, signal };
  const pieces = await renderPieces(agent.instruction, state, services);
  const events = await guardEvents(invocation, turn, history, newMarks());
  const request: ModelRequest = {
    modelName: agent.modelName,
    instruction: '',
    contents: buildContents(events, { agentName: agent.name }),
    tools: agent.tools.map(({ name, description, parameters }) => ({ name, description, parameters })),
    sampling: agent.sampling,
    signal,
  };
  const refused = await guardSetUp(invocation, turn, request, pieces);
  if (refused !== undefined) throw new AgentError('hook_failed', refused);
  const instruction = pieces.map(({ text }) => text).join('') + agent.appendedInstruction;
  return { instruction, contents: request.contents, tools: request.tools, sampling: request.sampling };
}

/** Creates an event without `nodeInfo`, as ADK's servers do in live sessions. */
const liveEvent = ({ invocation, turn }: OpenTurn, members: Parameters<typeof newEvent>[2]): NewEvent =>
  newEvent(invocation, turn, { nodeInfo: { path: '' }, ...members });

/** Yields partial events for what a message adds, and complete events for what the message completes. */
function* getPieces(open: OpenTurn, message: LiveMessage): Generator<NewEvent, void, void> {
  for (const part of message.parts ?? []) yield* getPiece(open, part);
  yield* takeTranscript(open, 'inputTranscription', message.inputTranscription);
  yield* takeTranscript(open, 'outputTranscription', message.outputTranscription);
  if (message.interrupted || message.turnComplete || message.generationComplete) {
    yield* flushTranscript(open, 'inputTranscription');
    yield* flushTranscript(open, 'outputTranscription');
  }
  if (message.interrupted || message.turnComplete || message.calls) yield* flushText(open);
}

function* getPiece(open: OpenTurn, part: Part): Generator<NewEvent, void, void> {
  if (part.text) {
    const isThought = part.thought === true;
    if (isThought !== open.isThought) yield* flushText(open);
    open.text += part.text;
    open.isThought = isThought;
  } else if (!part.inlineData) return;
  yield liveEvent(open, { content: { role: 'model', parts: [part] }, partial: true });
}

function* flushText(open: OpenTurn): Generator<NewEvent, void, void> {
  const { text, isThought, grounding } = open;
  if (text === '') return;
  open.text = '';
  open.grounding = undefined;
  const part = isThought ? { text, thought: true } : { text };
  const sources = grounding ? { groundingMetadata: grounding } : {};
  yield recordEvent(
    open.invocation,
    liveEvent(open, { content: { role: 'model', parts: [part] }, partial: false, ...sources }),
  );
}

type Transcription = 'inputTranscription' | 'outputTranscription';
const TRANSCRIPTS = { inputTranscription: 'inputTranscript', outputTranscription: 'outputTranscript' } as const;

function* takeTranscript(
  open: OpenTurn,
  name: Transcription,
  piece: { text: string; finished: boolean } | undefined,
): Generator<NewEvent, void, void> {
  if (!piece) return;
  if (piece.text !== '') {
    open[TRANSCRIPTS[name]] += piece.text;
    yield transcription(open, name, piece.text, false);
  }
  if (piece.finished) yield* flushTranscript(open, name);
}

function* flushTranscript(open: OpenTurn, name: Transcription): Generator<NewEvent, void, void> {
  const text = open[TRANSCRIPTS[name]];
  if (text === '') return;
  open[TRANSCRIPTS[name]] = '';
  if (name === 'outputTranscription') open.invocation.output = text;
  yield recordEvent(open.invocation, transcription(open, name, text, true));
}

/** The author of the user's transcribed speech is `user`, as for typed text. */
function transcription(open: OpenTurn, name: Transcription, text: string, finished: boolean): NewEvent {
  const event = liveEvent(open, { [name]: { text, finished }, partial: !finished });
  return name === 'inputTranscription' ? { ...event, author: 'user' } : event;
}

/**
 * Runs the tool calls of a message. The calls are stored before their tools run, and the function responses before the
 * model receives them. Calls that the model cancels meanwhile are aborted; their responses are stored but not sent.
 */
async function* answerCalls(
  open: OpenTurn,
  connection: LiveConnection,
  calls: NonNullable<LiveMessage['calls']>,
): AsyncGenerator<NewEvent, void, void> {
  const { invocation, turn } = open;
  const parts = calls.map((call) => ({ functionCall: { ...call, id: uniqueCallId(invocation, call.id) } }));
  const event = liveEvent(open, { content: { role: 'model', parts } });
  beginWith(invocation, turn, event, toOpenCalls(event));
  yield recordEvent(invocation, { ...event, ...longRunning(turn, event) });
  const cancelled = connection.cancelled(calls.flatMap(({ id }) => id ?? []));
  const signal = AbortSignal.any([turn.signal, cancelled]);
  const within = { ...turn, signal };
  const { event: answerEvent, stillOpen } = await callTools(invocation, within, toOpenCalls(event), undefined, true);
  open.paused ||= stillOpen;
  if (stillOpen) noteWaits(invocation, turn, toOpenCalls(event), { request: undefined, event: answerEvent });
  if (answerEvent) yield recordEvent(invocation, { ...withoutError(answerEvent), nodeInfo: { path: '' } });
  turn.signal.throwIfAborted();
  if (!answerEvent || cancelled.aborted) return;
  // The provider's call ids by the ids that this runtime gave: responses to the provider must have its own ids.
  const ownIds = new Map(parts.map(({ functionCall }, place) => [functionCall.id, calls[place]?.id]));
  const responses = (answerEvent.content?.parts ?? []).flatMap(({ functionResponse }) => {
    const { id, name, response } = functionResponse ?? {};
    return [{ id: ownIds.get(id ?? '') ?? id, name, response }];
  });
  countCall(invocation);
  connection.send({ kind: 'responses', responses });
}

/** Removes the abort's error from the event, because a tool call that the model cancelled is no failure of the turn. */
const withoutError = ({ errorCode: _code, errorMessage: _message, ...event }: NewEvent): NewEvent => event;

function turnEnd(open: OpenTurn, interrupted: boolean): NewEvent {
  const { usage, grounding } = open;
  countTokens(open.invocation, open.turn.agent.modelName, { usageMetadata: usage });
  return recordEvent(
    open.invocation,
    liveEvent(open, {
      turnComplete: true,
      ...(interrupted ? { interrupted } : {}),
      ...(usage ? { usageMetadata: usage } : {}),
      ...(grounding ? { groundingMetadata: grounding } : {}),
    }),
  );
}
