import type { JsonObject } from '../../core/content.ts';
import type { Event } from '../../core/event.ts';
import type { SessionKey } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { unescapeJson } from '../../platform/json-escape.ts';
import { newPauses } from '../../platform/work/loop-turns.ts';
import {
  findHistoryAfter,
  type HistoryPart,
  type HistoryPlace,
  type SessionHistory,
  toEvents,
} from './history-store.ts';
import { parseExactJson } from '../../core/exact-json.ts';

interface CachedHistory {
  /** The events are frozen, because all invocations of the session share these objects. */
  events: readonly Event[];
  /** Ids of events that the runtime made. All readers share the set; ids of events that a reader lacks do no harm. */
  runtimeEventIds: Set<string>;
  lastId: string | null;
  place: HistoryPlace;
  length: number;
}

/** Minimum length of a cached history, in characters; reading a shorter one costs as little as checking it. */
const MIN_LENGTH = 8_192;

/**
 * Caches parsed histories of recently used sessions, so that the next invocation in this process reads only newer
 * events. The cache is never trusted: each read queries the database under row-level security, and checks that the
 * session is the same and unchanged up to the last cached event. The least recently used histories are evicted, by
 * length of their JSON.
 */
export class HistoryCache {
  readonly #maxLength: number;
  readonly #histories = new Map<string, CachedHistory>();
  #length = 0;

  /** @param maxLength - maximum total length of cached JSON, in characters; 0 disables the cache */
  constructor(maxLength: number) {
    this.#maxLength = maxLength;
  }

  /** Like `findHistory`, but returns frozen events. */
  async find(db: Database, key: SessionKey): Promise<SessionHistory | undefined> {
    const name = JSON.stringify([key.appName, key.userId, key.sessionId]);
    const cached = this.#histories.get(name);
    let part = await findFrozen(db, key, cached?.place.last ?? 0);
    if (cached && part && continues(part, cached)) return this.#store(name, part, cached);
    if (cached) {
      this.#forget(name);
      part &&= await findFrozen(db, key, 0);
    }
    return part && this.#store(name, part);
  }

  #store(name: string, part: HistoryPart, before?: CachedHistory): SessionHistory {
    const events = before ? [...before.events, ...part.events] : part.events;
    const length = (before?.length ?? 0) + part.length;
    const runtimeEventIds = before?.runtimeEventIds ?? new Set();
    for (const id of part.runtimeEventIds) runtimeEventIds.add(id);
    this.#forget(name);
    if (length >= MIN_LENGTH && length <= this.#maxLength) {
      this.#histories.set(name, {
        events,
        runtimeEventIds,
        lastId: events.at(-1)?.id ?? null,
        place: part.place,
        length,
      });
      this.#length += length;
      for (const oldest of this.#histories.keys()) {
        if (this.#length <= this.#maxLength) break;
        this.#forget(oldest);
      }
    }
    return { events: [...events], runtimeEventIds, state: part.state };
  }

  #forget(name: string): void {
    this.#length -= this.#histories.get(name)?.length ?? 0;
    this.#histories.delete(name);
  }
}

/**
 * The last event of a cached history is compared by id, because after a failover another event may have its sequence.
 */
const continues = ({ place, idBefore }: HistoryPart, cached: CachedHistory) =>
  place.edition === cached.place.edition && idBefore === cached.lastId;

/** Freezes a history's events, and yields meanwhile, because freezing 10 MB of small values takes 0.5 s. */
async function findFrozen(db: Database, key: SessionKey, after: number): Promise<HistoryPart | undefined> {
  const part = await findHistoryAfter(db, key, after);
  const pause = newPauses();
  for (const event of part?.events ?? []) {
    await pause();
    freeze(event);
  }
  return part;
}

/** Parses and freezes a history that was read when its invocation was claimed: events as JSON lines, and state. */
export function toHistory(lines: string | null, state: string): SessionHistory {
  const events = toEvents(lines?.replaceAll('\n', ',') ?? '');
  for (const event of events) freeze(event);
  return { events, runtimeEventIds: new Set(), state: parseExactJson(unescapeJson(state)) as JsonObject };
}

/** Freezes an event deeply, so that an agent that modifies it fails instead of changing it for later invocations. */
function freeze(event: Event): void {
  const open: unknown[] = [event];
  for (let value = open.pop(); value !== undefined; value = open.pop()) {
    if (typeof value !== 'object' || value === null) continue;
    open.push(...Object.values(Object.freeze(value)));
  }
}
