import { toErrorText } from '../../core/errors.ts';
import { runInTrace, runWith } from '../../platform/context.ts';
import type { Log } from '../../platform/log.ts';
import { ownLines } from '../../core/own-stack.ts';
import { getFunctionResponses, type JsonObject, type Part } from '../../core/content.ts';
import type { Event, EventActions, NewEvent } from '../../core/event.ts';
import type { AgentNode } from '../definition/agent.ts';
import { abortError, orAborted } from '../../core/abort.ts';
import { emptyActions, newEvent, type InvocationState, type AgentTurn } from './invocation-state.ts';
import { getEffect, type Tool, type ToolLog } from '../definition/tool.ts';

/** Maximum size of a function response in characters of JSON: several still fit an event's 1 MiB (reliability B11). */
const MAX_RESPONSE_CHARACTERS = 500_000;

/** Maximum size of all answers of one step, where the input says none. */
const MAX_STEP_CHARACTERS = 1_048_576;

/** A function call that is to be answered; `invalidArguments` is what the model sent where it was no JSON object. */
export interface OpenCall {
  id: string;
  name: string;
  args: JsonObject;
  invalidArguments?: string;
}

/** Whether a person approved a call, by the call's id; absent while undecided. */
export type Decisions = ReadonlyMap<string, boolean>;

interface Answer {
  /** `undefined`: the call stays open, a person or another system answers it later. */
  response: JsonObject | undefined;
  attachments: Part[];
  actions: EventActions;
  /** Where the tool's own code failed: for its author, never for the model or a user. */
  stack?: string;
}

/** The response to a call of a tool that acts once, where the process died that may have run it. */
const OUTCOME_UNKNOWN =
  'It is not known whether this call took effect: the process that ran it stopped. It was not repeated.';

const failed = (error: string): Answer => ({ response: { error }, attachments: [], actions: emptyActions() });

/** The function calls of an event, in order, with what the loop needs to answer them. */
export function toOpenCalls(event: Event): OpenCall[] {
  return (event.content?.parts ?? []).flatMap((part) => {
    const call = part.functionCall;
    if (!call) return [];
    const invalid = part.partMetadata?.['invalidArguments'];
    const open = { id: call.id ?? '', name: call.name ?? '', args: call.args ?? {} };
    return [typeof invalid === 'string' ? { ...open, invalidArguments: invalid } : open];
  });
}

/** Only what JSON can carry, as an object; a value that it cannot carry or that is too large becomes an error. */
function toResponse(value: unknown): JsonObject {
  const text = JSON.stringify(value ?? null) ?? 'null';
  if (text.length > MAX_RESPONSE_CHARACTERS) {
    return { error: `The tool's result is larger than ${MAX_RESPONSE_CHARACTERS} characters. Ask for less.` };
  }
  const plain: unknown = JSON.parse(text);
  return typeof plain === 'object' && plain !== null && !Array.isArray(plain)
    ? (plain as JsonObject)
    : { result: plain };
}

/** As in ADK: the call gets an error for now, and the request stands in the event's actions. */
function requestConfirmation(call: OpenCall): Answer {
  const hint = `The agent wants to use \`${call.name}\`. Do you allow it?`;
  return {
    response: { error: 'This tool call requires confirmation, please approve or reject.' },
    attachments: [],
    actions: {
      ...emptyActions(),
      skipSummarization: true,
      requestedToolConfirmations: { [call.id]: { hint, confirmed: false } },
    },
  };
}

async function runTool(
  invocation: InvocationState,
  { signal }: AgentTurn,
  tool: Tool,
  call: OpenCall,
): Promise<Answer> {
  const { session, invocationId, services, log } = invocation.input;
  const actions = emptyActions();
  const attachments: Part[] = [];
  const context = {
    session,
    invocationId,
    functionCallId: call.id,
    state: invocation.state,
    actions,
    attachments,
    services,
    log: toToolLog(log, call),
    signal,
    askAgent: (agent: AgentNode, request: string) => invocation.askAgent(agent, request, signal),
  };
  try {
    const value = await orAborted(
      runWith({ tool: tool.name }, async () => tool.run(call.args, context)),
      signal,
    );
    const response = tool.longRunning === true && value === undefined ? undefined : toResponse(value);
    // Copies: a tool that keeps working must not change an event that is stored already.
    return { response, attachments: structuredClone(attachments), actions: structuredClone(actions) };
  } catch (error) {
    if (signal.aborted) return failed('interrupted');
    const lines = ownLines(error);
    if (lines.length === 0) return failed(errorText(error));
    const stack = [errorText(error), ...lines].join('\n');
    log?.warn({ tool: call.name, callId: call.id, stack }, 'a tool failed');
    return { ...failed(errorText(error)), stack };
  }
}

function toToolLog(log: Log | undefined, { id, name }: OpenCall): ToolLog {
  const at =
    (level: keyof ToolLog): ToolLog[keyof ToolLog] =>
    (message, fields) =>
      log?.[level]({ ...fields, tool: name, callId: id }, message);
  return { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') };
}

const errorText = (error: unknown) => (error instanceof Error && error.message ? error.message : 'The tool failed.');

async function answerCall(
  invocation: InvocationState,
  turn: AgentTurn,
  call: OpenCall,
  decisions: Decisions,
): Promise<Answer> {
  const { tools } = turn.agent;
  const tool = tools.find((candidate) => candidate.name === call.name);
  if (!tool) {
    const names = tools.map((candidate) => candidate.name).join(', ') || 'none';
    return failed(`Tool \`${toErrorText(call.name)}\` does not exist. Available: ${names}`);
  }
  if (call.invalidArguments !== undefined) {
    return failed('The arguments were not a JSON object. Call the tool again with valid JSON.');
  }
  const problem = tool.checkArguments
    ? await tool.checkArguments(call.args, turn.signal)
    : await wrongArguments(tool, call);
  if (problem !== undefined) return failed(problem);
  if (turn.signal.aborted) return failed('interrupted');
  const decision = decisions.get(call.id);
  if (decision === false) return failed('This tool call is rejected.');
  if (tool.needsConfirmation && decision === undefined) return requestConfirmation(call);
  const mayHaveRun = invocation.input.stored?.callIds.has(call.id) === true;
  if (mayHaveRun && getEffect(tool) === 'once') return failed(OUTCOME_UNKNOWN);
  return runTool(invocation, turn, tool, call);
}

/** Returns the first problem of a call's arguments. Loads the validator on first use. */
async function wrongArguments({ parameters }: Tool, { args }: OpenCall): Promise<string | undefined> {
  const { argumentsError } = await import('../arguments/check-arguments.ts');
  return argumentsError(parameters, args);
}

async function answerTraced(
  invocation: InvocationState,
  turn: AgentTurn,
  call: OpenCall,
  decisions: Decisions,
): Promise<Answer> {
  const step = invocation.input.observer?.toolCall(turn.agent.name, call);
  const answer = await runInTrace(step?.traceparent, () => answerCall(invocation, turn, call, decisions));
  step?.end(answer.response, answer.stack);
  return answer;
}

/** Merges actions for one event: a later value wins; maps merge by key, without a prototype: `__proto__` is data. */
export function mergeActions(all: EventActions[]): EventActions {
  const merged: Record<string, unknown> = emptyActions();
  for (const actions of all) {
    for (const [name, value] of Object.entries(actions)) {
      const isMap = name === 'stateDelta' || name === 'artifactDelta' || name.startsWith('requested');
      merged[name] = isMap ? mergeMaps(merged[name], value) : value;
    }
  }
  return merged;
}

function mergeMaps(first: unknown, second: unknown): JsonObject {
  const merged = Object.create(null) as JsonObject;
  for (const map of [first, second]) for (const [key, value] of Object.entries(map ?? {})) merged[key] = value;
  return merged;
}

function toResponsePart(call: OpenCall, { response, attachments }: Answer): Part[] {
  if (!response) return [];
  const media = attachments.length > 0 ? { parts: attachments } : {};
  return [{ functionResponse: { id: call.id, name: call.name, response, ...media } }];
}

/**
 * Limits the total size of a step's answers: one that no longer fits becomes an error. They all end up in one event,
 * and a hundred calls of 4 MB each would fill the memory long before that event is measured.
 */
function withRoom(maximum: number): (answer: Answer) => Answer {
  let room = maximum;
  return (answer) => {
    const size = getSize(answer);
    if (size <= room) {
      room -= size;
      return answer;
    }
    const error = `The results of this step are together larger than ${maximum} characters. Ask for less at once.`;
    return { ...failed(error), actions: answer.actions };
  };
}

const getSize = ({ response, attachments }: Answer): number =>
  (response ? JSON.stringify(response).length : 0) +
  attachments.reduce((sum, { inlineData, text }) => sum + (inlineData?.data?.length ?? 0) + (text?.length ?? 0), 0);

/**
 * Runs the calls of one step in parallel and gives their responses as ONE event in call order; `undefined` where every
 * call stays open. An abort answers what still runs with `interrupted` and marks the event with the abort's error.
 * Never throws.
 */
export async function callTools(
  invocation: InvocationState,
  turn: AgentTurn,
  calls: OpenCall[],
  decisions: Decisions = new Map(),
): Promise<{ event: NewEvent | undefined; stillOpen: boolean }> {
  const isAnswer = (event: NewEvent) => getFunctionResponses(event.content).length > 0;
  const stored = invocation.input.stored?.take(turn, isAnswer);
  if (stored) return { event: stored, stillOpen: getFunctionResponses(stored.content).length < calls.length };
  const bounded = withRoom(invocation.input.eventBytes ?? MAX_STEP_CHARACTERS);
  const answers = await Promise.all(
    calls.map(async (call) => bounded(await answerTraced(invocation, turn, call, decisions))),
  );
  const { signal } = turn;
  const parts = calls.flatMap((call, index) => {
    const answer = answers[index] as Answer;
    return toResponsePart(call, signal.aborted && !answer.response ? failed('interrupted') : answer);
  });
  const stillOpen = parts.length < calls.length;
  if (parts.length === 0 && !signal.aborted) return { event: undefined, stillOpen };
  const event = newEvent(invocation, turn, {
    ...(parts.length > 0 ? { content: { role: 'user', parts } } : {}),
    actions: mergeActions(answers.map((answer) => answer.actions)),
  });
  return { event: signal.aborted ? withError(event, abortError(signal)) : event, stillOpen };
}

/** A copy of the event with the error that ends its invocation; its content stays. */
export function withError(event: NewEvent, error: { code: string; message: string }): NewEvent {
  return { ...event, errorCode: error.code, errorMessage: error.message };
}
