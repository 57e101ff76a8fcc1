/** A command that cannot do what it was asked for; the message is for people. */
export class CommandError extends Error {
  /** 1: it failed; 2: it could not be begun. */
  readonly exitCode: 1 | 2;

  constructor(message: string, exitCode: 1 | 2 = 1) {
    super(message);
    this.exitCode = exitCode;
  }
}
