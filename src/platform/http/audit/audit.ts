import { runAsSystem } from '../../context.ts';
import type { Log } from '../../log.ts';
import type { DatabasePool } from '../../db/database.ts';
import { BoundedCache } from '../../work/bounded-cache.ts';
import { type AuditEntry, type Decision, insertEntries } from './audit-store.ts';

/** Where decisions are kept. */
export interface Audit {
  /** True for an operation whose permission is kept. */
  isAbout(operation: { isRead: boolean }): boolean;
  /**
   * Keeps that a request is allowed. That of a change is stored when this returns, before the change is begun, so that
   * no crash loses it. @throws what the database does where it cannot be stored
   */
  allowed(entry: AuditEntry, operation: { isRead: boolean }): Promise<void>;
  /** Keeps a refusal soon, without a wait; of one caller so many in a minute. */
  refused(entry: AuditEntry, reason: string): void;
}

/** Which decisions are kept, and how many. */
export interface AuditSettings {
  /** Permissions to read are kept too. */
  readsToo: boolean;
  /** Refusals of one caller that are kept in a minute; of all callers ten times as many. */
  refusalsPerMinute: number;
}

const MINUTE_MS = 60_000;
/** Time until entries that no request waits for are stored. */
const DELAY_MS = 500;
/** Entries of one statement. */
const BATCH = 500;
/** Entries that wait while the database is slow or away; further ones are left out, and the log says how many. */
const MAX_WAITING = 10_000;

/** An open audit: closing it stores the entries that no request waits for. */
export interface OpenAudit extends Audit {
  close(): Promise<void>;
}

/** Keeps decisions in the table `audit_log`. */
export function openAudit(database: Pick<DatabasePool, 'db'>, settings: AuditSettings, log: Log): OpenAudit {
  // The role for statements of one user may not write here.
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

/** Stores entries that a request waits for: all that come during one statement are stored together by the next. */
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

/** Write-behind buffer of entries that no request waits for: they are stored later, in batches. */
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

/** Refusals of a minute. */
interface Window {
  until: number;
  kept: number;
  leftOut: number;
}

/**
 * Bounds the stored refusals per minute, of one caller and of all, so that refused callers cannot fill the table.
 * @returns a function: how many of the caller were left out before this one; `undefined` where it is left out too
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
