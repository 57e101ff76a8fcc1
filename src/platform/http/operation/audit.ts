/** One decision about one request: who, what, on which resource, from where; never content. */
export interface AuditEntry {
  callerKind: 'unknown' | 'anonymous' | 'key' | 'user';
  /** User of the token, or id of the key; `undefined` for a key of `RUNTIME_API_KEYS` and where nobody is known. */
  caller?: string | undefined;
  /** Address of the client, after `TRUSTED_PROXIES`. */
  address?: string | undefined;
  /** `operationId`; `undefined` for what was refused before a route was found. */
  operation?: string | undefined;
  /** What the request is about: names from its path, and the user and application that its content names. */
  resource: Record<string, string>;
  requestId: string;
}

/** Where decisions are kept. */
export interface Audit {
  /** True for an operation whose permission is kept. */
  isAbout(operation: { isRead: boolean }): boolean;
  /**
   * Keeps that a request is allowed. That of a change is stored when this returns, before the change is begun, so that
   * no crash loses it. @throws what the database does where it cannot be stored
   */
  allowed(entry: AuditEntry, operation: { isRead: boolean }): Promise<void>;
  /** Keeps a refusal soon, without anybody waiting; of one caller so many in a minute. */
  refused(entry: AuditEntry, reason: string): void;
}
