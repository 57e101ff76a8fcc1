/** Consecutive failures that open the breaker. */
const MAX_FAILURES = 5;
/** Time until one trial call is made. */
const PAUSE_MS = 10_000;
/** Failing users that are remembered: two suffice to blame the provider. */
const MAX_USERS = 2;

/**
 * A circuit breaker for one provider in this process. If only one user saw failures, it is open for that user only,
 * because that user's requests may be the cause.
 */
export class CircuitBreaker {
  readonly #now: () => number;
  readonly #users = new Set<string>();
  #failures = 0;
  #retryTime = 0;

  /** @param now - the time in milliseconds [since the start of the process] */
  constructor(now = () => performance.now()) {
    this.#now = now;
  }

  /**
   * True if a call of this user must not be made. After the pause one trial call is let through, and its outcome
   * decides.
   */
  passesOver(user: string): boolean {
    if (this.#failures < MAX_FAILURES || (this.#users.size < MAX_USERS && !this.#users.has(user))) return false;
    if (this.#now() < this.#retryTime) return true;
    this.#retryTime = this.#now() + PAUSE_MS;
    return false;
  }

  note(user: string, hasFailed: boolean): void {
    if (!hasFailed) {
      this.#failures = 0;
      this.#users.clear();
      return;
    }
    this.#failures += 1;
    this.#retryTime = this.#now() + PAUSE_MS;
    if (this.#users.size < MAX_USERS) this.#users.add(user);
  }
}
