import { atTime } from '../../../core/abort.ts';
import { NotFoundError } from '../../../core/errors.ts';
import { ValidationFailedError } from './request-errors.ts';

/**
 * The scopes of credentials. `admin`: resources that all users of an application share; `override`: changes of the
 * deployed agent for one invocation; `import`: events in the name of others; `develop`: evaluation, traces and graphs.
 */
export const SCOPES = ['invoke', 'read', 'write', 'admin', 'override', 'import', 'develop'] as const;
export type Scope = (typeof SCOPES)[number];

/** The last word of a stream whose credential has expired or was revoked. */
export const NOT_VALID_ANY_MORE = 'The credential of this stream is not valid any more. Connect again with a new one.';

/** The scopes of a user pool's token that names none: its user's own things. */
export const USER_SCOPES: readonly Scope[] = ['invoke', 'read', 'write'];

/** The rights of every principal. */
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

/** The caller: anonymous (mode local, where everything is allowed), a holder of a runtime key, a user of a pool. */
export type Principal =
  | ({ kind: 'anonymous' } & Rights)
  /** `id` is absent for a key of `RUNTIME_API_KEYS`; `users` are the only ones that it acts for [all]. */
  | ({ kind: 'key'; id?: string | undefined; users?: ReadonlySet<string> | undefined } & Rights)
  /** `groups` are those that its token names. */
  | ({ kind: 'user'; userId: string; groups?: readonly string[] | undefined } & Rights);

const ALL_SCOPES: ReadonlySet<Scope> = new Set(SCOPES);

/** The caller where none is asked for. */
export const ANONYMOUS: Principal = { kind: 'anonymous', scopes: ALL_SCOPES };
/** A holder of a key without an id: the operator's own services. */
export const FULL_KEY: Principal = { kind: 'key', scopes: ALL_SCOPES };

/** The user whose things a caller sees where no path names one; `undefined` for a caller who may act for all. */
export const visibleTo = (principal: Principal): string | undefined =>
  principal.kind === 'user' ? principal.userId : undefined;

/**
 * The user that a request is about: the one who is logged in, or the one that it names.
 * @throws {ValidationFailedError} where it must name one and does not. @throws {NotFoundError} for another user.
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
