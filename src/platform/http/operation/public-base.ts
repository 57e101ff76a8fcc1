import type { Request } from 'express';

export interface PublicAddress {
  /** URL under which clients reach the service, without a trailing slash. Default: not set. */
  PUBLIC_URL?: string | undefined;
}

/**
 * Returns the base URL of links. Without `PUBLIC_URL` it comes from the request's `Host`, which a client can forge:
 * such a link is only for that client, and must not be signed, stored or shared.
 */
export const toBase = ({ PUBLIC_URL }: PublicAddress, { protocol, host }: Pick<Request, 'protocol' | 'host'>): string =>
  PUBLIC_URL ?? `${protocol}://${host}`;
