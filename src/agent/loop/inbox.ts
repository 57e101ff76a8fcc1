import type { Event, NewEvent } from '../../core/event.ts';

/**
 * Messages of the user that come while the invocation runs. The loop says behind which step it makes a request to a
 * model. The caller stores the messages there, in the statement that stores the step, and the loop takes them for that
 * request: so the order of the stored events is the order in which models read them.
 */
export class Inbox {
  #stepId: string | undefined;
  readonly #messages: Event[] = [];

  /** The loop makes a request behind this step, which it yields next. */
  open({ id }: NewEvent): void {
    this.#stepId = id;
  }

  isOpenBehind({ id }: NewEvent): boolean {
    return this.#stepId === id;
  }

  add(messages: readonly Event[]): void {
    this.#messages.push(...messages);
  }

  take(): Event[] {
    return this.#messages.splice(0);
  }
}
