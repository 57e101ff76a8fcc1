import { and, eq, inArray, sql } from 'drizzle-orm';
import type { Database } from '../../platform/db/database.ts';
import { userCredentials } from '../../platform/db/schema/schema.ts';

/** The primary key of a grant. */
export type CredentialKey = Pick<typeof userCredentials.$inferSelect, 'appName' | 'userId' | 'resource'>;

const isOf = ({ appName, userId }: Omit<CredentialKey, 'resource'>) =>
  and(eq(userCredentials.appName, appName), eq(userCredentials.userId, userId));
const isAt = (key: CredentialKey) => and(isOf(key), eq(userCredentials.resource, key.resource));
const later = (seconds: number) => sql<Date>`clock_timestamp() + ${seconds} * interval '1 second'`;
const updateTime = sql`clock_timestamp()`;

/** Reads an encrypted grant; `undefined` where there is none. */
export async function findGrant(db: Database, key: CredentialKey): Promise<string | undefined> {
  const [found] = await db.select({ grant: userCredentials.grant }).from(userCredentials).where(isAt(key));
  return found?.grant ?? undefined;
}

/** Lists the encrypted grants of a user, and the resources without one. */
export const listGrants = (db: Database, user: Omit<CredentialKey, 'resource'>, limit: number) =>
  db
    .select({ resource: userCredentials.resource, grant: userCredentials.grant })
    .from(userCredentials)
    .where(isOf(user))
    .limit(limit);

/** Keeps a consent on its way; one before it to the same resource is over. */
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

/** Who redeems a consent: the user whose it is [any], and the applications that the caller may name [all]. */
export interface ConsentGiver {
  userId: string | undefined;
  apps?: ReadonlySet<string> | undefined;
}

/** Takes the consent of a state, which no one else gets then; `undefined` where none waits for it. */
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

/** Takes the turn to renew a grant, for so long as its process may need. @returns false where another has it */
export async function leaseRenewal(db: Database, key: CredentialKey, grant: string, seconds: number): Promise<boolean> {
  const isFree = sql`(lease_expire_time is null or lease_expire_time < clock_timestamp())`;
  const { rowCount } = await db
    .update(userCredentials)
    .set({ leaseExpireTime: later(seconds) })
    .where(and(isAt(key), eq(userCredentials.grant, grant), isFree));
  return rowCount === 1;
}

/** Replaces a grant, where it is the one that is given, and ends the turn to renew it. */
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

/** Deletes a grant and the consent on its way. */
export async function deleteGrant(db: Database, key: CredentialKey): Promise<void> {
  await db.delete(userCredentials).where(isAt(key));
}
