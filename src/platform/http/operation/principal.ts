import { atTime } from '../../../core/abort.ts';

/**
 * What a credential allows. `admin`: what all users of an application share; `override`: changes of the deployed agent
 * for one invocation; `import`: events in the name of others; `develop`: evaluation, traces and graphs.
 */
export const SCOPES = ['invoke', 'read', 'write', 'admin', 'override', 'import', 'develop'] as const;
export type Scope = (typeof SCOPES)[number];

/** The last word of a stream whose credential has expired or was revoked. */
export const NOT_VALID_ANY_MORE = 'The credential of this stream is not valid any more. Connect again with a new one.';

/** What a token of a user pool allows that says nothing else: its user's own things. */
export const USER_SCOPES: readonly Scope[] = ['invoke', 'read', 'write'];

/** What every principal has. */
interface Rights {
  scopes: ReadonlySet<Scope>;
  /** The only applications that it may name; `undefined`: all. */
  apps?: ReadonlySet<string> | undefined;
  /** When the credential ends, Unix time in milliseconds; `undefined` for one that does not. */
  expiresAt?: number | undefined;
  /** Calls `work` when the credential is revoked, and returns what calls that off [it cannot be revoked]. */
  onRevoked?: ((work: () => void) => () => void) | undefined;
}

/** Calls `work` once when a credential ends, whether it expires or is revoked. @returns what calls that off */
export function whenEnded({ expiresAt, onRevoked }: Partial<Rights>, work: () => void): () => void {
  const end = () => {
    cancel();
    work();
  };
  const calls = [atTime(expiresAt, end), onRevoked?.(end)];
  const cancel = () => calls.forEach((callOff) => callOff?.());
  return cancel;
}

/** Who calls: nobody known (mode local, where everything is allowed), a holder of a runtime key, a user of a pool. */
export type Principal =
  | ({ kind: 'anonymous' } & Rights)
  /** `id` is absent for a key of `RUNTIME_API_KEYS`; `users` are the only ones that it acts for [all]. */
  | ({ kind: 'key'; id?: string | undefined; users?: ReadonlySet<string> | undefined } & Rights)
  | ({ kind: 'user'; userId: string } & Rights);

const ALL_SCOPES: ReadonlySet<Scope> = new Set(SCOPES);

/** The caller where none is asked for. */
export const ANONYMOUS: Principal = { kind: 'anonymous', scopes: ALL_SCOPES };
/** Whoever holds a key without an id: the operator's own services. */
export const FULL_KEY: Principal = { kind: 'key', scopes: ALL_SCOPES };

/**
 * Who shares the limits of one principal: a user of a pool, each user that a runtime key acts for, the key where its
 * request names no user, an address where nobody is known.
 */
export function callerId(principal: Principal, address: string, userId?: string): string {
  if (principal.kind === 'user') return `user:${principal.userId}`;
  if (principal.kind === 'anonymous') return `address:${address}`;
  return `key:${principal.id ?? ''}${userId === undefined ? '' : `/${userId}`}`;
}

/** True when a caller may read and write what belongs to this user. */
export function mayActFor(principal: Principal, userId: string): boolean {
  if (principal.kind === 'user') return principal.userId === userId;
  return principal.kind === 'anonymous' || (principal.users?.has(userId) ?? true);
}

/** True when a caller may name this application. */
export const mayUse = ({ apps }: Principal, appName: string): boolean => apps?.has(appName) ?? true;

/** True for a key that is bound to users or applications: what spans them is not for it. */
export const isBound = (principal: Principal): boolean =>
  principal.apps !== undefined || (principal.kind === 'key' && principal.users !== undefined);
