import { createHash } from 'node:crypto';
import {
  type FunctionCall,
  getFunctionCalls,
  getFunctionResponses,
  getParts,
  type JsonObject,
  type Part,
} from '../../core/content.ts';
import type { Event, NewEvent } from '../../core/event.ts';
import { sortMembers } from '../../core/exact-json.ts';
import type { LoopStop } from '../definition/agent.ts';
import type { OpenCall } from './call-ledger.ts';
import type { AgentTurn, InvocationState } from './invocation-state.ts';
import { findTool } from './record-calls.ts';

/*
 * A loop: an agent makes the same calls with the same answers again and again, or a short cycle of calls. It is found in
 * the events of the invocation, so that a process that resumes it finds the same. A step is an answer of the model with
 * calls, and the responses to them.
 */

const DEFAULT_AFTER = 5;
/** Maximum number of steps of a cycle. */
const MAX_CYCLE = 4;
/** Member of a function response that tells the model about the loop. */
const NOTICE = 'loop_notice';

interface Step {
  calls: Event;
  responses: JsonObject[];
}

interface Loop {
  /** Number of steps of the cycle. */
  length: number;
  /** How many times it was made. */
  times: number;
  /** True: the last step has completed a cycle. */
  isWhole: boolean;
  /** The step that comes next if the loop goes on. */
  next: Step;
}

const settingsOf = ({
  input: { agent },
}: InvocationState): Required<Pick<LoopStop, 'after' | 'action' | 'except'>> => ({
  after: DEFAULT_AFTER,
  action: 'end',
  except: [],
  ...agent.loopStop,
});

/**
 * Tells the model in the last function response that it goes round in a circle. If it goes on, the event has an error,
 * unless a person is to be asked.
 */
export function stopLoop(invocation: InvocationState, turn: AgentTurn, event: NewEvent): NewEvent {
  const { after, action } = settingsOf(invocation);
  if (after === 0 || event.errorCode || invocation.input.script?.has(event)) return event;
  const loop = findLoop(invocation, turn, [event]);
  if (!loop?.isWhole) return event;
  if (loop.times === after) return withNotice(event, toNotice(loop));
  if (loop.times < 2 * after || action === 'ask') return event;
  const names = [...new Set(getFunctionCalls(loop.next.calls.content).map(({ name }) => `\`${name}\``))].join(', ');
  const what = loop.length === 1 ? `the same call of ${names}` : `the same ${loop.length} steps of calls`;
  const errorMessage = `\`${turn.agent.name}\` made ${what} with the same answers ${loop.times} times in a row.`;
  return { ...event, errorCode: 'loop_detected', errorMessage };
}

/** The question to a person whether calls may be made again with which a loop goes on; `undefined` if they may. */
export function askInLoop(invocation: InvocationState, turn: AgentTurn, calls: OpenCall[]): string | undefined {
  const { after, action } = settingsOf(invocation);
  if (after === 0 || action !== 'ask') return undefined;
  // The event with these calls is stored already, without responses to them.
  const loop = findLoop(invocation, turn, []);
  if (!loop || loop.times < 2 * after || toCalls(loop.next.calls) !== toKey(calls)) return undefined;
  return `The agent goes round in a circle: it had the same answers ${loop.times} times. May it go on?`;
}

const toNotice = ({ length, times }: Loop) =>
  `${length === 1 ? 'This call has' : `The last ${length} steps have`} had the same answers ${times} times in a row. ` +
  'Do something else, or answer with what you know.';

function withNotice(event: NewEvent, notice: string): NewEvent {
  const parts = getParts(event.content);
  const last = parts.findLastIndex(({ functionResponse }) => functionResponse);
  const noted = parts.map((part, index): Part => {
    if (index !== last || !part.functionResponse) return part;
    const response = { ...part.functionResponse.response, [NOTICE]: notice };
    return { ...part, functionResponse: { ...part.functionResponse, response } };
  });
  return { ...event, content: { ...event.content, parts: noted } };
}

function findLoop(invocation: InvocationState, turn: AgentTurn, newest: NewEvent[]): Loop | undefined {
  const { after, except } = settingsOf(invocation);
  const steps = listSteps(invocation, turn, newest, 2 * after * MAX_CYCLE + MAX_CYCLE);
  if (steps.length < after) return undefined;
  const keys: (string | undefined)[] = [];
  const keyOf = (index: number) => (keys[index] ??= steps[index] && stepKey(turn, steps[index], except));
  for (let length = 1; length <= MAX_CYCLE; length += 1) {
    let same = 0;
    while (keyOf(same) !== undefined && keyOf(same) === keyOf(same + length)) same += 1;
    const next = steps[length - 1];
    const made = same + length;
    if (same > 0 && next && made >= after * length)
      return { length, times: Math.floor(made / length), isWhole: made % length === 0, next };
  }
  return undefined;
}

/** The agent's newest steps, newest first, since a person or the model said something. */
function listSteps({ events, input }: InvocationState, turn: AgentTurn, newest: NewEvent[], limit: number): Step[] {
  const steps: Step[] = [];
  const responses = new Map<unknown, JsonObject>();
  for (let index = events.length + newest.length - 1; index >= 0 && steps.length < limit; index -= 1) {
    const event = newest[index - events.length] ?? (events[index] as Event);
    if (event.invocationId !== input.invocationId || event.author === 'user') break;
    if (event.author !== turn.agent.name || (event.branch ?? undefined) !== turn.branch || !event.content) continue;
    const answers = getFunctionResponses(event.content);
    for (const { id, response } of answers) responses.set(id, response ?? {});
    if (answers.length > 0) continue;
    const calls = getFunctionCalls(event.content);
    const answered = calls.flatMap(({ id }): JsonObject[] => {
      const response = responses.get(id);
      return response ? [response] : [];
    });
    // The newest calls have no responses yet.
    if (calls.length > 0 && answered.length === 0 && steps.length === 0) continue;
    if (calls.length === 0 || answered.length < calls.length) break;
    steps.push({ calls: event, responses: answered });
  }
  return steps;
}

/** Keys of steps by their responses, because a step is compared with many later ones. */
const known = new WeakMap<JsonObject, string>();

/** `undefined`: the step counts for no loop, because a tool of it waits or may repeat. */
function stepKey(turn: AgentTurn, { calls, responses }: Step, except: string[]): string | undefined {
  const tools = getFunctionCalls(calls.content).map((call) => findTool(turn, call));
  if (tools.some((tool) => tool && (tool.longRunning || tool.mayRepeat || except.includes(tool.name))))
    return undefined;
  const digests = responses.map((response) => {
    const digest =
      known.get(response) ??
      createHash('sha256')
        .update(toStable(withoutNotice(response)))
        .digest('base64');
    known.set(response, digest);
    return digest;
  });
  return `${toCalls(calls)} ${digests.join(' ')}`;
}

const withoutNotice = (response: JsonObject) =>
  NOTICE in response ? Object.fromEntries(Object.entries(response).filter(([name]) => name !== NOTICE)) : response;
const toCalls = ({ content }: Event) => toKey(getFunctionCalls(content));
const toKey = (calls: Pick<FunctionCall, 'name' | 'args'>[]) =>
  toStable(calls.map(({ name, args }) => [name, args ?? {}]));

/** JSON with the members of each object in the order of their names. */
const toStable = (value: unknown): string => JSON.stringify(value, sortMembers);
