import { AgentError } from '../../core/errors.ts';
import { getFunctionCalls } from '../../core/content.ts';
import type { Event, NewEvent } from '../../core/event.ts';
import { cloneJson } from '../../core/exact-json.ts';

/** An event that an invocation stored before its process crashed, with its sequence number in the session. */
export interface StoredStep {
  event: NewEvent;
  sequence: number;
}

/** Agent and branch of a step (an event of the loop); the branch distinguishes parallel agents. */
interface Place {
  agent: { name: string };
  branch: string | undefined;
}

/**
 * The steps (events of the agent loop) that a crashed process has stored. The loop of the new process starts from the
 * beginning: for each step it takes the stored event instead of calling the model or tool again, per agent in order.
 * After the last stored step it continues normally.
 */
export class StoredSteps {
  /** Ids of all function calls of the session before this process resumed the invocation. */
  readonly callIds: ReadonlySet<string>;
  readonly #ids: ReadonlySet<string>;
  readonly #remaining: StoredStep[];

  /** @param history - the events before those of this invocation */
  constructor(steps: readonly StoredStep[], history: readonly Event[]) {
    const events = steps.map(({ event }) => event);
    this.#remaining = [...steps];
    this.#ids = new Set(events.map(({ id }) => id));
    this.callIds = new Set(
      [...history, ...events].flatMap(({ content }) => getFunctionCalls(content).map(({ id }) => id ?? '')),
    );
  }

  has({ id }: NewEvent): boolean {
    return this.#ids.has(id);
  }

  /**
   * Removes and returns an agent's next stored step, if there is one.
   * @throws {AgentError} if the step is not of the expected kind, because the agent's definition has changed
   */
  take(place: Place, isExpected: (event: NewEvent) => boolean): NewEvent | undefined {
    const next = this.#remaining.find((step) => isStepBy(step, place));
    const other = next ? !isExpected(next.event) && next : this.#remaining.find(({ event }) => isBefore(event, place));
    if (other) throw agentChanged(other);
    return this.takeIf(place, isExpected);
  }

  /** Removes and returns an agent's next stored step if it is of the expected kind. */
  takeIf(place: Place, isExpected: (event: NewEvent) => boolean): NewEvent | undefined {
    const index = this.#remaining.findIndex((step) => isStepBy(step, place));
    const step = this.#remaining[index];
    if (!step || !isExpected(step.event)) return undefined;
    this.#remaining.splice(index, 1);
    // The event is copied, because a tool may change its arguments, which must not change the history.
    return cloneJson(step.event);
  }

  hasAny(isExpected: (event: NewEvent) => boolean): boolean {
    return this.#remaining.some(({ event }) => isExpected(event));
  }

  get isOver(): boolean {
    return this.#remaining.length === 0;
  }

  /** @throws {AgentError} if a stored step was not used, because the agent's definition has changed */
  checkAllTaken(): void {
    const [first] = this.#remaining;
    if (first) throw agentChanged(first);
  }
}

const isStepBy = ({ event }: StoredStep, { agent, branch }: Place) =>
  event.author === agent.name && (event.branch ?? undefined) === branch;

/** True for a stored step that must come before a new step of `place`; false for steps of parallel agents. */
function isBefore(event: NewEvent, { branch }: Place): boolean {
  const [one, other] = [toPath(event.branch), toPath(branch)];
  return one.startsWith(other) || other.startsWith(one);
}

const toPath = (branch: string | null | undefined) => (branch ? `${branch}.` : '');

const agentChanged = ({ event, sequence }: StoredStep) =>
  new AgentError(
    'interrupted',
    `The invocation was interrupted: its process stopped, and the agent has changed since. It no longer makes the ` +
      `step of \`${event.author}\` that is event ${sequence} of the session.`,
  );
