/** Maximum number of prepared statements per connection; the stores have some hundred statements. */
const MAX_PLANS = 500;

/** The part of node-postgres's connection class (pg 8.23) that prepares statements. */
interface Preparing {
  /** Statement name → text, for statements that the server has prepared. */
  parsedStatements: Record<string, string>;
  submittedNamedStatements: Record<string, string>;
  close(message: { type: 'S'; name: string }): void;
}

/**
 * An LRU cache of the statements that a connection has prepared. PostgreSQL plans an unnamed statement at each call,
 * and planning takes longer than executing: 0.62 instead of 0.17 ms for a session of ten events.
 */
export class PreparedNames {
  readonly #connection: Preparing;
  /** Role and text of a statement → its name, the least recently used first. */
  readonly #names = new Map<string, string>();
  #count = 0;

  constructor(connection: object) {
    this.#connection = connection as Preparing;
  }

  /**
   * Returns the name of a statement to send; `undefined` if a new name is needed and all belong to statements in
   * flight. Each role has its own names, because the server plans again if the role changes.
   */
  use(role: string, text: string): string | undefined {
    const key = `${role} ${text}`;
    const existing = this.#names.get(key);
    if (existing === undefined && this.#names.size >= MAX_PLANS && !this.#closeOldest()) return undefined;
    // A name is never reused, because node-postgres refuses a known name with a different text.
    const name = existing ?? `s${(this.#count += 1)}`;
    this.#names.delete(key);
    this.#names.set(key, name);
    return name;
  }

  /**
   * Closes the least recently used statement. The Close message follows all statements sent before that use the plan.
   */
  #closeOldest(): boolean {
    const [[key, name] = ['', '']] = this.#names;
    const { parsedStatements, submittedNamedStatements } = this.#connection;
    // A statement whose Parse message is unanswered is kept: node-postgres would record it as prepared afterwards.
    if (name in submittedNamedStatements) return false;
    this.#names.delete(key);
    delete parsedStatements[name];
    this.#connection.close({ type: 'S', name });
    return true;
  }
}
