import { createHash } from 'node:crypto';
import { getParts, type Content, type JsonObject, type Part } from '../../core/content.ts';
import type { Event } from '../../core/event.ts';
import { newPauses } from '../../platform/work/loop-turns.ts';
import { BLOCKED, checkValue, guardedContents, REDACTED } from '../definition/guardrail.ts';
import type { Guard, HookContext } from '../definition/hooks.ts';
import type { ModelAnswer, ModelRequest } from '../definition/model.ts';
import { buildAnew, ensureUserFirstAndLast, listShown } from './build-contents.ts';
import { type HookMarks, listBlocked, newMarks, runGuards } from './hooks.ts';
import type { InstructionPiece } from './instruction.ts';
import type { AgentTurn, InvocationState } from './invocation-state.ts';
import { listRuns, withoutTexts, withRedacted } from './outside-texts.ts';

/*
 * What comes from outside is what this runtime did not make: the column of an event says it, not its author or role.
 * Guardrails look at all of it before each model call, whatever stands behind it. A text is checked once: what was said
 * of a frozen event is kept with it, what a function or a judge said also by the text. What was blocked is noted on the
 * event in its place, and stays out of all later requests.
 */

/** Characters of texts that a judge reads at once. */
const MAX_JUDGED = 8_000;
/** Checks by a function that run at once. */
const MAX_AT_ONCE = 8;
/** What functions and judges have said that one guardrail keeps, the least recently used go first. */
const MAX_KEPT = 10_000;

/** What a guardrail has said so far. */
interface Verdicts {
  /** By the frozen event, and the agent. */
  events: WeakMap<Event, Map<string, boolean>>;
  /** By digests of texts. */
  texts: Map<string, string | undefined>;
}

const verdictsOf = new WeakMap<Guard, Verdicts>();

function getVerdicts(guard: Guard): Verdicts {
  const known = verdictsOf.get(guard) ?? { events: new WeakMap(), texts: new Map() };
  verdictsOf.set(guard, known);
  return known;
}

type FindText = (text: string) => Promise<string | undefined>;

/** Returns the check of a guardrail that keeps what a function or a judge said. `of`: the event that has the text. */
function toFind(guard: Guard, context: HookContext, of: string): FindText {
  const find: FindText = (text) => guard.find(text, context);
  if (guard.by === 'patterns') return find;
  const { texts } = getVerdicts(guard);
  const { session, agentName } = context;
  const scope = JSON.stringify([session.appName, session.userId, session.sessionId, agentName, of]);
  return async (text) => {
    const name = createHash('sha256').update(scope).update(text).digest('base64');
    const found = texts.has(name) ? texts.get(name) : await find(text);
    texts.delete(name);
    texts.set(name, found);
    for (const oldest of texts.keys()) {
      if (texts.size <= MAX_KEPT) break;
      texts.delete(oldest);
    }
    return found;
  };
}

const historySets = new WeakMap<Event[], Set<Event>>();

function isOfHistory(history: Event[], event: Event): boolean {
  const known = historySets.get(history) ?? new Set(history);
  historySets.set(history, known);
  return known.has(event);
}

/** True for an event that a client brought, or a person. */
function isFromOutside({ input }: InvocationState, event: Event): boolean {
  if (isOfHistory(input.history, event)) return event.author === 'user' || !input.runtimeEventIds.has(event.id ?? '');
  // Of this run only what a person has spoken: the request to an agent that is a tool is the model's.
  return event.inputTranscription != null;
}

/** The events of these that were brought, and that the agent is shown. */
function listOutside(invocation: InvocationState, { agent, branch }: AgentTurn, events: Event[]): Event[] {
  const shown = new Set(listShown(events, { agentName: agent.name, branch }));
  return events.filter((event) => (shown.has(event) || event.actions?.compaction) && isFromOutside(invocation, event));
}

/** The ids of the events that guardrails have blocked before. */
const listBlockedBefore = (invocation: InvocationState): Set<string> =>
  new Set(
    invocation.events.flatMap((event) =>
      event.customMetadata && !isFromOutside(invocation, event) ? listBlocked(event) : [],
    ),
  );

/** Finds those of the events that may not pass. */
async function findEvents(guard: Guard, context: HookContext, events: Event[]): Promise<Event[]> {
  const { events: known } = getVerdicts(guard);
  const said = (event: Event) => known.get(event)?.get(context.agentName);
  const left = events.filter((event) => said(event) === undefined);
  const found = new Set(
    guard.by === 'judge' ? await judge(guard, context, left) : await findEach(guard, context, left),
  );
  for (const event of left) {
    if (!Object.isFrozen(event)) continue;
    known.set(event, (known.get(event) ?? new Map<string, boolean>()).set(context.agentName, found.has(event)));
  }
  return events.filter((event) => found.has(event) || said(event) === true);
}

async function findEach(guard: Guard, context: HookContext, events: Event[]): Promise<Event[]> {
  const pause = newPauses();
  const found: Event[] = [];
  const open = events.values();
  const work = async () => {
    for (const event of open) {
      await pause();
      if (await findIn(listRuns(event), toFind(guard, context, event.id ?? ''))) found.push(event);
    }
  };
  await Promise.all(Array.from({ length: guard.by === 'function' ? MAX_AT_ONCE : 1 }, work));
  return found;
}

/** Looks in each text, and across those that stand next to each other. */
async function findIn(runs: string[][], find: FindText): Promise<boolean> {
  for (const run of runs)
    for (const text of new Set([run.join(''), ...run])) if ((await find(text)) !== undefined) return true;
  return false;
}

/** Has several events read at once; where something is found in them, each half. */
async function judge(guard: Guard, context: HookContext, events: Event[]): Promise<Event[]> {
  const texts = events.flatMap((event) => {
    const text = listRuns(event)
      .map((run) => run.join(''))
      .join('\n\n');
    return text === '' ? [] : [{ event, text }];
  });
  const find = (some: typeof texts) => {
    const of = JSON.stringify(some.map(({ event }) => event.id));
    return toFind(guard, context, of)(some.map(({ text }) => text).join('\n\n'));
  };
  const search = async (some: typeof texts): Promise<Event[]> => {
    const [first] = some;
    if (!first || (await find(some)) === undefined) return [];
    if (some.length === 1) return [first.event];
    const half = some.length >> 1;
    return [...(await search(some.slice(0, half))), ...(await search(some.slice(half)))];
  };
  return (await Promise.all(toBatches(texts).map(search))).flat();
}

function toBatches<Item extends { text: string }>(items: Item[]): Item[][] {
  const batches: Item[][] = [];
  let length = Infinity;
  for (const item of items) {
    if (length + item.text.length > MAX_JUDGED) batches.push([]);
    length = batches.at(-1)?.length === 0 ? item.text.length : length + item.text.length;
    batches.at(-1)?.push(item);
  }
  return batches;
}

/** Returns an event without what a guardrail has found in it. */
const withoutFound = async (guard: Guard, context: HookContext, event: Event): Promise<Event> =>
  guard.action === 'block' || guard.by === 'judge'
    ? withoutTexts(event)
    : withRedacted(event, toFind(guard, context, event.id ?? ''));

/**
 * Checks what came from outside in the request of a model: events, values in the instruction, tools, a form. What is to
 * be redacted is so in the request. @returns the answer in the model's place, where something is blocked
 */
export async function guardRequest(
  invocation: InvocationState,
  turn: AgentTurn,
  request: ModelRequest,
  instruction: InstructionPiece[],
  marks: HookMarks,
): Promise<ModelAnswer | undefined> {
  if (!hasGuard(turn)) return undefined;
  const { agent } = turn;
  const { events } = invocation;
  const outside = listOutside(invocation, turn, events);
  const replaced = takeBlocked(invocation, outside);
  const open = outside.filter((event) => !replaced.has(event));
  const pieces = instruction.map((piece) => ({ ...piece }));
  const answer = await runGuards(invocation, turn, 'input', marks, async (guard, context) => {
    const now = new Map(open.map((event) => [replaced.get(event) ?? event, event]));
    const found = await findEvents(guard, context, [...now.keys()]);
    if (guard.action === 'block') marks.blocked.push(...found.flatMap((event) => event.id ?? []));
    else for (const each of found) replaced.set(now.get(each) ?? each, await withoutFound(guard, context, each));
    const isBlocked = guard.action === 'block' && found.length > 0;
    if (isBlocked || (await guardOthers(guard, context, { invocation, turn, request, pieces }))) return toBlock(guard);
    return undefined;
  });
  if (answer) return answer;
  if (replaced.size > 0) {
    const left = events.map((event) => replaced.get(event) ?? event);
    const audience = { agentName: agent.name, branch: turn.branch, isOutside: agent.isRemote };
    request.contents = ensureUserFirstAndLast(buildAnew(left, audience));
  }
  guardedContents.set(request, new Set(request.contents));
  request.instruction = pieces.map(({ text }) => text).join('') + agent.appendedInstruction;
  return undefined;
}

const hasGuard = ({ agent }: AgentTurn) => agent.hooks?.some(({ guard }) => guard?.at.includes('input')) === true;

const toBlock = ({ message }: Guard): ModelAnswer => ({
  content: { role: 'model', parts: [{ text: message }] },
  finishReason: 'SAFETY',
});

/** Returns what stands in the place of events that were blocked before. */
function takeBlocked(invocation: InvocationState, events: Event[]): Map<Event, Event> {
  const blocked = listBlockedBefore(invocation);
  return new Map(events.flatMap((event) => (blocked.has(event.id ?? '') ? [[event, withoutTexts(event)]] : [])));
}

interface Others {
  invocation: InvocationState;
  turn: AgentTurn;
  request: ModelRequest;
  pieces: InstructionPiece[];
}

/** Checks what a request has beside its contents. @returns true where it may not pass */
async function guardOthers(
  guard: Guard,
  context: HookContext,
  { invocation, turn: { agent }, request, pieces }: Others,
): Promise<boolean> {
  const find = toFind(guard, context, '');
  const values = pieces.filter((piece) => agent.isBrought?.instruction || isValueFromOutside(invocation, piece));
  const texts = values.map(({ text }) => text);
  if (values.length > 0 && (await findIn([guard.by === 'judge' ? [texts.join('')] : texts], find))) {
    if (guard.action === 'block') return true;
    for (const value of values) value.text = (await find(value.text)) ?? value.text;
    if ((await find(values.map(({ text }) => text).join(''))) !== undefined) return true;
  }
  for (const [index, tool] of request.tools.entries()) {
    const { isOfClient, isBrought } = agent.tools[index] ?? {};
    if (!isOfClient && !isBrought) continue;
    const { name, ...told } = tool;
    const checked = await checkValue(told, find, guard.action);
    if (checked === BLOCKED || (await find(name)) !== undefined) return true;
    if (checked) request.tools[index] = { ...tool, ...(checked as Partial<typeof tool>) };
  }
  return agent.isBrought?.form === true && (await find(JSON.stringify(request.outputSchema))) !== undefined;
}

/** True for a value of the state, or a file, that the agents of this session did not write themselves. */
function isValueFromOutside(invocation: InvocationState, { key, artifact }: InstructionPiece): boolean {
  if (key === undefined) return artifact !== undefined;
  const writer = invocation.events.findLast(({ actions }) => Object.hasOwn(actions?.stateDelta ?? {}, key));
  if (!writer || writer.author === 'user' || isFromOutside(invocation, writer)) return true;
  // A client can change the state without an event.
  return JSON.stringify(writer.actions?.stateDelta?.[key]) !== JSON.stringify(invocation.state[key]);
}

/** Returns events as a model may see them that sums them up, or hears them at the start of a live session. */
export async function guardEvents(
  invocation: InvocationState,
  turn: AgentTurn,
  events: Event[],
  marks: HookMarks,
): Promise<Event[]> {
  if (!hasGuard(turn)) return events;
  const outside = listOutside(invocation, turn, events);
  const replaced = takeBlocked(invocation, outside);
  const open = outside.filter((event) => !replaced.has(event));
  await runGuards(invocation, turn, 'input', marks, async (guard, context) => {
    const now = new Map(open.map((event) => [replaced.get(event) ?? event, event]));
    for (const each of await findEvents(guard, context, [...now.keys()]))
      replaced.set(now.get(each) ?? each, await withoutFound(guard, context, each));
    return undefined;
  });
  return replaced.size === 0 ? events : events.map((event) => replaced.get(event) ?? event);
}

/** Checks the set-up of a live session, beside its contents. @returns the sentence that says why it may not begin */
export async function guardSetUp(
  invocation: InvocationState,
  turn: AgentTurn,
  request: ModelRequest,
  pieces: InstructionPiece[],
): Promise<string | undefined> {
  const others = { invocation, turn, request, pieces };
  return runGuards(invocation, turn, 'input', newMarks(), async (guard, context) =>
    (await guardOthers(guard, context, others)) ? guard.message : undefined,
  );
}

/** Checks what a person has typed in a live session. @returns it as guardrails leave it, or an answer in its place */
export async function guardTyped(
  invocation: InvocationState,
  turn: AgentTurn,
  content: Content,
  marks: HookMarks,
): Promise<{ content: Content; answer?: ModelAnswer }> {
  const { history, invocationId } = invocation.input;
  const stored = history.findLast((event) => event.author === 'user' && event.invocationId === invocationId);
  let event: Event = { ...(stored?.id != null && { id: stored.id }), content };
  const answer = await runGuards(invocation, turn, 'input', marks, async (guard, context) => {
    if ((await findEvents(guard, context, [event])).length === 0) return undefined;
    if (guard.action === 'redact') event = await withoutFound(guard, context, event);
    else if (event.id) marks.blocked.push(event.id);
    return guard.action === 'redact' ? undefined : toBlock(guard);
  });
  return { content: event.content ?? content, ...(answer && { answer }) };
}

/** A value as guardrails leave it; `blocked`: the sentence in its place. */
type Guarded = { value: JsonObject; blocked?: string };

/** Checks a value from outside that is about to be an answer, or to be told to a tool. */
export async function guardValue(
  invocation: InvocationState,
  turn: AgentTurn,
  at: Guard['at'][number],
  given: JsonObject,
  marks: HookMarks,
): Promise<Guarded> {
  let value = given;
  const blocked = await runGuards(invocation, turn, at, marks, async (guard, context) => {
    const checked = await checkValue(value, (text) => guard.find(text, context), guard.action);
    if (checked === BLOCKED) return guard.message;
    value = (checked as JsonObject | undefined) ?? value;
    return undefined;
  });
  return { value, ...(blocked !== undefined && { blocked }) };
}

const REDACTED_FILE: Part = { inlineData: { mimeType: 'text/plain', data: Buffer.from(REDACTED).toString('base64') } };

/** Checks the files that a tool gives with its response. @returns them, or the sentence in the place of all it said */
export async function guardFiles(
  invocation: InvocationState,
  turn: AgentTurn,
  files: Part[],
  marks: HookMarks,
): Promise<Part[] | string> {
  let left = files;
  const blocked = await runGuards(invocation, turn, 'results', marks, async (guard, context) => {
    const events = left.map((file): Event => ({ content: { parts: [file] } }));
    const found = new Set(await findEvents(guard, context, events));
    if (found.size > 0 && guard.action === 'block') return guard.message;
    left = events.map((event) => (found.has(event) ? REDACTED_FILE : (getParts(event.content)[0] as Part)));
    return undefined;
  });
  return blocked ?? left;
}
