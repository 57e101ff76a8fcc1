/** A command that cannot do what it was asked for; the message is for people. */
export class CommandError extends Error {
  /** 1: it failed; 2: it could not be begun. */
  readonly exitCode: 1 | 2;
  /** The status of the service's refusal. */
  readonly status: number | undefined;

  constructor(message: string, exitCode: 1 | 2 = 1, status?: number) {
    super(message);
    this.exitCode = exitCode;
    this.status = status;
  }
}
