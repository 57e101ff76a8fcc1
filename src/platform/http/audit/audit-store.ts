import { getTableName, sql } from 'drizzle-orm';
import type { Database, DatabasePool } from '../../db/database.ts';
import { escapeJson } from '../../json-escape.ts';
import { auditLog } from '../../db/schema/schema.ts';
import { insertSelect } from '../../db/sql.ts';
import type { Feature } from '../../feature/feature.ts';

/** An access decision on a request: caller, operation, resource and address; never content. */
export interface AuditEntry {
  callerKind: 'unknown' | 'anonymous' | 'key' | 'user';
  /** User of the token, or id of the key; absent for a key of `RUNTIME_API_KEYS` and for an unauthenticated caller. */
  caller?: string | undefined;
  /** Address of the client, taken from `X-Forwarded-For` if the request came through one of `TRUSTED_PROXIES`. */
  address?: string | undefined;
  /** `operationId`; `undefined` if the request was refused before routing. */
  operation?: string | undefined;
  /** Identifiers in the path, and the user and application that the content names. */
  resource: Record<string, string>;
  requestId: string;
}

export interface Decision extends AuditEntry {
  decision: 'allowed' | 'refused';
  reason?: string | undefined;
  /** Number of this caller's earlier refusals that were not stored. */
  leftOut?: number | undefined;
}

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
 * Deletes audit entries beyond the stored retention, but none younger than a day, by an SQL function of the tables'
 * owner, because the serving role has no privilege to delete.
 */
export async function deleteOldEntries(db: Database, signal?: AbortSignal): Promise<void> {
  for (let isMore = true; isMore && !signal?.aborted; ) {
    const { rows } = await db.execute<{ isMore: boolean }>(sql`select delete_old_audit_entries() as "isMore"`);
    isMore = rows[0]?.isMore === true;
  }
}

/** True if the serving role can change audit entries, because it owns the tables or inherits from their owner. */
export async function mayChangeEntries(db: Database): Promise<boolean> {
  const { rows } = await db.execute(
    sql`select from pg_class where oid = ${getTableName(auditLog)}::regclass and pg_has_role(relowner, 'usage')`,
  );
  return rows.length > 0;
}

export const auditFeature = {
  name: 'audit',
  sweeps: [
    {
      group: 'audit',
      name: 'deleting old entries of the audit',
      run: ({ database, signal }) => deleteOldEntries(database.db, signal),
    },
  ],
} satisfies Feature<{ database: DatabasePool }>;
