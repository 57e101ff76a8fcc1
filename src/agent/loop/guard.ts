import { createHash } from 'node:crypto';
import { getParts, type Content, type JsonObject, type Part } from '../../core/content.ts';
import { type Event, isSteer } from '../../core/event.ts';
import { newPauses } from '../../platform/work/loop-turns.ts';
import { BLOCKED, checkValue, guardedContents, REDACTED } from '../definition/guardrail.ts';
import type { Guard, HookContext } from '../definition/hooks.ts';
import type { ModelAnswer, ModelRequest } from '../definition/model.ts';
import { buildAnew, ensureUserFirstAndLast, listShown } from './build-contents.ts';
import { type HookMarks, listBlocked, newMarks, runGuards } from './hooks.ts';
import type { InstructionPiece } from './instruction.ts';
import type { AgentTurn, InvocationState } from './invocation-state.ts';
import { listRuns, withoutTexts, withRedacted } from './outside-texts.ts';

/**
 * Guardrails check all text that was not made by this runtime ("from outside") before each model call, wherever the
 * model reads it. A column of the stored event says who made it, because its author and role can be forged. Each text
 * is checked once: verdicts are cached by frozen event, those of functions and judges also by text. If an event is
 * blocked, the event with the refusal lists its id, and later requests do not contain its text.
 */

/** Maximum number of characters that a judge (a model call) reads in one call. */
const MAX_JUDGED = 8_000;
const MAX_CONCURRENT_CHECKS = 8;
/** Maximum number of cached verdicts per guardrail; the least recently used are evicted. */
const MAX_CACHED_VERDICTS = 10_000;

interface Verdicts {
  /** Cached verdicts by frozen event, then by agent name; true: the event must not pass. */
  events: WeakMap<Event, Map<string, boolean>>;
  /** Cached verdicts by digest of the text: a replacement if the text must not pass, else `undefined`. */
  texts: Map<string, string | undefined>;
}

const verdictsOf = new WeakMap<Guard, Verdicts>();

function getVerdicts(guard: Guard): Verdicts {
  const verdicts = verdictsOf.get(guard) ?? { events: new WeakMap(), texts: new Map() };
  verdictsOf.set(guard, verdicts);
  return verdicts;
}

type FindText = (text: string) => Promise<string | undefined>;

/** The guardrail's check with a cache of verdicts of functions and judges. `of` is the id of the text's event. */
function toFind(guard: Guard, context: HookContext, of: string): FindText {
  const find: FindText = (text) => guard.find(text, context);
  if (guard.by === 'patterns') return find;
  const { texts } = getVerdicts(guard);
  const { session, agentName } = context;
  const scope = JSON.stringify([session.appName, session.userId, session.sessionId, agentName, of]);
  return async (text) => {
    const name = createHash('sha256').update(scope).update(text).digest('base64');
    const replacement = texts.has(name) ? texts.get(name) : await find(text);
    texts.delete(name);
    texts.set(name, replacement);
    for (const oldest of texts.keys()) {
      if (texts.size <= MAX_CACHED_VERDICTS) break;
      texts.delete(oldest);
    }
    return replacement;
  };
}

const historySets = new WeakMap<Event[], Set<Event>>();

function isOfHistory(history: Event[], event: Event): boolean {
  const events = historySets.get(history) ?? new Set(history);
  historySets.set(history, events);
  return events.has(event);
}

function isFromOutside({ input }: InvocationState, event: Event): boolean {
  if (isOfHistory(input.history, event)) return event.author === 'user' || !input.runtimeEventIds.has(event.id ?? '');
  // In the current invocation only the transcript of the user's speech, and messages that came while it runs, were not
  // made by this runtime. A model made the request to an agent used as a tool.
  return event.inputTranscription != null || isSteer(event);
}

/** Returns the events that were not made by this runtime and that the agent's model reads. */
function listOutside(invocation: InvocationState, { agent, branch }: AgentTurn, events: Event[]): Event[] {
  const shown = new Set(listShown(events, { agentName: agent.name, branch }));
  return events.filter((event) => (shown.has(event) || event.actions?.compaction) && isFromOutside(invocation, event));
}

const listBlockedBefore = (invocation: InvocationState): Set<string> =>
  new Set(
    invocation.events.flatMap((event) =>
      event.customMetadata && !isFromOutside(invocation, event) ? listBlocked(event) : [],
    ),
  );

/** Returns the events that the guardrail does not let pass. */
async function findEvents(guard: Guard, context: HookContext, events: Event[]): Promise<Event[]> {
  const { events: cached } = getVerdicts(guard);
  const verdictOf = (event: Event) => cached.get(event)?.get(context.agentName);
  const unchecked = events.filter((event) => verdictOf(event) === undefined);
  const matches = new Set(
    guard.by === 'judge' ? await judge(guard, context, unchecked) : await findEach(guard, context, unchecked),
  );
  for (const event of unchecked) {
    if (!Object.isFrozen(event)) continue;
    cached.set(event, (cached.get(event) ?? new Map<string, boolean>()).set(context.agentName, matches.has(event)));
  }
  return events.filter((event) => matches.has(event) || verdictOf(event) === true);
}

async function findEach(guard: Guard, context: HookContext, events: Event[]): Promise<Event[]> {
  const pause = newPauses();
  const matches: Event[] = [];
  const open = events.values();
  const work = async () => {
    for (const event of open) {
      await pause();
      if (await findIn(listRuns(event), toFind(guard, context, event.id ?? ''))) matches.push(event);
    }
  };
  await Promise.all(Array.from({ length: guard.by === 'function' ? MAX_CONCURRENT_CHECKS : 1 }, work));
  return matches;
}

/** Checks each text, and the joined texts of a run (read one after the other): a match may span several. */
async function findIn(runs: string[][], find: FindText): Promise<boolean> {
  for (const run of runs)
    for (const text of new Set([run.join(''), ...run])) if ((await find(text)) !== undefined) return true;
  return false;
}

/** Lets a judge (a model call) read several events at once; those that it objects to are found by bisection. */
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

/** Redacts an event. If the check cannot tell which text matched, all texts of the event are replaced. */
const redactEvent = async (guard: Guard, context: HookContext, event: Event): Promise<Event> =>
  guard.action === 'block' || guard.by === 'judge'
    ? withoutTexts(event)
    : withRedacted(event, toFind(guard, context, event.id ?? ''));

/**
 * Checks everything in a model request that was not made by this runtime: events, values inserted into the instruction,
 * tools, and the output schema. Redacts matches in the request itself. If something is blocked, returns an answer, and
 * the model is not called.
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
    const originals = new Map(open.map((event) => [replaced.get(event) ?? event, event]));
    const matches = await findEvents(guard, context, [...originals.keys()]);
    if (guard.action === 'block') marks.blocked.push(...matches.flatMap((event) => event.id ?? []));
    else for (const each of matches) replaced.set(originals.get(each) ?? each, await redactEvent(guard, context, each));
    const isBlocked = guard.action === 'block' && matches.length > 0;
    if (isBlocked || (await guardOthers(guard, context, { invocation, turn, request, pieces }))) return toBlock(guard);
    return undefined;
  });
  if (answer) return answer;
  if (replaced.size > 0) {
    const shown = events.map((event) => replaced.get(event) ?? event);
    const audience = { agentName: agent.name, branch: turn.branch, isOutside: agent.isRemote };
    request.contents = ensureUserFirstAndLast(buildAnew(shown, audience));
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

/** Returns a replacement without the original texts for each event that was blocked earlier. */
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

/** Looks for what the guardrail forbids in a request's instruction, tools and output schema; true if it is blocked. */
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
    const { name, ...declaration } = tool;
    const checked = await checkValue(declaration, find, guard.action);
    if (checked === BLOCKED || (await find(name)) !== undefined) return true;
    if (checked) request.tools[index] = { ...tool, ...(checked as Partial<typeof tool>) };
  }
  return agent.isBrought?.form === true && (await find(JSON.stringify(request.outputSchema))) !== undefined;
}

/** True for a state value or artifact inserted into the instruction that no agent of this session has written. */
function isValueFromOutside(invocation: InvocationState, { key, artifact }: InstructionPiece): boolean {
  if (key === undefined) return artifact !== undefined;
  const writer = invocation.events.findLast(({ actions }) => Object.hasOwn(actions?.stateDelta ?? {}, key));
  if (!writer || writer.author === 'user' || isFromOutside(invocation, writer)) return true;
  // Clients can change the state without an event, so the value must be the one that the agent last wrote.
  return JSON.stringify(writer.actions?.stateDelta?.[key]) !== JSON.stringify(invocation.state[key]);
}

/** Redacts and blocks events before a model summarises them, or reads them as the history of a live session. */
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
    const originals = new Map(open.map((event) => [replaced.get(event) ?? event, event]));
    for (const each of await findEvents(guard, context, [...originals.keys()]))
      replaced.set(originals.get(each) ?? each, await redactEvent(guard, context, each));
    return undefined;
  });
  return replaced.size === 0 ? events : events.map((event) => replaced.get(event) ?? event);
}

/** Checks the settings of a live session, not its contents; returns the reason if the session must not begin. */
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

/** Checks what a person typed in a live session; returns the redacted content, or an answer if it is blocked. */
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
    if (guard.action === 'redact') event = await redactEvent(guard, context, event);
    else if (event.id) marks.blocked.push(event.id);
    return guard.action === 'redact' ? undefined : toBlock(guard);
  });
  return { content: event.content ?? content, ...(answer && { answer }) };
}

/** A checked value; if it is blocked, `blocked` is the text to use in its place. */
type Guarded = { value: JsonObject; blocked?: string };

/** Checks a value that was not made by this runtime, before it becomes a function response or the input of a tool. */
export async function guardValue(
  invocation: InvocationState,
  turn: AgentTurn,
  at: Guard['at'][number],
  original: JsonObject,
  marks: HookMarks,
): Promise<Guarded> {
  let value = original;
  const blocked = await runGuards(invocation, turn, at, marks, async (guard, context) => {
    const checked = await checkValue(value, (text) => guard.find(text, context), guard.action);
    if (checked === BLOCKED) return guard.message;
    value = (checked as JsonObject | undefined) ?? value;
    return undefined;
  });
  return { value, ...(blocked !== undefined && { blocked }) };
}

const REDACTED_FILE: Part = { inlineData: { mimeType: 'text/plain', data: Buffer.from(REDACTED).toString('base64') } };

/** Checks the files in a tool's result; returns the redacted files, or the text to use in place of the whole result. */
export async function guardFiles(
  invocation: InvocationState,
  turn: AgentTurn,
  files: Part[],
  marks: HookMarks,
): Promise<Part[] | string> {
  let checked = files;
  const blocked = await runGuards(invocation, turn, 'results', marks, async (guard, context) => {
    const events = checked.map((file): Event => ({ content: { parts: [file] } }));
    const matches = new Set(await findEvents(guard, context, events));
    if (matches.size > 0 && guard.action === 'block') return guard.message;
    checked = events.map((event) => (matches.has(event) ? REDACTED_FILE : (getParts(event.content)[0] as Part)));
    return undefined;
  });
  return blocked ?? checked;
}
