import { createKeyRing } from '../../platform/http/access/key-ring.ts';
import type { TokenIssuer } from '../../platform/http/access/tokens.ts';
import type { Config } from '../../process/config.ts';
import { fault, type Finding, ok, toReason } from './finding.ts';

const TIMEOUT_MS = 5_000;

/** Checks that the file of keys can be read, and that the keys of each issuer of tokens can be fetched. */
export const checkAccess = async ({ auth: { mode, keys, issuers = [] } }: Config): Promise<Finding[]> => {
  const faults = [
    ...(keys ? findUnreadable(() => void createKeyRing(keys)) : []),
    ...(await Promise.all(issuers.map(findUnreachable))).flat(),
  ];
  return faults.length > 0 ? faults.map((each) => fault('access', each)) : [ok('access', `mode ${mode}`)];
};

function findUnreadable(read: () => void): string[] {
  try {
    read();
    return [];
  } catch (error) {
    return [toReason(error)];
  }
}

async function findUnreachable(issuer: TokenIssuer): Promise<string[]> {
  const { fetchKeySet } = await import('../../platform/http/access/jwks.ts');
  try {
    const { keys } = await fetchKeySet(issuer, AbortSignal.timeout(TIMEOUT_MS));
    return keys.length > 0 ? [] : [`${issuer.issuer} has no keys, so no token of it is valid.`];
  } catch (error) {
    const cause = error instanceof Error && error.cause ? error.cause : error;
    return [`The keys of ${issuer.issuer} cannot be fetched: ${toReason(cause)}; see JWT_ISSUER and JWT_JWKS_URL.`];
  }
}
