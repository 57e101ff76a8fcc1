import type { JsonObject } from '../../core/content.ts';

/** Encrypted OAuth grants of one user for one application. */
export interface UserCredentials {
  /** Redirect address that the user's browser returns to. */
  redirectUrl: string;
  /** Reads the grant for a resource; `undefined` if there is none. */
  read(resource: string): Promise<JsonObject | undefined>;
  /**
   * Replaces an expired grant by the result of `work`. Only one process at a time runs `work`; the others wait and use
   * its grant. If `work` returns nothing, the grant is deleted; if it throws, the grant stays.
   */
  renew(
    resource: string,
    expired: JsonObject,
    work: () => Promise<JsonObject | undefined>,
  ): Promise<JsonObject | undefined>;
  /** Stores what the consent needs when the browser returns with `state`. It can be read once. */
  begin(consent: { resource: string; sessionId: string; state: string; kept: JsonObject }): Promise<void>;
}
