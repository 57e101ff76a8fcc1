import {
  type Content,
  type FunctionCall,
  type Part,
  getFunctionCalls,
  getFunctionResponses,
  getParts,
} from '../../core/content.ts';
import { isRefusal } from '../../core/error-codes.ts';
import { type Event, isSteer, withoutRewound } from '../../core/event.ts';
import { CONTEXT_PREFIX, GO_ON } from '../definition/model.ts';
import { isRuntimeCall } from '../../core/names.ts';
import { findProblem, toCorrection, toOriginal } from './structured-output.ts';

/**
 * The agent whose model reads the history. It sees events of other agents as context, and none of other branches (of
 * agents that run in parallel).
 */
export interface Audience {
  agentName: string;
  branch?: string | undefined;
  /** True: an agent of another service, which sees what other agents said, but not their tool calls. Default: false. */
  isOutside?: boolean | undefined;
}

/**
 * Converts a session's events to the contents that an agent's model reads: without rewound, refused, partial and empty
 * events, and with summaries in place of compacted ones. Every function call is followed by exactly one response: the
 * latest one, or `interrupted`. The contents of the leading frozen events are cached, so that the next invocation only
 * appends to them.
 */
export function buildContents(history: Event[], audience: Audience): Content[] {
  const cached = cachedContents(history, audience);
  const rest = cached && toContents(history.slice(cached.length), audience);
  if (cached && rest?.isAppendable === true) return [...cached.contents, ...rest.contents];
  return toContents(history, audience).contents;
}

/** {@link buildContents} without the cache, for a history in which some events were replaced. */
export const buildAnew = (history: Event[], audience: Audience): Content[] => toContents(history, audience).contents;

/** The events that an agent's model reads, in order; a summary replaces the events that it covers. */
export function listShown(history: Event[], audience: Audience): Event[] {
  const kept = history.some(changesEarlierEvents)
    ? withoutCompacted(withoutRefused(withoutRewound(history)), history, audience.branch)
    : history;
  return kept.filter((event) => event.partial !== true && isInBranch(event, audience.branch));
}

/** A cache entry: the contents built from the first `length` events of a history. */
interface CachedContents extends Audience {
  length: number;
  /** Frozen contents, which are only appended, because later invocations share the list. */
  contents: Content[];
}

/**
 * Cached contents by the last event that they were built from. Keys are frozen events, because all invocations of a
 * session share the same frozen event objects (history cache), and the events of a long invocation; a cache entry is
 * garbage-collected together with them. If the same event has the same index, the events before it are the same too.
 */
const cacheByLastEvent = new WeakMap<Event, CachedContents>();

/** Minimum number of frozen events for a use of the cache, because fewer are converted faster than looked up. */
const MIN_CACHED_EVENTS = 32;
/** Number of newest events searched for a cache entry; an invocation that appends more events finds no entry. */
const MAX_ADDED = 200;
/** From so many events of its own on an invocation caches the contents of these too, at each step. */
const MIN_OWN_EVENTS = 64;

/** Contents of the leading events that do not change; `undefined` if there are few, or a later event may change them. */
function cachedContents(history: Event[], { agentName, branch, isOutside }: Audience): CachedContents | undefined {
  const frozen = history.findLastIndex(Object.isFrozen) + 1;
  const length = history.length - frozen < MIN_OWN_EVENTS ? frozen : history.length;
  const last = history[length - 1];
  if (length < MIN_CACHED_EVENTS || !last) return undefined;
  const previous = findCached(history, length, { agentName, branch });
  if (previous?.length === length) return previous;
  const added = previous && toContents(history.slice(previous.length, length), previous);
  const extendsPrevious = previous && added?.isAppendable === true;
  const cached = extendsPrevious ? previous : { agentName, branch, isOutside, length: 0, contents: [] };
  const built = extendsPrevious ? added : toContents(history.slice(0, length), cached);
  if (!built.isFinal) return undefined;
  const key = history[cached.length - 1];
  if (key) cacheByLastEvent.delete(key);
  for (const content of built.contents) {
    Object.freeze(content.parts);
    cached.contents.push(Object.freeze(content));
  }
  cached.length = length;
  cacheByLastEvent.set(last, cached);
  return cached;
}

/** Finds the cached contents that cover most of the first `length` events. */
function findCached(history: Event[], length: number, { agentName, branch }: Audience): CachedContents | undefined {
  for (let place = length; place > Math.max(0, length - MAX_ADDED); place -= 1) {
    const cached = cacheByLastEvent.get(history[place - 1] as Event);
    if (cached?.length === place && cached.agentName === agentName && cached.branch === branch) return cached;
  }
  return undefined;
}

interface BuiltContents {
  contents: Content[];
  /** False: a refused message is shown until a later message follows it, so these contents may still change. */
  isFinal: boolean;
  /** True: these contents neither depend on earlier ones nor change them, so they are appended to the cached list. */
  isAppendable: boolean;
}

function toContents(history: Event[], audience: Audience): BuiltContents {
  const events: Event[] = [];
  for (const stored of listShown(history, audience)) {
    const event = withVisibleParts(withTranscription(stored));
    if (getParts(event.content).length === 0) continue;
    const isForeign = event.author !== 'user' && event.author !== audience.agentName;
    events.push(isForeign ? toContext(event, audience) : event);
  }
  const { slots, isComplete } = fillSlots(events);
  const contents = pairCalls(events, slots);
  const changesEarlier = history.some(changesEarlierEvents);
  const isFinal = !changesEarlier || !history.some(({ errorCode }) => isRefusal(errorCode));
  return { contents, isFinal, isAppendable: isComplete && !changesEarlier };
}

const changesEarlierEvents = ({ actions, errorCode }: Event) =>
  Boolean(actions?.rewindBeforeInvocationId || actions?.compaction) || isRefusal(errorCode);

/**
 * Omits the user's message of an invocation that the provider refused, because the provider would refuse it again
 * together with every later message. The message is kept if no later message follows: then that invocation is being
 * resumed, and has nothing else to respond to.
 */
function withoutRefused(events: Event[]): Event[] {
  const refused = new Set<string | null | undefined>();
  const kept: Event[] = [];
  let isFollowed = false;
  for (const event of events.toReversed()) {
    if (isRefusal(event.errorCode)) refused.add(event.invocationId);
    const isPrompt = event.author === 'user' && getParts(event.content).length > 0;
    // A message with function responses is kept, because the calls that they answer are kept too.
    const isOnlyPrompt = () => isPrompt && getFunctionResponses(event.content).length === 0;
    if (isFollowed && refused.has(event.invocationId) && isOnlyPrompt()) continue;
    // A message that the invocation took while it ran belongs to its prompt.
    isFollowed ||= isPrompt && !isSteer(event);
    kept.push(event);
  }
  return kept.toReversed();
}

/** Member of `customMetadata` that lists the events that a compaction covers. ADK stores only a time range for them. */
const COVERED = 'agent-runtime/covers';
/** Member of `customMetadata` that says how a compaction was made. */
const COMPACTION = 'agent-runtime/compaction';

/** Ids of the first and the last event that a compaction covers, in the order of the session. */
export type Covered = [firstEventId: string, lastEventId: string];

/** How a compaction was made. */
export interface CompactionNotes {
  /** `drop_results` replaces only function responses; the others replace the covered events by one text. */
  strategy: 'summarise' | 'drop_results' | 'keep_newest' | 'function';
  /** Estimated tokens of the prompt before it. */
  tokens: number;
  /** Tokens of the model's own count per estimated token. */
  scale: number;
  /** Ids of events in the range that stay. */
  pinned?: string[];
  /** Code of the error for which a summary failed, so that events are left out instead. */
  failed?: string;
}

export const coversMetadata = (covered: Covered, notes: CompactionNotes): Pick<Event, 'customMetadata'> => ({
  customMetadata: { [COVERED]: covered, [COMPACTION]: notes },
});

/** A compaction of an earlier version, or made by ADK, has no notes. */
export const getCompactionNotes = ({ customMetadata }: Event): Partial<CompactionNotes> =>
  (customMetadata?.[COMPACTION] as Partial<CompactionNotes> | null | undefined) ?? {};

export const dropsResults = (event: Event): boolean => getCompactionNotes(event).strategy === 'drop_results';

interface Compaction {
  /** Index of the event with the summary. */
  index: number;
  event: Event;
  covers: (event: Event, index: number) => boolean;
  /** Indexes of the first and the last event that the summary covers. */
  start: number;
  end: number;
  summary: Event;
}

/** Maximum number of compactions (summaries) that are used, newest first: each is compared with every event. */
const MAX_COMPACTIONS = 500;

/** Finds the compactions that agents of a branch see, except those that a later one of the same kind covers. */
function findCompactions(events: Event[], branch: string | undefined): Compaction[] {
  if (!events.some(({ actions }) => actions?.compaction)) return [];
  const places = new Map(events.map(({ id }, index) => [id, index]));
  const newest = [...events.entries()]
    .filter(([, event]) => event.actions?.compaction && isInBranch(event, branch))
    .slice(-MAX_COMPACTIONS)
    .flatMap(([index, event]) => toCompaction(events, places, event, index));
  const replaces = (later: Compaction, one: Compaction) =>
    later.index > one.index &&
    later.start <= one.start &&
    later.end >= one.end &&
    (dropsResults(one.event) || !dropsResults(later.event)) &&
    isInBranch(one.event, later.event.branch ?? undefined);
  return newest.filter((one) => !newest.some((later) => replaces(later, one)));
}

/**
 * Finds the covered events by id if the compaction has ids, because timestamps of imported events are of another clock,
 * in whole seconds, or missing. Compactions made by ADK have only a time range. Not covered are: what the maker did not
 * see, what is pinned, and what the user said in the same invocation, which is the question that is still open.
 */
function toCompaction(
  events: Event[],
  places: ReadonlyMap<Event['id'], number>,
  event: Event,
  index: number,
): Compaction[] {
  const { compactedContent, startTimestamp = 0, endTimestamp = 0 } = event.actions?.compaction ?? {};
  if (!compactedContent) return [];
  const summary: Event = { author: 'user', content: { ...compactedContent, role: 'user' } };
  const given = event.customMetadata?.[COVERED];
  const [first, last] = (Array.isArray(given) ? given : []) as Partial<Covered>;
  const end = places.get(last);
  if (end !== undefined && end < index) {
    const start = places.get(first) ?? 0;
    const { pinned } = getCompactionNotes(event);
    const stays = new Set(Array.isArray(pinned) ? pinned : []);
    const covers = (one: Event, place: number) =>
      start <= place &&
      place <= end &&
      !(one.author === 'user' && one.invocationId === event.invocationId) &&
      !(one.id && stays.has(one.id)) &&
      isInBranch(one, event.branch ?? undefined);
    return [{ index, event, start, end, summary, covers }];
  }
  const covers = ({ timestamp }: Event, place: number) => {
    const time = timestamp ?? Number.POSITIVE_INFINITY;
    return place < index && startTimestamp <= time && time <= endTimestamp;
  };
  return [{ index, event, start: events.findIndex(covers), end: events.findLastIndex(covers), summary, covers }];
}

/** Returns the index of the first event that no summary covers, or whose results are not dropped; 0 if there is none. */
export const coveredUntil = (events: Event[], branch: string | undefined, drops = false): number =>
  Math.max(
    0,
    ...findCompactions(events, branch).flatMap(({ event, end }) => (drops || !dropsResults(event) ? end + 1 : [])),
  );

/**
 * Replaces compacted events by their summaries. A function call that had no response at the time of the summary is
 * kept, with the text beside it, because a person or another system may respond long after.
 */
function withoutCompacted(events: Event[], history: Event[], branch: string | undefined): Event[] {
  const kept = new Set(events);
  // A compaction among rewound events is undone too. Its indexes refer to the whole session.
  const all = findCompactions(history, branch).filter(({ event }) => kept.has(event));
  if (all.length === 0) return events;
  const drops = all.filter(({ event }) => dropsResults(event));
  const compactions = all.filter(({ event }) => !dropsResults(event));
  const places = new Map(history.map((event, place) => [event, place]));
  const placeOf = (event: Event) => places.get(event) ?? -1;
  const shown = new Set<Compaction>();
  const covering = events.map((event) => compactions.find(({ covers }) => covers(event, placeOf(event))));
  const answered = new Map<Compaction | undefined, Set<unknown>>();
  for (const [index, event] of events.entries())
    for (const { id } of getFunctionResponses(event.content)) {
      const ids = answered.get(covering[index]) ?? new Set();
      answered.set(covering[index], ids.add(id));
    }
  const isOpenCall = (cover: Compaction, id: unknown) =>
    !answered.get(cover)?.has(id) || [...answered].some(([other, ids]) => other !== cover && ids.has(id));
  return events.flatMap((event, index) => {
    if (event.actions?.compaction) return [];
    const place = placeOf(event);
    const summaries = compactions.filter((one) => one.start <= place && place <= one.end && !shown.has(one));
    for (const one of summaries) shown.add(one);
    const cover = covering[index];
    const open = cover && keepOpenCalls(event, (id) => isOpenCall(cover, id));
    const isDropped = !open && drops.some(({ covers }) => covers(event, place));
    return [...summaries.map(({ summary }) => summary), ...(open ?? [isDropped ? withoutResults(event) : event])];
  });
}

/** Minimum size of a function response that is dropped, in characters of JSON, because its note has 80. */
const MIN_DROPPED = 256;

/** Events without their larger results, by event: the parts stay the same objects, whose sizes are known. */
const dropped = new WeakMap<Event, Event>();

/** Replaces larger function responses by notes with which the tool `read_result` finds them. */
export function withoutResults(event: Event): Event {
  const known = dropped.get(event);
  if (known) return known;
  const parts = getParts(event.content);
  const short = parts.map((part) => toNote(part) ?? part);
  const made = short.some((part, index) => part !== parts[index])
    ? { ...event, content: { ...event.content, parts: short } }
    : event;
  dropped.set(event, made);
  return made;
}

function toNote({ functionResponse }: Part): Part | undefined {
  if (!functionResponse) return undefined;
  const { id, name, response, parts } = functionResponse;
  const characters = JSON.stringify(response ?? {}).length;
  if (characters < MIN_DROPPED && (parts ?? []).length === 0) return undefined;
  const handle = typeof response?.['handle'] === 'string' ? response['handle'] : id;
  return { functionResponse: { id, name, response: { dropped: true, handle, characters } } };
}

/** Returns the event with only its text and the calls without a response; `[]` if it has no such call. */
function keepOpenCalls(event: Event, isOpenCall: (id: unknown) => boolean): Event[] {
  const parts = getParts(event.content);
  if (!parts.some(({ functionCall }) => functionCall && isOpenCall(functionCall.id))) return [];
  const openParts = parts.filter(({ functionCall }) => !functionCall || isOpenCall(functionCall.id));
  return [{ ...event, content: { ...event.content, parts: openParts } }];
}

/** Removes function calls without a response among these events, because a summary would report them as interrupted. */
export function withoutOpenCalls(events: Event[]): Event[] {
  const answered = new Set(events.flatMap(({ content }) => getFunctionResponses(content).map(({ id }) => id)));
  return events.map((event) => {
    const parts = getParts(event.content);
    const closedParts = parts.filter(({ functionCall }) => !functionCall || answered.has(functionCall.id));
    return closedParts.length === parts.length
      ? event
      : { ...event, content: { ...event.content, parts: closedParts } };
  });
}

/** As in ADK, an agent sees events of its own branch and of the branches above. */
export function isInBranch(event: Event, branch: string | undefined): boolean {
  if (!branch || !event.branch) return true;
  return branch === event.branch || branch.startsWith(`${event.branch}.`);
}

const isVisible = (part: Part) =>
  !isRuntimeCall(part.functionCall?.name ?? part.functionResponse?.name) && !isSavedAudio(part) && isUsed(part);

/**
 * True for audio that a live session saved. It is not sent to models, because they cannot read its URI, and the
 * transcript is a part of its own (as in ADK).
 */
const isSavedAudio = ({ fileData }: Part) =>
  fileData?.fileUri?.startsWith('artifact://') === true && fileData.fileUri.includes('/_adk_live/');

/** Converts the transcripts of a live session to text parts, as if the speech had been typed. */
function withTranscription(event: Event): Event {
  const { inputTranscription, outputTranscription, content } = event;
  const text = inputTranscription?.text ?? outputTranscription?.text;
  if (content || !text) return event;
  return { ...event, content: { role: inputTranscription ? 'user' : 'model', parts: [{ text }] } };
}

/** False for a part that is `{}`, or only an empty text without a thought signature; such a part is dropped. */
const isUsed = (part: Part) =>
  Boolean(part.text) ||
  Object.entries(part).some(
    ([name, value]) => name !== 'thought' && value !== '' && value !== null && value !== undefined,
  );

const withVisibleParts = (event: Event): Event =>
  getParts(event.content).every(isVisible)
    ? event
    : { ...event, content: { ...event.content, parts: getParts(event.content).filter(isVisible) } };

/** Reports another agent's event as context, with the role `user` (ADK `_present_other_agent_message`). */
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

/** Finds the latest response to each call. A response without an id answers the first open call of its name. */
function fillSlots(events: Event[]): { slots: Map<FunctionCall, Slot>; isComplete: boolean } {
  let isComplete = true;
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
      isComplete &&= Boolean(slot && response.id);
    }
  }
  return { slots, isComplete };
}

const firstOpen = (slots: Map<FunctionCall, Slot>, name: string | null | undefined) =>
  [...slots.values()].find((slot) => slot.call.name === name && !slot.response);

/** Gives the response the name of its call, because a client must not pass its text off as another tool's result. */
function toResponse({ call, response }: Slot): Part {
  const id = call.id ? { id: call.id } : {};
  const { functionResponse } = response ?? { functionResponse: { ...id, response: { error: 'interrupted' } } };
  if (response && functionResponse?.name === call.name) return response;
  return { ...response, functionResponse: { ...functionResponse, name: call.name } };
}

/** Puts one content with the responses after each content with function calls. Responses without a call are dropped. */
function pairCalls(events: Event[], slots: Map<FunctionCall, Slot>): Content[] {
  const contents: Content[] = [];
  for (const { author, content } of events) {
    const isUser = author === 'user';
    const parts: Part[] = [];
    // A loop and not `filter`, because `filter` on a frozen array takes three times as long (V8 13.6).
    for (const part of getParts(content))
      if (!part.functionResponse && !(isUser && part.functionCall)) parts.push(part);
    const problem = isUser ? undefined : findProblem(content);
    const made = { role: isUser ? 'user' : 'model', parts };
    if (problem !== undefined) contents.push(toOriginal(made), toCorrection(problem));
    else if (parts.length > 0) contents.push(made);
    const answered = slots.size === 0 ? [] : getFunctionCalls(content).flatMap((call) => slots.get(call) ?? []);
    if (answered.length > 0) contents.push({ role: 'user', parts: answered.map(toResponse) });
  }
  return contents;
}

/** Adds contents with the role `user` at both ends if missing, because providers reject other conversations. */
export function ensureUserFirstAndLast(contents: Content[]): Content[] {
  const user = (text: string): Content => ({ role: 'user', parts: [{ text }] });
  if (contents.length === 0) return [user('Follow your instruction.')];
  const head = contents[0]?.role === 'model' ? [user('(The start of the conversation is left out.)')] : [];
  const tail = contents.at(-1)?.role === 'model' ? [user(GO_ON)] : [];
  return [...head, ...contents, ...tail];
}
