import { currentContext } from '../platform/context.ts';
import { Wakeup } from '../platform/work/poll-loop.ts';
import type { NewEvent } from '../core/event.ts';
import type { StoredEvent } from '../conversation/sessions/append-store.ts';
import type { Delta } from '../conversation/sessions/delta-store.ts';
import type { FollowedEvent } from '../conversation/sessions/event-store.ts';
import { type EventFrame, notifyListener } from './request.ts';
import type { Invocation } from './invocation.ts';

/** Maximum length of the steps that a follower has not taken yet, in characters. */
const MAX_KEPT = 1_048_576;

/** An event; or a piece of text, with the session's last sequence when it was stored. */
type LocalStep = ({ kind: 'event' } & FollowedEvent) | ({ kind: 'delta'; sequence: number } & Delta);

/**
 * An invocation that this process runs, as its follower in this process reads it: from memory, not from the database.
 * A step is added only after its commit was confirmed, so the follower never sees more than followers elsewhere. Memory
 * knows no row-level security, so only the request that started the invocation may have this object.
 */
export class LocalRun {
  /** True if the invocation was paused, so that its first events are older than this run. */
  readonly isResumed: boolean;
  /** The session's last sequence before this run; `undefined` if another process runs the invocation. */
  before: number | undefined;
  /** The invocation's row at its end; `undefined` if the answer to the last write was lost. */
  invocation: Invocation | undefined;
  /** `left`: the run ended in this process without an end of the invocation, which another process may resume. */
  #state: 'running' | 'left' | 'ended' = 'running';
  /** The steps that the follower has not taken yet, and the length of their texts. */
  #steps: LocalStep[] = [];
  #length = 0;
  #isDropped = false;
  #wake: (() => void) | undefined;

  constructor(isResumed: boolean) {
    this.isResumed = isResumed;
  }

  /** Takes the first events, as the claim stored them. */
  begin(before: number, stored: StoredEvent[], events: NewEvent[]): void {
    this.before = before;
    notifyListener(this.addFrame, stored, events);
  }

  /** Takes a frame of the run. A partial event that is not stored is ignored. */
  readonly addFrame = ({ text, event, sequence }: EventFrame): void => {
    if (sequence === undefined) return;
    this.#add({ kind: 'event', sequence, text, id: event.id ?? '', invocationId: event.invocationId ?? '' });
  };

  /** Takes a piece of streamed text. */
  readonly addDelta = ({ text, event, sequence = 0, delta: number = 0 }: EventFrame): void =>
    this.#add({ kind: 'delta', sequence, number, text, eventId: event.id ?? '' });

  end(invocation: Invocation | undefined): void {
    this.invocation = invocation;
    this.#state = 'ended';
    this.#wake?.();
  }

  /** Does nothing after {@link end}. */
  leave(): void {
    if (this.#state === 'running') this.#state = 'left';
    this.#wake?.();
  }

  /**
   * Yields the steps after a sequence as they are added, for one follower. Ends with the run, when `signal` aborts, and
   * when the follower has lost its place: another client appended an event, or the follower is too far behind.
   * @returns true if the run has ended and all its steps were yielded
   */
  async *follow(after: number, signal: AbortSignal, withText: boolean): AsyncGenerator<LocalStep, boolean, void> {
    const wakeup = new Wakeup();
    this.#wake = wakeup.wake;
    signal.addEventListener('abort', wakeup.wake);
    let place = after;
    try {
      while (!signal.aborted) {
        wakeup.reset();
        // Read before the steps, because the last steps are added before the end.
        const state = this.#state;
        for (let step = this.#take(); step && !signal.aborted; step = this.#take()) {
          const { sequence } = step;
          const isEvent = step.kind === 'event';
          if (isEvent ? sequence <= after : !withText) continue;
          // After a failover, the sequence of an event that was shown may come again, with another event.
          if (sequence !== (isEvent ? place + 1 : place)) return false;
          place = sequence;
          yield step;
        }
        if (signal.aborted || this.#isDropped) return false;
        if (state !== 'running') return state === 'ended';
        currentContext().hasRead?.();
        await wakeup.wait();
      }
      return false;
    } finally {
      signal.removeEventListener('abort', wakeup.wake);
      this.drop();
    }
  }

  /** Keeps no more steps: there is no follower any more, or it is too far behind. */
  drop(): void {
    this.#isDropped = true;
    this.#steps = [];
  }

  #add(step: LocalStep): void {
    if (this.#isDropped) return;
    this.#steps.push(step);
    this.#length += step.text.length;
    if (this.#length > MAX_KEPT) this.drop();
    this.#wake?.();
  }

  #take(): LocalStep | undefined {
    const step = this.#steps.shift();
    this.#length -= step?.text.length ?? 0;
    return step;
  }
}
