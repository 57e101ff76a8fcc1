import type { JsonObject } from '../../core/content.ts';
import type { Event } from '../../core/event.ts';
import type { SessionKey } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { unescapeJson } from '../../platform/db/json-escape.ts';
import { newPauses } from '../../platform/work/loop-turns.ts';
import {
  findHistoryAfter,
  type HistoryPart,
  type HistoryPlace,
  type SessionHistory,
  toEvents,
} from './history-store.ts';
import { parseExactJson } from '../../core/exact-json.ts';

/** The cached history of a session. */
interface Kept {
  /** Frozen: every invocation of the session gets the same objects. */
  events: readonly Event[];
  /** Only grows: ids of events that a reader does not have do not disturb it. */
  runtimeEventIds: Set<string>;
  lastId: string | null;
  place: HistoryPlace;
  length: number;
}

/** Histories that are shorter than this are not kept: to read them costs as little as to look whether they changed. */
const MIN_LENGTH = 8_192;

/**
 * Parsed histories of the sessions that invocations of this process had last, so that the next one reads only what is
 * newer. They are never relied on: each read goes to the database, under row-level security, and finds out whether it
 * is the same session, unchanged up to its last known event. The least recently used go first, by length of JSON.
 */
export class HistoryCache {
  readonly #maxLength: number;
  /** By key, the least recently used first. */
  readonly #kept = new Map<string, Kept>();
  #length = 0;

  /** @param maxLength - of all events that are kept; 0 keeps none */
  constructor(maxLength: number) {
    this.#maxLength = maxLength;
  }

  /** As `findHistory`, which reads all events; those that it gives are frozen. */
  async find(db: Database, key: SessionKey): Promise<SessionHistory | undefined> {
    const name = JSON.stringify([key.appName, key.userId, key.sessionId]);
    const kept = this.#kept.get(name);
    let part = await findFrozen(db, key, kept?.place.last ?? 0);
    if (kept && part && continues(part, kept)) return this.#keep(name, part, kept);
    if (kept) {
      this.#forget(name);
      part &&= await findFrozen(db, key, 0);
    }
    return part && this.#keep(name, part);
  }

  #keep(name: string, part: HistoryPart, before?: Kept): SessionHistory {
    const events = before ? [...before.events, ...part.events] : part.events;
    const length = (before?.length ?? 0) + part.length;
    const runtimeEventIds = before?.runtimeEventIds ?? new Set();
    for (const id of part.runtimeEventIds) runtimeEventIds.add(id);
    this.#forget(name);
    if (length >= MIN_LENGTH && length <= this.#maxLength) {
      this.#kept.set(name, { events, runtimeEventIds, lastId: events.at(-1)?.id ?? null, place: part.place, length });
      this.#length += length;
      for (const oldest of this.#kept.keys()) {
        if (this.#length <= this.#maxLength) break;
        this.#forget(oldest);
      }
    }
    return { events: [...events], runtimeEventIds, state: part.state };
  }

  #forget(name: string): void {
    this.#length -= this.#kept.get(name)?.length ?? 0;
    this.#kept.delete(name);
  }
}

/** True where a part goes on from what is kept. After a failover another event can have the last sequence. */
const continues = ({ place, idBefore }: HistoryPart, kept: Kept) =>
  place.edition === kept.place.edition && idBefore === kept.lastId;

/** As {@link findHistoryAfter}, frozen; others have their turn meanwhile: 10 MB of small values take half a second. */
async function findFrozen(db: Database, key: SessionKey, after: number): Promise<HistoryPart | undefined> {
  const part = await findHistoryAfter(db, key, after);
  const pause = newPauses();
  for (const event of part?.events ?? []) {
    await pause();
    freeze(event);
  }
  return part;
}

/** Returns the history of a session that a claim has made, frozen, from its events, one a line, and its state. */
export function toHistory(lines: string | null, state: string): SessionHistory {
  const events = toEvents(lines?.replaceAll('\n', ',') ?? '');
  for (const event of events) freeze(event);
  return { events, runtimeEventIds: new Set(), state: parseExactJson(unescapeJson(state)) as JsonObject };
}

/** An event that an agent changed would be changed for the next invocation too: to try it is an error. */
function freeze(event: Event): void {
  const open: unknown[] = [event];
  for (let value = open.pop(); value !== undefined; value = open.pop()) {
    if (typeof value !== 'object' || value === null) continue;
    open.push(...Object.values(Object.freeze(value)));
  }
}
