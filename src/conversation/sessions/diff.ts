import { type JsonObject, getParts } from '../../core/content.ts';
import type { Event } from '../../core/event.ts';
import { jsonDifference } from '../../core/json-difference.ts';
import { newPauses } from '../../platform/work/loop-turns.ts';

/** Maximum length of a value's JSON in a difference, in characters; longer values are cut and shown as text. */
export const MAX_SHOWN = 2_000;
/** Maximum total length of the listed differences' JSON, in characters; the first difference may exceed it. */
const MAX_LISTED = 524_288;

/** The first value that differs between the two sessions' events with the same sequence. */
interface EventDifference {
  sequence: number;
  /** JSON pointer into the event (RFC 6901); '' if only one of the sessions has the event. */
  path: string;
  value: unknown;
  other: unknown;
}

/** A state key whose values differ; null stands for a missing key. */
interface StateDifference {
  key: string;
  value: unknown;
  other: unknown;
}

interface EventsDiff {
  /** Number of leading events that are equal in both sessions. */
  same: number;
  differing: number;
  /** The first differences, in the order of the events. */
  differences: EventDifference[];
}

/** Compares sessions' events pairwise, ignoring ids, times and token counts; one pair is in memory. */
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
    const value = one.done ? undefined : toComparable(one.value, name);
    const difference = jsonDifference(value, other.done ? undefined : toComparable(other.value, nameOther));
    if (!difference && diff.differing === 0) diff.same = sequence;
    if (!difference) continue;
    diff.differing += 1;
    const { path, before, after } = difference;
    list(() => ({ sequence, path, value: toShown(before), other: toShown(after) }));
  }
}

/** Lists the state keys whose values differ, sorted by name: at most `limit`, with their total number. */
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

/** Returns a function that adds items to a list until the list has `limit` items or `MAX_LISTED` characters of JSON. */
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

export function toShown(value: unknown): unknown {
  const text = JSON.stringify(value) ?? 'null';
  if (text.length <= MAX_SHOWN) return value ?? null;
  return `${text.slice(0, MAX_SHOWN)}…`;
}

/**
 * Returns a function that replaces the ids of tool calls by numbers, because providers generate new ids in every run.
 */
function namer(): (id: string) => string {
  const names = new Map<string, string>();
  return (id) => {
    const name = names.get(id) ?? `call ${names.size + 1}`;
    names.set(id, name);
    return name;
  };
}

function toComparable(event: Event, name: (id: string) => string): unknown {
  const { id: _id, invocationId: _invocation, timestamp: _time, usageMetadata: _tokens, ...deed } = event;
  const withName = <Call extends { id?: string | null | undefined } | null | undefined>(call: Call): Call =>
    call?.id ? { ...call, id: name(call.id) } : call;
  if (!event.content) return deed;
  const parts = getParts(event.content).map((part) => ({
    ...part,
    ...(part.functionCall && { functionCall: withName(part.functionCall) }),
    ...(part.functionResponse && { functionResponse: withName(part.functionResponse) }),
  }));
  const waiting = event.longRunningToolIds?.map(name);
  return {
    ...deed,
    content: { ...event.content, ...(event.content.parts && { parts }) },
    ...(waiting && { longRunningToolIds: waiting }),
  };
}
