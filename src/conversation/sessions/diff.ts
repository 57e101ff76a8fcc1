import { type JsonObject, getParts } from '../../core/content.ts';
import type { Event } from '../../core/event.ts';
import { jsonDifference } from '../../core/json-difference.ts';
import { newPauses } from '../../platform/work/loop-turns.ts';

/** Characters of a value's JSON that a difference shows; of a longer one it has the beginning, as text. */
export const MAX_SHOWN = 2_000;
/** Characters of JSON that the differences of an answer have together, but for a first larger one. */
const MAX_LISTED = 524_288;

/** Where two events of one sequence part first. */
interface EventDifference {
  sequence: number;
  /** A JSON pointer into the event (RFC 6901); '' where only one of the sessions has the event. */
  path: string;
  value: unknown;
  other: unknown;
}

/** A key of the state with different values; one that is not there is null. */
interface StateDifference {
  key: string;
  value: unknown;
  other: unknown;
}

/** How the events of two sessions differ. */
interface EventsDiff {
  /** Number of events from the start on that are the same. */
  same: number;
  differing: number;
  /** The first of them, in order. */
  differences: EventDifference[];
}

/** Compares events in pairs, in order, without ids, times and tokens; holds one event of each at a time. */
export async function diffEvents(
  events: AsyncIterable<Event>,
  others: AsyncIterable<Event>,
  limit: number,
): Promise<EventsDiff> {
  const diff: EventsDiff = { same: 0, differing: 0, differences: [] };
  const [left, right] = [events[Symbol.asyncIterator](), others[Symbol.asyncIterator]()];
  const [name, nameOther] = [namer(), namer()];
  const [list, pause] = [lister(diff.differences, limit), newPauses()];
  for (let sequence = 1; ; sequence++) {
    const [one, other] = [await left.next(), await right.next()];
    await pause();
    if (one.done && other.done) return diff;
    const value = one.done ? undefined : toDeed(one.value, name);
    const found = jsonDifference(value, other.done ? undefined : toDeed(other.value, nameOther));
    if (!found && diff.differing === 0) diff.same = sequence;
    if (!found) continue;
    diff.differing += 1;
    const { path, before, after } = found;
    list(() => ({ sequence, path, value: toShown(before), other: toShown(after) }));
  }
}

/** The keys of two states with different values, by name; at most `limit`, of how many there are. */
export async function diffStates(
  state: JsonObject,
  other: JsonObject,
  limit: number,
): Promise<{ differing: number; differences: StateDifference[] }> {
  const getValue = (of: JsonObject, key: string) => (Object.hasOwn(of, key) ? of[key] : undefined);
  const diff = { differing: 0, differences: [] as StateDifference[] };
  const [list, pause] = [lister(diff.differences, limit), newPauses()];
  for (const key of [...new Set([...Object.keys(state), ...Object.keys(other)])].toSorted()) {
    await pause();
    const [value, another] = [getValue(state, key), getValue(other, key)];
    if (!jsonDifference(value, another)) continue;
    diff.differing += 1;
    list(() => ({ key, value: toShown(value), other: toShown(another) }));
  }
  return diff;
}

/** Returns a function that adds to a list until it has `limit` elements, or as many characters of JSON as it may. */
function lister<Item>(list: Item[], limit: number): (make: () => Item) => void {
  let characters = 0;
  let isFull = false;
  return (make) => {
    if (isFull || list.length >= limit) return;
    const item = make();
    characters += JSON.stringify(item).length;
    isFull = characters > MAX_LISTED && list.length > 0;
    if (!isFull) list.push(item);
  };
}

/** A value as a difference shows it. */
export function toShown(value: unknown): unknown {
  const text = JSON.stringify(value) ?? 'null';
  if (text.length <= MAX_SHOWN) return value ?? null;
  return `${text.slice(0, MAX_SHOWN)}…`;
}

/** Names for the ids of function calls by the order in which they come: a provider makes them anew each time. */
function namer(): (id: string) => string {
  const names = new Map<string, string>();
  return (id) => {
    const found = names.get(id) ?? `call ${names.size + 1}`;
    names.set(id, found);
    return found;
  };
}

/** Reduces an event to its content and actions, without ids and times. */
function toDeed(event: Event, name: (id: string) => string): unknown {
  const { id: _id, invocationId: _invocation, timestamp: _time, usageMetadata: _tokens, ...deed } = event;
  const named = <Named extends { id?: string | null | undefined } | null | undefined>(call: Named): Named =>
    call?.id ? { ...call, id: name(call.id) } : call;
  if (!event.content) return deed;
  const parts = getParts(event.content).map((part) => ({
    ...part,
    ...(part.functionCall && { functionCall: named(part.functionCall) }),
    ...(part.functionResponse && { functionResponse: named(part.functionResponse) }),
  }));
  const waiting = event.longRunningToolIds?.map(name);
  return {
    ...deed,
    content: { ...event.content, ...(event.content.parts && { parts }) },
    ...(waiting && { longRunningToolIds: waiting }),
  };
}
