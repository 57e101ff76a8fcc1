import { hash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import type { UserCredentials } from '../../agent/definition/services.ts';
import type { JsonObject } from '../../core/content.ts';
import { InvalidError, NotFoundError } from '../../core/errors.ts';
import type { DatabasePool } from '../../platform/db/database.ts';
import type { Log } from '../../platform/log.ts';
import { createEgress, type Egress, type EgressPolicy } from '../../platform/net/egress.ts';
import type { Secrets } from '../../platform/secrets.ts';
import {
  type CredentialKey,
  deleteGrant,
  findGrant,
  insertConsent,
  leaseRenewal,
  listGrants,
  replaceGrant,
  takeConsent,
  type ConsentGiver,
} from './credential-store.ts';

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
