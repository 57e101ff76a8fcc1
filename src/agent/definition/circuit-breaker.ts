/** Failures in a row from which a provider is passed over. */
const MAX_FAILURES = 5;
/** Time until one call tries it again. */
const PAUSE_MS = 10_000;
/** Users that are remembered: two are enough to tell that it is the provider. */
const MAX_USERS = 2;

/**
 * Counts what failed at one provider in this process. Where one user alone saw it fail, only calls of that user pass it
 * over.
 */
export class CircuitBreaker {
  readonly #now: () => number;
  readonly #users = new Set<string>();
  #failures = 0;
  #retryTime = 0;

  /** @param now - the time in milliseconds [that since the start of the process] */
  constructor(now = () => performance.now()) {
    this.#now = now;
  }

  /** True where a call of this user is not to be made. After a pause one is, and its end decides. */
  passesOver(user: string): boolean {
    if (this.#failures < MAX_FAILURES || (this.#users.size < MAX_USERS && !this.#users.has(user))) return false;
    if (this.#now() < this.#retryTime) return true;
    this.#retryTime = this.#now() + PAUSE_MS;
    return false;
  }

  /** Notes the end of a call. */
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
