import type { RunInput } from './run.ts';
import { answerTextOf, functionCallsOf, type JsonObject } from '../../core/content.ts';
import type { Event, EventActions, NewEvent } from '../../core/event.ts';
import type { AgentReply } from '../definition/tool.ts';
import type { AgentNode } from '../definition/agent.ts';
import type { ModelAnswer } from '../definition/model.ts';

/** What one invocation has done so far; shared by all agents of its tree. */
export interface Progress {
  readonly input: RunInput;
  /** The history and the events of this invocation, in order. */
  events: Event[];
  /** The state as the invocation sees it, `temp:` keys included; without a prototype, so that any key is data. */
  state: JsonObject;
  /** Ids of every function call seen, so that a provider that counts from zero in each answer cannot reuse one. */
  callIds: Set<string>;
  output: string;
  /** Shared by all agents of the tree, those that are tools included. */
  used: { llmCalls: number; promptTokens: number; outputTokens: number };
  /** What an unexpected failure was, for the log. */
  cause: unknown;
  /** Asks an agent as a tool: its answer, and what it changed. Its events are seen by nobody else. */
  askAgent: AskAgent;
}

export type AskAgent = (agent: AgentNode, request: string, signal: AbortSignal) => Promise<AgentReply>;

/** Where an agent speaks: its node, and what keeps parallel agents apart. */
export interface Voice {
  /** The tree that the agent can hand over in. */
  root: AgentNode;
  agent: AgentNode;
  branch: string | undefined;
  /** That of the invocation, or of one of its parallel branches. */
  signal: AbortSignal;
}

/** How an agent's turn ended: its last event, not yielded yet, and whether it waits for a person. */
export interface Outcome {
  event: NewEvent | undefined;
  paused: boolean;
}

/** Yields events that others follow and returns how the turn ended; a last event with `errorCode` ends the whole invocation. */
export type Steps = AsyncGenerator<NewEvent, Outcome, void>;

/** The start of an invocation: nothing done, all of the history known. */
export function startProgress(input: RunInput, askAgent: AskAgent): Progress {
  return {
    input,
    askAgent,
    events: [...input.history],
    state: Object.assign(Object.create(null) as JsonObject, input.state),
    callIds: new Set(input.history.flatMap((event) => functionCallsOf(event.content).map((call) => call.id ?? ''))),
    output: '',
    used: { llmCalls: 0, promptTokens: 0, outputTokens: 0 },
    cause: undefined,
  };
}

/** Fresh actions with the four maps that ADK always emits (inventory §3, event defaults). */
export const emptyActions = (): EventActions => ({
  stateDelta: {},
  artifactDelta: {},
  requestedAuthConfigs: {},
  requestedToolConfirmations: {},
});

/** An event of this invocation by the given voice; members that are given win over the defaults. */
export function newEvent(
  progress: Progress,
  voice: Voice,
  members: Omit<Event, 'id' | 'invocationId' | 'author'>,
): NewEvent {
  return {
    id: progress.input.newId(),
    invocationId: progress.input.invocationId,
    author: voice.agent.name,
    ...(voice.branch === undefined ? {} : { branch: voice.branch }),
    actions: emptyActions(),
    ...members,
  };
}

/** Takes a complete event into the progress: later steps see its content and its state delta. */
export function note(progress: Progress, event: NewEvent): NewEvent {
  progress.events.push(event);
  progress.input.observer?.event(event);
  for (const [key, value] of Object.entries(event.actions?.stateDelta ?? {})) progress.state[key] = value;
  const text = answerTextOf(event.content);
  if (text !== '') progress.output = text;
  return event;
}

/** Adds what a model call used. */
export function countTokens({ used }: Progress, usage: ModelAnswer['usageMetadata']): void {
  used.promptTokens += usage?.promptTokenCount ?? 0;
  used.outputTokens += (usage?.candidatesTokenCount ?? 0) + (usage?.thoughtsTokenCount ?? 0);
}

/** The call's id where it is new, else a fresh one. */
export function uniqueCallId(progress: Progress, id: string | null | undefined): string {
  const unique = id && !progress.callIds.has(id) ? id : progress.input.newId();
  progress.callIds.add(unique);
  return unique;
}
