import { and, eq, inArray, sql } from 'drizzle-orm';
import type { Database } from '../../platform/db/database.ts';
import { userCredentials } from '../../platform/db/schema/schema.ts';

export type CredentialKey = Pick<typeof userCredentials.$inferSelect, 'appName' | 'userId' | 'resource'>;

const isOf = ({ appName, userId }: Omit<CredentialKey, 'resource'>) =>
  and(eq(userCredentials.appName, appName), eq(userCredentials.userId, userId));
const isAt = (key: CredentialKey) => and(isOf(key), eq(userCredentials.resource, key.resource));
const later = (seconds: number) => sql<Date>`clock_timestamp() + ${seconds} * interval '1 second'`;
const updateTime = sql`clock_timestamp()`;

export async function findGrant(db: Database, key: CredentialKey): Promise<string | undefined> {
  const [row] = await db.select({ grant: userCredentials.grant }).from(userCredentials).where(isAt(key));
  return row?.grant ?? undefined;
}

/** Lists a user's encrypted OAuth grants; `grant` is null for a resource that has only a pending consent. */
export const listGrants = (db: Database, user: Omit<CredentialKey, 'resource'>, limit: number) =>
  db
    .select({ resource: userCredentials.resource, grant: userCredentials.grant })
    .from(userCredentials)
    .where(isOf(user))
    .limit(limit);

/** Stores a pending OAuth consent; replaces an earlier pending consent for the same resource. */
export async function insertConsent(
  db: Database,
  key: CredentialKey,
  { seconds, ...consent }: { consent: string; consentSessionId: string; consentStateHash: Buffer; seconds: number },
): Promise<void> {
  const set = { ...consent, consentExpireTime: later(seconds), updateTime };
  await db
    .insert(userCredentials)
    .values({ ...key, ...set })
    .onConflictDoUpdate({ target: [userCredentials.appName, userCredentials.userId, userCredentials.resource], set });
}

/**
 * The caller who redeems an OAuth consent. Undefined `userId`: for any user; undefined `apps`: for all applications.
 */
export interface ConsentGiver {
  userId: string | undefined;
  apps?: ReadonlySet<string> | undefined;
}

/** Removes and returns the pending consent with an OAuth state, so that it is redeemed once. */
export async function takeConsent(db: Database, stateHash: Buffer, { userId, apps }: ConsentGiver) {
  const isOwn = and(
    userId === undefined ? sql`true` : eq(userCredentials.userId, userId),
    apps && inArray(userCredentials.appName, [...apps]),
  );
  const { rows } = await db.execute<CredentialKey & { sessionId: string; consent: string }>(sql`
    with waiting as (
      select * from ${userCredentials}
      where consent_state_hash = ${stateHash} and consent_expire_time > clock_timestamp() and ${isOwn} for update)
    update ${userCredentials} c
    set consent_sealed = null, consent_session_id = null, consent_state_hash = null, consent_expire_time = null
    from waiting w where c.app_name = w.app_name and c.user_id = w.user_id and c.resource = w.resource
    returning w.app_name as "appName", w.user_id as "userId", w.resource, w.consent_session_id as "sessionId",
      w.consent_sealed as consent`);
  return rows[0];
}

/** Acquires the lease for renewing an OAuth grant. @returns false if another process holds the lease */
export async function leaseRenewal(db: Database, key: CredentialKey, grant: string, seconds: number): Promise<boolean> {
  const isFree = sql`(lease_expire_time is null or lease_expire_time < clock_timestamp())`;
  const { rowCount } = await db
    .update(userCredentials)
    .set({ leaseExpireTime: later(seconds) })
    .where(and(isAt(key), eq(userCredentials.grant, grant), isFree));
  return rowCount === 1;
}

/** Replaces an OAuth grant, with `replaced` only if it still has this value, and releases its renewal lease. */
export async function replaceGrant(
  db: Database,
  key: CredentialKey,
  grant: string | null,
  replaced?: string,
): Promise<void> {
  const isSame = replaced === undefined ? undefined : eq(userCredentials.grant, replaced);
  await db
    .update(userCredentials)
    .set({ grant, leaseExpireTime: null, updateTime })
    .where(and(isAt(key), isSame));
}

export async function deleteGrant(db: Database, key: CredentialKey): Promise<void> {
  await db.delete(userCredentials).where(isAt(key));
}
