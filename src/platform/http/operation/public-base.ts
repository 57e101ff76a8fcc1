import type { Request } from 'express';

/** The setting for the URL under which clients reach the service. */
export interface PublicAddress {
  /** URL without a trailing slash. Default: not set. */
  PUBLIC_URL?: string | undefined;
}

/**
 * Returns the service's base URL for links in responses: the operator's `PUBLIC_URL`. If that is not set, the request's
 * own `Host` is used, which a client can forge. Such a link is only for that client, and must not be signed, stored or
 * shared.
 */
export const toBase = ({ PUBLIC_URL }: PublicAddress, { protocol, host }: Pick<Request, 'protocol' | 'host'>): string =>
  PUBLIC_URL ?? `${protocol}://${host}`;
