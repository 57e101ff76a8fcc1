/** Number of consecutive failures after which the circuit breaker opens. */
const MAX_FAILURES = 5;
/** Time after the last failure until the open circuit breaker allows one trial call, in milliseconds. */
const PAUSE_MS = 10_000;
/** Maximum number of users with failed calls that are remembered, because two are enough to blame the provider. */
const MAX_USERS = 2;

/**
 * A circuit breaker for one provider in this process. If the failures are all of one user, the breaker is open for that
 * user only, because that user's requests may be the cause.
 */
export class CircuitBreaker {
  readonly #now: () => number;
  readonly #users = new Set<string>();
  #failures = 0;
  #retryTime = 0;

  /** @param now - the clock, in milliseconds */
  constructor(now = () => performance.now()) {
    this.#now = now;
  }

  /**
   * True if the breaker forbids a call of this user. After the pause it allows one trial call: a success closes the
   * breaker, and a failure starts the pause again.
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
