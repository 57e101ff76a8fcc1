import type { Request } from 'express';

/** The part of the settings that says where clients reach the service. */
export interface PublicAddress {
  /** Without a slash at its end [not said]. */
  PUBLIC_URL?: string | undefined;
}

/**
 * Returns the address that answers name: the operator's. Only where none is set it is what this very client called the
 * service, which any client may make up: such an answer is for that client alone, and is not signed, kept or shared.
 */
export const toBase = ({ PUBLIC_URL }: PublicAddress, { protocol, host }: Pick<Request, 'protocol' | 'host'>): string =>
  PUBLIC_URL ?? `${protocol}://${host}`;
