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

/**
 * "From outside" means: not made by this runtime. A column of the event says so, because its author and role can be
 * forged. Guardrails check all such text before each model call, whatever the reader does with it. Each text is checked
 * once: the verdict on a frozen event is cached with the event; verdicts of functions and judges are also cached by
 * text. A blocked event is listed on the event that replaces the answer and stays out of all later requests.
 */

/** Characters that a judge reads in one call. */
const MAX_JUDGED = 8_000;
const MAX_CONCURRENT_CHECKS = 8;
/** Verdicts of functions and judges that one guardrail caches; least recently used are evicted. */
const MAX_CACHED_VERDICTS = 10_000;

interface Verdicts {
  /** By frozen event, then by agent name: true if the event must not pass. */
  events: WeakMap<Event, Map<string, boolean>>;
  /** Replacement text by digest; `undefined` if the text may pass. */
  texts: Map<string, string | undefined>;
}

const verdictsOf = new WeakMap<Guard, Verdicts>();

function getVerdicts(guard: Guard): Verdicts {
  const verdicts = verdictsOf.get(guard) ?? { events: new WeakMap(), texts: new Map() };
  verdictsOf.set(guard, verdicts);
  return verdicts;
}

type FindText = (text: string) => Promise<string | undefined>;

/**
 * Returns the guardrail's check; it caches verdicts of functions and judges. `of` is the event that contains the text.
 */
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
  // Within this run only transcribed speech is from outside; the request to an agent used as a tool comes from a model.
  return event.inputTranscription != null;
}

/** Returns the events from outside that the agent sees. */
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

/** Returns the events that must not pass. */
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

/** Checks each text of a run, and the joined run, because a match may span neighbouring texts. */
async function findIn(runs: string[][], find: FindText): Promise<boolean> {
  for (const run of runs)
    for (const text of new Set([run.join(''), ...run])) if ((await find(text)) !== undefined) return true;
  return false;
}

/** Lets a judge read several events in one call; if it objects, bisects to find the culprits. */
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

/** Redacts an event, or empties it if the guardrail cannot tell which part offended. */
const redactEvent = async (guard: Guard, context: HookContext, event: Event): Promise<Event> =>
  guard.action === 'block' || guard.by === 'judge'
    ? withoutTexts(event)
    : withRedacted(event, toFind(guard, context, event.id ?? ''));

/**
 * Checks what came from outside in a model request: events, instruction values, tools, output form. Redactions are made
 * in the request itself. @returns an answer in place of the model's, if something is blocked
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

/** Returns the replacements of events that were blocked earlier. */
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

/** Checks the parts of a request other than its contents. @returns true if it must not pass */
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

/** True for a state value or file that this session's agents did not write themselves. */
function isValueFromOutside(invocation: InvocationState, { key, artifact }: InstructionPiece): boolean {
  if (key === undefined) return artifact !== undefined;
  const writer = invocation.events.findLast(({ actions }) => Object.hasOwn(actions?.stateDelta ?? {}, key));
  if (!writer || writer.author === 'user' || isFromOutside(invocation, writer)) return true;
  // A client can change the state without an event.
  return JSON.stringify(writer.actions?.stateDelta?.[key]) !== JSON.stringify(invocation.state[key]);
}

/** Redacts and blocks events for a model that summarises them or starts a live session. */
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

/** Checks the set-up of a live session, apart from its contents. @returns the sentence why it must not begin */
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

/** Checks what a person typed in a live session. @returns the redacted content, or an answer in its place */
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

/** A checked value; `blocked` is the sentence that replaces it. */
type Guarded = { value: JsonObject; blocked?: string };

/** Checks a value from outside that is about to become an answer or a tool's input. */
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

/** Checks the files of a tool's result. @returns the redacted files, or the sentence that replaces the whole result */
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
