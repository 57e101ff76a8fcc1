import type { Content, FunctionCall, Part } from '../../core/content.ts';
import { getFunctionCalls, getFunctionResponses, getParts } from '../../core/content.ts';
import { isRefusal } from '../../core/error-codes.ts';
import { type Event, withoutRewound } from '../../core/event.ts';
import { CONTEXT_PREFIX } from '../definition/model.ts';
import { CONFIRMATION_CALL } from './confirmation.ts';
import { asGiven, toCorrection } from './structured-output.ts';

/** Calls that ask a person; the model never made them and never sees them. */
const HIDDEN_CALLS = new Set([CONFIRMATION_CALL, 'adk_request_credential']);

/** True for the name of a call that no model sees, nor the response to it. */
export const isHiddenCall = (name: string): boolean => HIDDEN_CALLS.has(name);

/** The agent whose model sees the history: other agents' events become context, and other branches are left out. */
export interface Audience {
  agentName: string;
  branch?: string | undefined;
  /** True for an agent of another service: it hears what others said, and nothing of their tools [false]. */
  isOutside?: boolean | undefined;
}

/**
 * Builds the contents that a model sees of a history: rewound, refused, partial and empty events are left out,
 * compacted ones replaced by their summary, and every function call is followed by exactly one response (the latest;
 * `interrupted` where there is none). The first and last content can be of either role: see
 * {@link ensureUserFirstAndLast}. The contents of the frozen events at the beginning are kept, so that the next
 * invocation only adds to them.
 */
export function buildContents(history: Event[], audience: Audience): Content[] {
  const known = knownContents(history, audience);
  const rest = known && toContents(history.slice(known.length), audience);
  if (known && rest?.isOwn === true) return [...known.contents, ...rest.contents];
  return buildAnew(history, audience);
}

/** As {@link buildContents}, of events of which some stand in the place of others: nothing of the known is taken. */
export const buildAnew = (history: Event[], audience: Audience): Content[] => toContents(history, audience).contents;

/** The events of a history that an audience is shown, in order; a summary stands for those that it covers. */
export const listShown = (history: Event[], audience: Audience): Event[] =>
  withoutCompacted(withoutRefused(withoutRewound(history)), history).filter(
    (event) => event.partial !== true && isInBranch(event, audience.branch),
  );

/** The contents built from the first `length` events of a history. */
interface KnownContents extends Audience {
  length: number;
  /** Frozen, since later invocations get the same; only grows. */
  contents: Content[];
}

/**
 * By the last event that they are made of. Only frozen events count: those that the history cache lends to every
 * invocation of the session, so what is kept goes with them. The same event at the same place has the same before it.
 */
const knownByLast = new WeakMap<Event, KnownContents>();

/** Shorter histories are converted faster than they are looked up. */
const MIN_KNOWN = 32;
/** Maximum of events that an invocation adds before the next looks for what is known. */
const MAX_ADDED = 200;

/** The contents of all frozen events at the beginning; `undefined` where they are few or change each other. */
function knownContents(history: Event[], { agentName, branch, isOutside }: Audience): KnownContents | undefined {
  const length = history.findLastIndex((event) => Object.isFrozen(event)) + 1;
  const last = history[length - 1];
  if (length < MIN_KNOWN || !last) return undefined;
  const before = findKnown(history, length, { agentName, branch });
  if (before?.length === length) return before;
  const added = before && toContents(history.slice(before.length, length), before);
  const goesOn = before && added?.isOwn === true;
  const known = goesOn ? before : { agentName, branch, isOutside, length: 0, contents: [] };
  const made = goesOn ? added : toContents(history.slice(0, length), known);
  if (made.changesEarlier) return undefined;
  const key = history[known.length - 1];
  if (key) knownByLast.delete(key);
  for (const content of made.contents) {
    Object.freeze(content.parts);
    known.contents.push(Object.freeze(content));
  }
  known.length = length;
  knownByLast.set(last, known);
  return known;
}

/** The longest known beginning of the first `length` events. */
function findKnown(history: Event[], length: number, { agentName, branch }: Audience): KnownContents | undefined {
  for (let place = length; place > Math.max(0, length - MAX_ADDED); place -= 1) {
    const known = knownByLast.get(history[place - 1] as Event);
    if (known?.length === place && known.agentName === agentName && known.branch === branch) return known;
  }
  return undefined;
}

/** Contents of consecutive events. */
interface MadeContents {
  contents: Content[];
  /** True where an event takes back, sums up or drops what stands before it. */
  changesEarlier: boolean;
  /** True where they are the same whatever stands before these events, and leave what is made of that as it is. */
  isOwn: boolean;
}

function toContents(history: Event[], audience: Audience): MadeContents {
  const events = listShown(history, audience)
    .map(toShown)
    .filter((event) => getParts(event.content).length > 0)
    .map((event) => (isForeign(event, audience) ? toContext(event, audience) : event));
  const { slots, allAnswer } = fillSlots(events);
  const contents = pairCalls(events, slots).filter((content) => getParts(content).length > 0);
  const changesEarlier = history.some(isOfEarlier);
  return { contents, changesEarlier, isOwn: allAnswer && !changesEarlier };
}

const isOfEarlier = ({ actions, errorCode }: Event) =>
  Boolean(actions?.rewindBeforeInvocationId ?? actions?.compaction) || isRefusal(errorCode);

/**
 * Drops what the user said in an invocation that was refused, else it would be refused again with every later message.
 * What no later message follows stays: such an invocation goes on, and its content is all there is to answer.
 */
function withoutRefused(events: Event[]): Event[] {
  if (!events.some(({ errorCode }) => isRefusal(errorCode))) return events;
  const refused = new Set<string | null | undefined>();
  const kept: Event[] = [];
  let isFollowed = false;
  for (const event of events.toReversed()) {
    if (isRefusal(event.errorCode)) refused.add(event.invocationId);
    const isPrompt = event.author === 'user' && getParts(event.content).length > 0;
    // A content with responses answers calls, which stay.
    const isOnlyPrompt = () => isPrompt && getFunctionResponses(event.content).length === 0;
    if (isFollowed && refused.has(event.invocationId) && isOnlyPrompt()) continue;
    isFollowed ||= isPrompt;
    kept.push(event);
  }
  return kept.toReversed();
}

/** The member of `customMetadata` that says which events a compaction covers; ADK's form has a range of times alone. */
const COVERED = 'agent-runtime/covers';

/** The ids of the first and the last event that a compaction covers, by their order in the session. */
export type Covered = [firstEventId: string, lastEventId: string];

export const coversMetadata = (covered: Covered): Pick<Event, 'customMetadata'> => ({
  customMetadata: { [COVERED]: covered },
});

interface Compaction {
  /** Its own place among the events. */
  index: number;
  covers: (event: Event, index: number) => boolean;
  /** The places of the first and last event that it covers. */
  start: number;
  end: number;
  summary: Event;
}

/** Maximum number of compactions that count, the newest: each event is compared with each of them. */
const MAX_COMPACTIONS = 500;

/** Compactions of a history that no later one includes. */
function findCompactions(events: Event[]): Compaction[] {
  if (!events.some(({ actions }) => actions?.compaction)) return [];
  const places = new Map(events.map(({ id }, index) => [id, index]));
  const newest = [...events.entries()]
    .filter(([, { actions }]) => actions?.compaction)
    .slice(-MAX_COMPACTIONS)
    .flatMap(([index, event]) => toCompaction(events, places, event, index));
  return newest.filter(
    (one) => !newest.some((later) => later.index > one.index && later.start <= one.start && later.end >= one.end),
  );
}

/**
 * By the order of the session: times of imported events are those of another clock, in whole seconds, or none. Only a
 * compaction of ADK's says no more than times.
 */
function toCompaction(
  events: Event[],
  places: ReadonlyMap<Event['id'], number>,
  { actions, customMetadata }: Event,
  index: number,
): Compaction[] {
  const { compactedContent, startTimestamp = 0, endTimestamp = 0 } = actions?.compaction ?? {};
  if (!compactedContent) return [];
  const summary: Event = { author: 'user', content: { ...compactedContent, role: 'user' } };
  const [first, last] = (customMetadata?.[COVERED] ?? []) as Partial<Covered>;
  const end = places.get(last);
  if (end !== undefined && end < index) {
    const start = places.get(first) ?? 0;
    return [{ index, start, end, summary, covers: (_event, place) => start <= place && place <= end }];
  }
  const covers = ({ timestamp }: Event, place: number) => {
    const time = timestamp ?? Number.POSITIVE_INFINITY;
    return place < index && startTimestamp <= time && time <= endTimestamp;
  };
  return [{ index, start: events.findIndex(covers), end: events.findLastIndex(covers), summary, covers }];
}

/** The place behind the last event that a compaction covers; 0 if there is none. */
export const coveredUntil = (events: Event[]): number =>
  Math.max(0, ...findCompactions(events).map(({ end }) => end + 1));

/**
 * Replaces the events of a history that a compaction covers by its summary. Calls that are answered behind them stay, with what was
 * said beside them: a person or another system may answer long after.
 */
function withoutCompacted(events: Event[], history: Event[]): Event[] {
  const kept = new Set(events);
  // Those of what was rewound are taken back with it; the places are those in the session.
  const compactions = findCompactions(history).filter(({ index }) => kept.has(history[index] as Event));
  if (compactions.length === 0) return events;
  const places = new Map(history.map((event, place) => [event, place]));
  const summarised = new Set<Compaction>();
  const covering = events.map((event) => compactions.find(({ covers }) => covers(event, places.get(event) ?? -1)));
  const answered = new Map<Compaction | undefined, Set<unknown>>();
  for (const [index, event] of events.entries())
    for (const { id } of getFunctionResponses(event.content)) {
      const ids = answered.get(covering[index]) ?? new Set();
      answered.set(covering[index], ids.add(id));
    }
  const isOpen = (cover: Compaction, id: unknown) =>
    !answered.get(cover)?.has(id) || [...answered].some(([other, ids]) => other !== cover && ids.has(id));
  return events.flatMap((event, index) => {
    if (event.actions?.compaction) return [];
    const cover = covering[index];
    if (!cover) return [event];
    const open = withOpenCalls(event, (id) => isOpen(cover, id));
    if (summarised.has(cover)) return open;
    summarised.add(cover);
    return [cover.summary, ...open];
  });
}

/** An event of which only the calls that are open are left; none if it has no such call. */
function withOpenCalls(event: Event, isOpen: (id: unknown) => boolean): Event[] {
  const parts = getParts(event.content);
  if (!parts.some(({ functionCall }) => functionCall && isOpen(functionCall.id))) return [];
  const kept = parts.filter(({ functionCall }) => !functionCall || isOpen(functionCall.id));
  return [{ ...event, content: { ...event.content, parts: kept } }];
}

/** The events without the calls that nothing among them answers, which a summary would take for interrupted. */
export function withoutOpenCalls(events: Event[]): Event[] {
  const answered = new Set(events.flatMap(({ content }) => getFunctionResponses(content).map(({ id }) => id)));
  return events.map((event) => {
    const parts = getParts(event.content);
    const kept = parts.filter(({ functionCall }) => !functionCall || answered.has(functionCall.id));
    return kept.length === parts.length ? event : { ...event, content: { ...event.content, parts: kept } };
  });
}

/** As ADK: an event is seen on its own branch and on those below it. */
function isInBranch(event: Event, branch: string | undefined): boolean {
  if (!branch || !event.branch) return true;
  return branch === event.branch || branch.startsWith(`${event.branch}.`);
}

const isVisible = (part: Part) =>
  !isHiddenCall(part.functionCall?.name ?? part.functionResponse?.name ?? '') && !isSavedSound(part) && isUsed(part);

/** Sound of a live session: no model can follow the reference, and its transcription stands beside it (ADK). */
const isSavedSound = ({ fileData }: Part) =>
  fileData?.fileUri?.startsWith('artifact://') === true && fileData.fileUri.includes('/_adk_live/');

/** Turns the transcriptions of a live session into text parts, as if they had been typed. */
function withSpoken(event: Event): Event {
  const { inputTranscription, outputTranscription, content } = event;
  const text = inputTranscription?.text ?? outputTranscription?.text;
  if (content || !text) return event;
  return { ...event, content: { role: inputTranscription ? 'user' : 'model', parts: [{ text }] } };
}

/** False for `{}` and for an empty text without a signature. */
const isUsed = (part: Part) =>
  Boolean(part.text) ||
  Object.entries(part).some(
    ([name, value]) => name !== 'thought' && value !== '' && value !== null && value !== undefined,
  );

const withVisibleParts = (event: Event): Event =>
  getParts(event.content).every(isVisible)
    ? event
    : { ...event, content: { ...event.content, parts: getParts(event.content).filter(isVisible) } };

const toShown = (event: Event): Event => withVisibleParts(withSpoken(event));

const isForeign = (event: Event, audience: Audience) => event.author !== 'user' && event.author !== audience.agentName;

/** Presents another agent's event as context from the user (ADK `_present_other_agent_message`). */
function toContext(event: Event, { isOutside = false }: Audience): Event {
  const parts = getParts(event.content).flatMap((part): Part[] => {
    if (part.thought === true) return [];
    if (part.text) return [{ text: `[${event.author}] said: ${part.text}` }];
    if (isOutside && (part.functionCall || part.functionResponse)) return [];
    if (part.functionCall) {
      const { name, args } = part.functionCall;
      return [{ text: `[${event.author}] called tool \`${name}\` with parameters: ${JSON.stringify(args ?? {})}` }];
    }
    if (part.functionResponse) {
      const { name, response } = part.functionResponse;
      return [{ text: `[${event.author}] \`${name}\` tool returned result: ${JSON.stringify(response ?? {})}` }];
    }
    return [part];
  });
  const content = parts.length > 0 ? { role: 'user', parts: [{ text: CONTEXT_PREFIX }, ...parts] } : undefined;
  return { ...event, author: 'user', content };
}

interface Slot {
  call: FunctionCall;
  response: Part | undefined;
}

/** Finds the latest response to each call; one without an id answers the first open call of its name. */
function fillSlots(events: Event[]): { slots: Map<FunctionCall, Slot>; allAnswer: boolean } {
  let allAnswer = true;
  const slots = new Map<FunctionCall, Slot>();
  const latestById = new Map<string, Slot>();
  for (const event of events) {
    for (const part of getParts(event.content)) {
      const { functionCall: call, functionResponse: response } = part;
      if (call && event.author !== 'user') {
        const slot = { call, response: undefined };
        slots.set(call, slot);
        if (call.id) latestById.set(call.id, slot);
      }
      if (!response) continue;
      const slot = response.id ? latestById.get(response.id) : firstOpen(slots, response.name);
      if (slot) slot.response = part;
      allAnswer &&= Boolean(slot && response.id);
    }
  }
  return { slots, allAnswer };
}

const firstOpen = (slots: Map<FunctionCall, Slot>, name: string | null | undefined) =>
  [...slots.values()].find((slot) => slot.call.name === name && !slot.response);

/** Named as the call is: who answers it does not choose what the model takes the answer for. */
function toResponse({ call, response }: Slot): Part {
  const id = call.id ? { id: call.id } : {};
  const { functionResponse } = response ?? { functionResponse: { ...id, response: { error: 'interrupted' } } };
  if (response && functionResponse?.name === call.name) return response;
  return { ...response, functionResponse: { ...functionResponse, name: call.name } };
}

/** Puts one response content behind each content with calls; responses that answer no call are dropped. */
function pairCalls(events: Event[], slots: Map<FunctionCall, Slot>): Content[] {
  const contents: Content[] = [];
  for (const { author, content } of events) {
    const isUser = author === 'user';
    const parts: Part[] = [];
    // A loop: `filter` of an array that is frozen, as kept histories are, takes three times as long (V8 13.6).
    for (const part of getParts(content))
      if (!part.functionResponse && !(isUser && part.functionCall)) parts.push(part);
    contents.push(isUser ? { role: 'user', parts } : asGiven({ role: 'model', parts }));
    const correction = isUser ? undefined : toCorrection(content);
    if (correction) contents.push(correction);
    const answered = slots.size === 0 ? [] : getFunctionCalls(content).flatMap((call) => slots.get(call) ?? []);
    if (answered.length > 0) contents.push({ role: 'user', parts: answered.map(toResponse) });
  }
  return contents;
}

/** Adds what is missing so that a user content stands first and last: providers refuse anything else. */
export function ensureUserFirstAndLast(contents: Content[]): Content[] {
  const user = (text: string): Content => ({ role: 'user', parts: [{ text }] });
  if (contents.length === 0) return [user('Follow your instruction.')];
  const head = contents[0]?.role === 'model' ? [user('(The start of the conversation is left out.)')] : [];
  const tail = contents.at(-1)?.role === 'model' ? [user('Go on with what was asked, or conclude.')] : [];
  return [...head, ...contents, ...tail];
}
