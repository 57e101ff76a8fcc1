import type { JsonObject } from '../../core/content.ts';

/** Keeps, encrypted, the access to resources elsewhere that one user has granted to one application. */
export interface UserCredentials {
  /** Address that the browser of the user comes back to. */
  redirectUrl: string;
  /** Reads the grant for a resource; `undefined` where there is none. */
  read(resource: string): Promise<JsonObject | undefined>;
  /**
   * Replaces a grant that has expired by the one that `work` gets, in one process at a time: others wait for it and
   * take it. Where `work` gets none, the grant is deleted; where it throws, the grant stays.
   */
  renew(
    resource: string,
    expired: JsonObject,
    work: () => Promise<JsonObject | undefined>,
  ): Promise<JsonObject | undefined>;
  /** Keeps what a consent needs that the browser of the user will bring back, once, with `state`. */
  begin(consent: { resource: string; sessionId: string; state: string; kept: JsonObject }): Promise<void>;
}
