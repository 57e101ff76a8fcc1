import { and, eq, inArray, sql } from 'drizzle-orm';
import { hash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import type { UserCredentials } from '../../agent/definition/services.ts';
import type { JsonObject } from '../../core/content.ts';
import { InvalidError, NotFoundError } from '../../core/errors.ts';
import type { Database, DatabasePool } from '../../platform/db/database.ts';
import { userCredentials } from '../../platform/db/schema/schema.ts';
import type { Log } from '../../platform/log.ts';
import { createEgress, type Egress, type EgressPolicy } from '../../platform/net/egress.ts';
import type { Secrets } from '../../platform/secrets.ts';

type CredentialKey = Pick<typeof userCredentials.$inferSelect, 'appName' | 'userId' | 'resource'>;

const isOf = ({ appName, userId }: Omit<CredentialKey, 'resource'>) =>
  and(eq(userCredentials.appName, appName), eq(userCredentials.userId, userId));
const isAt = (key: CredentialKey) => and(isOf(key), eq(userCredentials.resource, key.resource));
const later = (seconds: number) => sql<Date>`clock_timestamp() + ${seconds} * interval '1 second'`;
const updateTime = sql`clock_timestamp()`;

async function findGrant(db: Database, key: CredentialKey): Promise<string | undefined> {
  const [row] = await db.select({ grant: userCredentials.grant }).from(userCredentials).where(isAt(key));
  return row?.grant ?? undefined;
}

/** Lists a user's encrypted OAuth grants; `grant` is null for a resource that has only a pending consent. */
const listGrants = (db: Database, user: Omit<CredentialKey, 'resource'>, limit: number) =>
  db
    .select({ resource: userCredentials.resource, grant: userCredentials.grant })
    .from(userCredentials)
    .where(isOf(user))
    .limit(limit);

/** Stores a pending OAuth consent; replaces an earlier pending consent for the same resource. */
async function insertConsent(
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
interface ConsentGiver {
  userId: string | undefined;
  apps?: ReadonlySet<string> | undefined;
}

/** Removes and returns the pending consent with an OAuth state, so that it is redeemed once. */
async function takeConsent(db: Database, stateHash: Buffer, { userId, apps }: ConsentGiver) {
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
async function leaseRenewal(db: Database, key: CredentialKey, grant: string, seconds: number): Promise<boolean> {
  const isFree = sql`(lease_expire_time is null or lease_expire_time < clock_timestamp())`;
  const { rowCount } = await db
    .update(userCredentials)
    .set({ leaseExpireTime: later(seconds) })
    .where(and(isAt(key), eq(userCredentials.grant, grant), isFree));
  return rowCount === 1;
}

/** Replaces an OAuth grant, with `replaced` only if it still has this value, and releases its renewal lease. */
async function replaceGrant(db: Database, key: CredentialKey, grant: string | null, replaced?: string): Promise<void> {
  const isSame = replaced === undefined ? undefined : eq(userCredentials.grant, replaced);
  await db
    .update(userCredentials)
    .set({ grant, leaseExpireTime: null, updateTime })
    .where(and(isAt(key), isSame));
}

async function deleteGrant(db: Database, key: CredentialKey): Promise<void> {
  await db.delete(userCredentials).where(isAt(key));
}

/** Time limit in seconds for a user to give consent, and for a process to renew a grant. */
const CONSENT_SECONDS = 600;
const RENEWAL_SECONDS = 30;
const LOOK_MS = 200;
const REQUEST_MS = 10_000;
const GRANTS_AT_ONCE = 10;

export interface CredentialContext {
  database: DatabasePool;
  secrets: Secrets;
  log: Log;
  /** The redirect URL registered with OAuth issuers, and the policy on addresses of issuers. */
  grants: { egress: EgressPolicy; redirectUrl: string | undefined };
}

const toPlace = ({ appName, userId, resource }: CredentialKey) => ['grant', appName, userId, resource];
const toStateHash = (state: string) => hash('sha256', state, 'buffer');

/** Returns access to users' grants; `undefined` if no encryption key or no redirect URL is configured. */
export function openCredentials(
  { database: { db }, secrets, grants: { redirectUrl } }: Pick<CredentialContext, 'database' | 'secrets' | 'grants'>,
  user: Omit<CredentialKey, 'resource'>,
): UserCredentials | undefined {
  if (!secrets.canSeal || redirectUrl === undefined) return undefined;
  const seal = (key: CredentialKey, value: JsonObject) => secrets.seal(JSON.stringify(value), toPlace(key));
  const read = async (key: CredentialKey) => {
    const sealed = await findGrant(db, key);
    const grant = open(secrets, key, sealed);
    return sealed !== undefined && grant ? { sealed, grant } : undefined;
  };
  return {
    redirectUrl,
    read: async (resource) => (await read({ ...user, resource }))?.grant,
    async renew(resource, expired, work) {
      const key = { ...user, resource };
      for (;;) {
        const current = await read(key);
        if (!current || !isDeepStrictEqual(current.grant, expired)) return current?.grant;
        const { sealed } = current;
        if (await leaseRenewal(db, key, sealed, RENEWAL_SECONDS)) {
          const fresh = await work().catch(async (error: unknown) => {
            await replaceGrant(db, key, sealed, sealed);
            throw error;
          });
          await replaceGrant(db, key, fresh ? seal(key, fresh) : null, sealed);
          return fresh;
        }
        await sleep(LOOK_MS);
      }
    },
    async begin({ resource, sessionId: consentSessionId, state, kept }) {
      const key = { ...user, resource };
      const waits = { consentSessionId, consentStateHash: toStateHash(state), seconds: CONSENT_SECONDS };
      await insertConsent(db, key, { consent: seal(key, kept), ...waits });
    },
  };
}

function open(secrets: Secrets, key: CredentialKey, sealed: string | null | undefined): JsonObject | undefined {
  const text = sealed == null ? undefined : secrets.open(sealed, toPlace(key));
  return text === undefined ? undefined : (JSON.parse(text) as JsonObject);
}

/** The same message for every consent that the caller cannot redeem, so that nobody learns of another user's. */
export const NO_CONSENT = 'No pending consent: it was used, has expired, or belongs to another user.';

/**
 * Redeems a consent after the issuer's redirect in a browser, once, for the user who was asked.
 * @returns the session that waits for the consent
 * @throws {NotFoundError} if no consent is pending
 * @throws {InvalidError} if the issuer denies access
 */
export async function redeemConsent(
  { database: { db }, secrets, grants, log }: CredentialContext,
  { state, code, iss }: { state: string; code?: string | undefined; iss?: string | undefined },
  giver: ConsentGiver,
): Promise<{ appName: string; userId: string; sessionId: string; resource: string }> {
  const row = await takeConsent(db, toStateHash(state), giver);
  const consent = row && open(secrets, row, row.consent);
  if (!consent) throw new NotFoundError(NO_CONSENT);
  const { consent: _sealed, sessionId, ...key } = row;
  if (code === undefined) throw new InvalidError('The issuer says that no access was given.');
  const { finishConsent } = await import('../../agent/mcp/mcp-consent.ts');
  const granted = await withFetch(grants.egress, key.userId, (fetch) =>
    finishConsent(consent, { code, iss }, fetch),
  ).catch((err: unknown) => {
    log.warn({ err }, 'a consent could not be redeemed');
    throw new InvalidError('The issuer gave no access for this. Ask for it again in the conversation.');
  });
  await replaceGrant(db, key, secrets.seal(JSON.stringify(granted), toPlace(key)));
  return { ...key, sessionId };
}

/** Deletes a batch of a user's grants. Each is first revoked at its issuer, if the issuer responds. */
export async function deleteGrants(
  { database: { db }, secrets, grants, log }: CredentialContext,
  user: Omit<CredentialKey, 'resource'>,
): Promise<number> {
  const rows = await listGrants(db, user, GRANTS_AT_ONCE);
  const work = rows.map(async ({ resource, grant: sealed }) => {
    const key = { ...user, resource };
    const grant = open(secrets, key, sealed);
    if (grant) {
      const { revokeGrant } = await import('../../agent/mcp/mcp-consent.ts');
      await withFetch(grants.egress, user.userId, (fetch) => revokeGrant(grant, fetch)).catch((err: unknown) =>
        log.warn({ err }, 'a grant could not be revoked'),
      );
    }
    await deleteGrant(db, key);
  });
  await Promise.all(work);
  return rows.length;
}

/** Runs `work` with a `fetch` that has a time-out and obeys the egress policy. */
async function withFetch<Result>(
  policy: EgressPolicy,
  userId: string,
  work: (fetch: Egress['fetch']) => Promise<Result>,
): Promise<Result> {
  const egress = createEgress(policy, userId);
  try {
    return await work((url, init) => egress.fetch(url, { ...init, signal: AbortSignal.timeout(REQUEST_MS) }));
  } finally {
    await egress.close();
  }
}
