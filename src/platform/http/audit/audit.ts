import { runAsSystem } from '../../context.ts';
import type { Log } from '../../log.ts';
import type { DatabasePool } from '../../db/database.ts';
import { BoundedCache } from '../../work/bounded-cache.ts';
import { type AuditEntry, type Decision, insertEntries } from './audit-store.ts';

export interface Audit {
  /** True if the audit stores allowed requests of the operation. */
  isAbout(operation: { isRead: boolean }): boolean;
  /**
   * Stores that a request is allowed. Waits until the entry of a change is stored, so that a crash cannot lose it.
   * @throws the database's error if the entry cannot be stored
   */
  allowed(entry: AuditEntry, operation: { isRead: boolean }): Promise<void>;
  /** Stores a refusal in the background; the number per caller and minute is limited. */
  refused(entry: AuditEntry, reason: string): void;
}

export interface AuditSettings {
  /** True: allowed reads are stored too. */
  readsToo: boolean;
  /** Maximum number of stored refusals per minute and caller; for all callers together, ten times as many. */
  refusalsPerMinute: number;
}

const MINUTE_MS = 60_000;
/** Delay of the write-behind buffer, in milliseconds. */
const DELAY_MS = 500;
/** Maximum number of entries per statement. */
const BATCH = 500;
/** Maximum number of buffered entries while the database is slow. Further ones are dropped and counted in the log. */
const MAX_WAITING = 10_000;

/** An audit that writes to the database; closing it flushes the write-behind buffer. */
export interface OpenAudit extends Audit {
  close(): Promise<void>;
}

export function openAudit(database: Pick<DatabasePool, 'db'>, settings: AuditSettings, log: Log): OpenAudit {
  // The insert runs as system, because the database role for single users may not write audit entries.
  const insert = (batch: readonly Decision[]) => runAsSystem(() => insertEntries(database.db, batch));
  const atOnce = createGroups(insert);
  const later = createLater(insert, log);
  const refusals = createRefusalBound(settings.refusalsPerMinute);
  return {
    isAbout: ({ isRead }) => !isRead || settings.readsToo,
    async allowed(entry, { isRead }) {
      const decision: Decision = { ...entry, decision: 'allowed' };
      if (isRead) later.add(decision);
      else await atOnce(decision);
    },
    refused(entry, reason) {
      const leftOut = refusals(entry);
      if (leftOut !== undefined) later.add({ ...entry, decision: 'refused', reason, leftOut });
    },
    close: () => later.close(),
  };
}

/** Stores entries for which requests wait. Those that arrive during a statement go into the next one together. */
function createGroups(insert: (batch: readonly Decision[]) => Promise<void>) {
  const waiting: Decision[] = [];
  let next: Promise<void> | undefined;
  let running: Promise<unknown> = Promise.resolve();
  return (decision: Decision): Promise<void> => {
    waiting.push(decision);
    next ??= running.then(() => {
      next = undefined;
      const stored = insert(waiting.splice(0));
      running = stored.catch(() => undefined);
      return stored;
    });
    return next;
  };
}

/** The write-behind buffer of entries for which no request waits. */
function createLater(insert: (batch: readonly Decision[]) => Promise<void>, log: Log) {
  const waiting: Decision[] = [];
  let lost = 0;
  let timer: NodeJS.Timeout | undefined;
  let storing: Promise<void> = Promise.resolve();
  const store = async () => {
    while (waiting.length > 0) {
      const batch = waiting.splice(0, BATCH);
      await insert(batch).catch((err: unknown) => {
        lost += batch.length;
        log.warn({ err, entries: batch.length }, 'entries of the audit could not be stored');
      });
    }
    if (lost > 0) log.warn({ entries: lost }, 'entries of the audit were left out');
    lost = 0;
  };
  return {
    add(decision: Decision) {
      if (waiting.length >= MAX_WAITING) lost += 1;
      else waiting.push(decision);
      timer ??= setTimeout(() => {
        timer = undefined;
        storing = storing.then(store);
      }, DELAY_MS).unref();
    },
    async close() {
      clearTimeout(timer);
      storing = storing.then(store);
      await storing;
    },
  };
}

/** The refusals counted in the current minute. */
interface Window {
  until: number;
  kept: number;
  leftOut: number;
}

/**
 * Limits the stored refusals per minute, of each caller and of all, so that refused callers cannot fill the table.
 * @returns a function that returns how many refusals of the caller were dropped before; `undefined` to drop this one
 *   too
 */
function createRefusalBound(perMinute: number): (entry: AuditEntry) => number | undefined {
  const callers = new BoundedCache<Window>();
  let all: Window | undefined;
  const current = (known: Window | undefined): Window =>
    known && known.until > performance.now()
      ? known
      : { until: performance.now() + MINUTE_MS, kept: 0, leftOut: known?.leftOut ?? 0 };
  return ({ callerKind, caller, address }) => {
    const name = `${callerKind} ${caller ?? address ?? ''}`;
    all = current(all);
    const own = current(callers.get(name));
    callers.set(name, own);
    if (own.kept >= perMinute || all.kept >= perMinute * 10) {
      own.leftOut += 1;
      return undefined;
    }
    own.kept += 1;
    all.kept += 1;
    const { leftOut } = own;
    own.leftOut = 0;
    return leftOut;
  };
}
