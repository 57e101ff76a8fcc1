import { AgentError } from '../../core/errors.ts';
import { getFunctionCalls } from '../../core/content.ts';
import type { Event, NewEvent } from '../../core/event.ts';
import type { AgentTurn } from './invocation-state.ts';
import { cloneJson } from '../../core/exact-json.ts';

/** An event that the run stored before its process crashed, with its sequence in the session. */
export interface StoredStep {
  event: NewEvent;
  sequence: number;
}

/** An agent's place in the run; the branch distinguishes parallel agents. */
type Place = Pick<AgentTurn, 'agent' | 'branch'>;

/**
 * The stored steps of a crashed run. The loop starts over and takes each step instead of making it again, per agent in
 * order; after the last one it continues live.
 */
export class StoredSteps {
  /** Ids of all calls made before this process. */
  readonly callIds: ReadonlySet<string>;
  readonly #ids: ReadonlySet<string>;
  readonly #remaining: StoredStep[];

  /** @param history - events before those of the run */
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
   * Takes an agent's next step, which must be of the kind that the loop is about to make.
   * @returns `undefined` if the agent continues live. @throws {AgentError} if the agent has changed since
   */
  take(place: Place, isExpected: (event: NewEvent) => boolean): NewEvent | undefined {
    const next = this.#remaining.find((step) => isStepBy(step, place));
    const other = next ? !isExpected(next.event) && next : this.#remaining.find(({ event }) => isBefore(event, place));
    if (other) throw agentChanged(other);
    return this.takeIf(place, isExpected);
  }

  /** Takes an agent's next step if it is of this kind. */
  takeIf(place: Place, isExpected: (event: NewEvent) => boolean): NewEvent | undefined {
    const index = this.#remaining.findIndex((step) => isStepBy(step, place));
    const step = this.#remaining[index];
    if (!step || !isExpected(step.event)) return undefined;
    this.#remaining.splice(index, 1);
    // A copy, because a tool may change its arguments but not the history.
    return cloneJson(step.event);
  }

  /** True if a step of this kind remains. */
  hasAny(isExpected: (event: NewEvent) => boolean): boolean {
    return this.#remaining.some(({ event }) => isExpected(event));
  }

  get isOver(): boolean {
    return this.#remaining.length === 0;
  }

  /** @throws {AgentError} if a step was not taken */
  checkAllTaken(): void {
    const [first] = this.#remaining;
    if (first) throw agentChanged(first);
  }
}

const isStepBy = ({ event }: StoredStep, { agent, branch }: Place) =>
  event.author === agent.name && (event.branch ?? undefined) === branch;

/** True for a step that must precede a live step at `place`: any except those of parallel agents. */
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
