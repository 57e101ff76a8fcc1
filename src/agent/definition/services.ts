import type { Content, JsonObject, Part } from '../../core/content.ts';
import type { Log } from '../../platform/log.ts';

/** Artifacts and memories for tools, of the session's user only. */
export interface ToolServices {
  /** Saves a version of an artifact of the session, or of the user if the name begins with `user:`; returns its number. */
  saveArtifact(name: string, part: Part, customMetadata?: JsonObject): Promise<number>;
  /**
   * Loads the latest or the given version of an artifact, if it exists.
   * @throws {TooLargeError} if it has more than `maxBytes`
   */
  loadArtifact(name: string, version?: number, maxBytes?: number): Promise<Part | undefined>;
  /** The names of the first 1,000 artifacts of the session and of the user, sorted. */
  listArtifacts(): Promise<string[]>;
  /** Finds at most 20 of this user's memories in this application by words, best match first. */
  searchMemory(query: string): Promise<{ author: string; timestamp: string; content: Content }[]>;
}

/** Log for tools. Each line has the ids of the tool call, the request, the session and the invocation. */
export type ToolLog = Record<'debug' | 'info' | 'warn' | 'error', (message: string, fields?: JsonObject) => void>;

/** Makes a log for tools: each line has the fields of `context`. */
export function toToolLog(log: Log | undefined, context: JsonObject): ToolLog {
  const at =
    (level: keyof ToolLog): ToolLog[keyof ToolLog] =>
    (message, fields) =>
      log?.[level]({ ...fields, ...context }, message);
  return { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') };
}

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
