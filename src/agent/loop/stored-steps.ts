import { AgentError } from '../../core/errors.ts';
import { getFunctionCalls } from '../../core/content.ts';
import type { Event, NewEvent } from '../../core/event.ts';
import type { AgentTurn } from './invocation-state.ts';
import { cloneJson } from '../../core/exact-json.ts';

/** An event that the run stored before its process died, with its sequence in the session. */
export interface StoredStep {
  event: NewEvent;
  sequence: number;
}

/** The place of an agent in the run: agents that run side by side are told apart by their branch. */
type Place = Pick<AgentTurn, 'agent' | 'branch'>;

/**
 * The steps of a run whose process died. The loop begins anew and takes them where it would make them again, each agent
 * its own in order; behind the last one it goes on live.
 */
export class StoredSteps {
  /** Ids of all calls that were made before this process. */
  readonly callIds: ReadonlySet<string>;
  readonly #ids: ReadonlySet<string>;
  readonly #left: StoredStep[];

  /** @param history - events before those of the run */
  constructor(steps: readonly StoredStep[], history: readonly Event[]) {
    const events = steps.map(({ event }) => event);
    this.#left = [...steps];
    this.#ids = new Set(events.map(({ id }) => id));
    this.callIds = new Set(
      [...history, ...events].flatMap(({ content }) => getFunctionCalls(content).map(({ id }) => id ?? '')),
    );
  }

  /** True for an event that is one of these steps. */
  has({ id }: NewEvent): boolean {
    return this.#ids.has(id);
  }

  /**
   * Takes the next step of an agent, which has to be of the kind that the loop is about to make.
   * @returns `undefined` where the agent goes on live. @throws {AgentError} where the agent has changed since
   */
  take(place: Place, isWanted: (event: NewEvent) => boolean): NewEvent | undefined {
    const next = this.#left.find((step) => isStepBy(step, place));
    const other = next ? !isWanted(next.event) && next : this.#left.find(({ event }) => isBefore(event, place));
    if (other) throw agentChanged(other);
    return this.takeIf(place, isWanted);
  }

  /** Takes the next step of an agent if it is of this kind. */
  takeIf(place: Place, isWanted: (event: NewEvent) => boolean): NewEvent | undefined {
    const index = this.#left.findIndex((step) => isStepBy(step, place));
    const step = this.#left[index];
    if (!step || !isWanted(step.event)) return undefined;
    this.#left.splice(index, 1);
    // A copy: a tool may change its arguments, and the history may not.
    return cloneJson(step.event);
  }

  /** True where a step is left of this kind. */
  hasAny(isWanted: (event: NewEvent) => boolean): boolean {
    return this.#left.some(({ event }) => isWanted(event));
  }

  /** True once every step was taken. */
  get isOver(): boolean {
    return this.#left.length === 0;
  }

  /** Checks at the end of the loop. @throws {AgentError} where a step was not taken */
  checkAllTaken(): void {
    const [first] = this.#left;
    if (first) throw agentChanged(first);
  }
}

const isStepBy = ({ event }: StoredStep, { agent, branch }: Place) =>
  event.author === agent.name && (event.branch ?? undefined) === branch;

/** True for what must have come before a live step: all but the steps of agents that run side by side with it. */
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
