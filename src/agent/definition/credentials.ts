import type { JsonObject } from '../../core/content.ts';

/** The OAuth grants of one user for one application, stored encrypted. */
export interface UserCredentials {
  /** OAuth redirect URI: the address to which the authorization server sends the user's browser back. */
  redirectUrl: string;
  /** Reads the user's grant for a server; `undefined` if the user has granted none. */
  read(resource: string): Promise<JsonObject | undefined>;
  /**
   * Replaces an expired grant by the result of `work`. Only one process at a time runs `work`; other processes wait and
   * use the new grant. If `work` returns nothing, the grant is deleted. If `work` throws, the old grant stays.
   */
  renew(
    resource: string,
    expired: JsonObject,
    work: () => Promise<JsonObject | undefined>,
  ): Promise<JsonObject | undefined>;
  /**
   * Stores the data of a consent that has begun, until the browser returns with the same `state`. The data can be read
   * once only.
   */
  begin(consent: { resource: string; sessionId: string; state: string; kept: JsonObject }): Promise<void>;
}
