import { atTime } from '../../../core/abort.ts';
import { NotFoundError } from '../../../core/errors.ts';
import { ValidationFailedError } from './request-errors.ts';

/**
 * Scopes of credentials. `admin`: resources shared by all users of an application. `override`: changes of the deployed
 * agent for one invocation. `import`: events in the name of others. `develop`: evaluation, traces and graphs.
 */
export const SCOPES = ['invoke', 'read', 'write', 'admin', 'override', 'import', 'develop'] as const;
export type Scope = (typeof SCOPES)[number];

/** Text of the last frame of a stream whose credential has expired or was revoked. */
export const NOT_VALID_ANY_MORE = 'The credential of this stream is not valid any more. Connect again with a new one.';

/** Scopes of a user pool's token that contains no scope claim; they cover the user's own data. */
export const USER_SCOPES: readonly Scope[] = ['invoke', 'read', 'write'];

interface Rights {
  scopes: ReadonlySet<Scope>;
  /** The only applications that the principal may name. Default: all. */
  apps?: ReadonlySet<string> | undefined;
  /** Expiry of the credential, Unix time in milliseconds. Default: never. */
  expiresAt?: number | undefined;
  /** Calls `work` on revocation; returns a function that cancels this. Absent: the credential cannot be revoked. */
  onRevoked?: ((work: () => void) => () => void) | undefined;
}

/** Calls `work` once when a credential expires or is revoked. @returns a function that cancels this */
export function whenEnded({ expiresAt, onRevoked }: Partial<Rights>, work: () => void): () => void {
  const end = () => {
    cancel();
    work();
  };
  const calls = [atTime(expiresAt, end), onRevoked?.(end)];
  const cancel = () => calls.forEach((callOff) => callOff?.());
  return cancel;
}

/** The caller: anonymous (mode local, where all is allowed), a holder of an API key, or a user of a user pool. */
export type Principal =
  | ({ kind: 'anonymous' } & Rights)
  /** `id` is absent for a key of `RUNTIME_API_KEYS`. `users` are the only users that the key acts for; default: all. */
  | ({ kind: 'key'; id?: string | undefined; users?: ReadonlySet<string> | undefined } & Rights)
  /** `groups` come from the user's token. */
  | ({ kind: 'user'; userId: string; groups?: readonly string[] | undefined } & Rights);

const ALL_SCOPES: ReadonlySet<Scope> = new Set(SCOPES);

/** The principal if no credential is required. */
export const ANONYMOUS: Principal = { kind: 'anonymous', scopes: ALL_SCOPES };
/** The principal of a key without an id, used by the operator's own services. */
export const FULL_KEY: Principal = { kind: 'key', scopes: ALL_SCOPES };

/** The only user whose data a caller sees if the path names none; `undefined` for a caller who may act for all. */
export const visibleTo = (principal: Principal): string | undefined =>
  principal.kind === 'user' ? principal.userId : undefined;

/** The only users and applications whose data a caller sees where the path names none; `undefined`: all. */
export interface Bounds {
  users?: readonly string[] | undefined;
  apps?: readonly string[] | undefined;
}

export function boundsOf(principal: Principal): Bounds {
  const { apps } = principal;
  const users = principal.kind === 'user' ? [principal.userId] : principal.kind === 'key' ? principal.users : undefined;
  return { users: users && [...users], apps: apps && [...apps] };
}

/**
 * Returns the user whom a request concerns: the logged-in user, or the user named in the request.
 * @throws {ValidationFailedError} if the request must name a user and does not
 * @throws {NotFoundError} if a logged-in user names another user
 */
export function requireOwner(
  principal: Principal,
  named: string | undefined,
  place: 'body' | 'query',
  member = 'ownerId',
): string {
  const own = visibleTo(principal);
  if (own !== undefined && named !== undefined && named !== own) throw new NotFoundError(`User not found: ${named}`);
  const userId = own ?? named;
  if (userId !== undefined) return userId;
  throw new ValidationFailedError([{ type: 'missing', loc: [place, member], msg: 'Field required', input: null }]);
}
