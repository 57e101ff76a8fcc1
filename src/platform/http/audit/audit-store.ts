import { getTableName, sql } from 'drizzle-orm';
import type { Database } from '../../db/database.ts';
import { escapeJson } from '../../db/json-escape.ts';
import { auditLog } from '../../db/schema/schema.ts';
import { insertSelect } from '../../db/sql.ts';

/** One decision about one request: who, what, on which resource, from where; never content. */
export interface AuditEntry {
  callerKind: 'unknown' | 'anonymous' | 'key' | 'user';
  /** User of the token, or id of the key; absent for a key of `RUNTIME_API_KEYS` and for an unknown caller. */
  caller?: string | undefined;
  /** Address of the client, after `TRUSTED_PROXIES`. */
  address?: string | undefined;
  /** `operationId`; `undefined` for what was refused before a route was found. */
  operation?: string | undefined;
  /** The subject of the request: names from its path, and the user and application that its content names. */
  resource: Record<string, string>;
  requestId: string;
}

/** An entry as it is stored. */
export interface Decision extends AuditEntry {
  decision: 'allowed' | 'refused';
  reason?: string | undefined;
  /** Refusals of this caller that were not kept before this one. */
  leftOut?: number | undefined;
}

/** Appends entries in one statement. */
export async function insertEntries(db: Database, entries: readonly Decision[]): Promise<void> {
  await db.execute(sql`
    ${insertSelect(auditLog, {
      callerKind: sql`e."callerKind"`,
      caller: sql`e.caller`,
      address: sql`e.address`,
      operation: sql`e.operation`,
      resource: sql`e.resource`,
      decision: sql`e.decision`,
      reason: sql`e.reason`,
      requestId: sql`e."requestId"`,
      leftOut: sql`coalesce(e."leftOut", 0)`,
    })} from jsonb_to_recordset(${escapeJson(entries)}::jsonb) as e("callerKind" text, caller text, address text,
      operation text, resource jsonb, decision text, reason text, "requestId" text, "leftOut" integer)`);
}

/**
 * Deletes entries beyond what the migrator wrote down to be kept; none that is younger than a day. A function of the
 * owner of the tables does it: the role that serves may not delete.
 */
export async function deleteOldEntries(db: Database, signal?: AbortSignal): Promise<void> {
  for (let isMore = true; isMore && !signal?.aborted; ) {
    const { rows } = await db.execute<{ isMore: boolean }>(sql`select delete_old_audit_entries() as "isMore"`);
    isMore = rows[0]?.isMore === true;
  }
}

/** True where the role of the service may change and delete entries, because it owns the tables or is above that. */
export async function mayChangeEntries(db: Database): Promise<boolean> {
  const { rows } = await db.execute(
    sql`select from pg_class where oid = ${getTableName(auditLog)}::regclass and pg_has_role(relowner, 'usage')`,
  );
  return rows.length > 0;
}
