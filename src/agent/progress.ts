import { answerTextOf, functionCallsOf, type JsonObject } from '../sessions/content.ts';
import type { Event, EventActions, NewEvent } from '../sessions/event.ts';
import type { AgentNode, RunInput } from './agent.ts';
import type { ModelAnswer } from './model.ts';

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
  paused: boolean;
  llmCalls: number;
  promptTokens: number;
  outputTokens: number;
  /** What an unexpected failure was, for the log. */
  cause: unknown;
}

/** Where an agent speaks: its node and the branch that keeps parallel agents apart. */
export interface Voice {
  agent: AgentNode;
  branch: string | undefined;
}

/** The start of an invocation: nothing done, all of the history known. */
export function startProgress(input: RunInput): Progress {
  return {
    input,
    events: [...input.history],
    state: Object.assign(Object.create(null) as JsonObject, input.state),
    callIds: new Set(input.history.flatMap((event) => functionCallsOf(event.content).map((call) => call.id ?? ''))),
    output: '',
    paused: false,
    llmCalls: 0,
    promptTokens: 0,
    outputTokens: 0,
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
  for (const [key, value] of Object.entries(event.actions?.stateDelta ?? {})) progress.state[key] = value;
  const text = answerTextOf(event.content);
  if (text !== '') progress.output = text;
  return event;
}

/** Adds what a model call used. */
export function countTokens(progress: Progress, usage: ModelAnswer['usageMetadata']): void {
  progress.promptTokens += usage?.promptTokenCount ?? 0;
  progress.outputTokens += (usage?.candidatesTokenCount ?? 0) + (usage?.thoughtsTokenCount ?? 0);
}

/** The call's id where it is new, else a fresh one. */
export function uniqueCallId(progress: Progress, id: string | null | undefined): string {
  const unique = id && !progress.callIds.has(id) ? id : progress.input.newId();
  progress.callIds.add(unique);
  return unique;
}
