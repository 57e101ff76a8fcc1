import type { JsonObject } from '../../core/content.ts';

/** The OAuth grants of one user for one application, stored encrypted. */
export interface UserCredentials {
  /** OAuth redirect URI, to which the authorization server sends the user's browser back. */
  redirectUrl: string;
  /** Reads the user's OAuth grant for a server, if there is one. */
  read(resource: string): Promise<JsonObject | undefined>;
  /**
   * Replaces an expired grant by the result of `work`. Without a result, the grant is deleted; if `work` throws, the
   * grant is kept. Only one process at a time runs `work`; other processes wait and use the new grant.
   */
  renew(
    resource: string,
    expired: JsonObject,
    work: () => Promise<JsonObject | undefined>,
  ): Promise<JsonObject | undefined>;
  /** Stores an OAuth consent's data until the browser returns with the same `state`. They can be read only once. */
  begin(consent: { resource: string; sessionId: string; state: string; kept: JsonObject }): Promise<void>;
}
