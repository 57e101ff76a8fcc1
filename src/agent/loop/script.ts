import {
  type Content,
  type FunctionCall,
  getFunctionCalls,
  getFunctionResponses,
  getParts,
} from '../../core/content.ts';
import { AgentError } from '../../core/errors.ts';
import { type Event, isSteer, type NewEvent } from '../../core/event.ts';
import { cloneJson } from '../../core/exact-json.ts';
import { CONFIRMATION_CALL } from '../../core/names.ts';

/*
 * The script of an invocation: its stored steps (events of the agent loop) in order, and what made each of them. It has
 * two readers. A process that goes on with the invocation of a crashed one takes whole steps: what made them is neither
 * called nor built again. A replay takes what models, tools and hooks answered; its loop makes the steps anew, because
 * the replay compares them with those of the script.
 */

/** A stored event of an invocation. */
export interface Step {
  /** Position among the invocation's events, from 0; prompts count too. */
  place: number;
  /** Sequence in the session, from 1. */
  sequence: number;
  event: NewEvent;
}

/** What makes a step. `confirmation`: the loop asks a person. `tools`: the calls of one answer of a model. */
export type Maker = 'summary' | 'beforeAgent' | 'model' | 'tools' | 'confirmation' | 'afterAgent';

const MAKERS: Record<Exclude<Maker, 'model'>, (event: Event) => boolean> = {
  summary: ({ actions }) => actions?.compaction != null,
  beforeAgent: (event) => isOfHook(event, 'beforeAgent'),
  tools: ({ content }) => getFunctionResponses(content).length > 0,
  confirmation: (event) => listConfirmationRequests(event).length > 0,
  afterAgent: (event) => isOfHook(event, 'afterAgent'),
};

/** True if `maker` made the event, even if it is an error. An event of no other maker is the model's. */
export const isMadeBy = (maker: Maker, event: Event): boolean =>
  maker === 'model' ? !Object.values(MAKERS).some((isMade) => isMade(event)) : MAKERS[maker](event);

/** Member of `partMetadata` in a content that a hook supplied: the kind of the hook. */
const HOOK = 'hook';

export const markOfHook = (content: Content, hook: 'beforeAgent' | 'afterAgent'): Content => ({
  role: 'model',
  parts: getParts(content).map((part) => ({ ...part, partMetadata: { ...part.partMetadata, [HOOK]: hook } })),
});

/** Of an event without content but with a state change only a hook can be the maker; which one is not known. */
function isOfHook({ content, errorCode, actions }: Event, hook: 'beforeAgent' | 'afterAgent'): boolean {
  if (!content) return !errorCode && !actions?.compaction && Object.keys(actions?.stateDelta ?? {}).length > 0;
  return getParts(content).some(({ partMetadata }) => partMetadata?.[HOOK] === hook);
}

/**
 * The calls with which the loop asks a person. They are marked as long-running: a call of this name that a model makes
 * is no request, because the model must not choose what a person's approval applies to.
 */
export function listConfirmationRequests({ author, content, longRunningToolIds }: Event): FunctionCall[] {
  if (author === 'user') return [];
  const own = new Set(longRunningToolIds);
  return getFunctionCalls(content).filter(({ name, id }) => name === CONFIRMATION_CALL && id && own.has(id));
}

/** The id of the call that a person is asked to confirm. */
export const getConfirmedId = ({ args }: Pick<FunctionCall, 'args'>): string | undefined =>
  (args?.['originalFunctionCall'] as { id?: string } | undefined)?.id;

/** `runtimeEventIds`: events that the runtime made. An invocation id does not tell, because clients may write any. */
interface Session {
  events: Event[];
  runtimeEventIds: ReadonlySet<string>;
}

/** The events with an invocation's id. `isOwn`: the runtime made the event. */
export const listSteps = ({ events, runtimeEventIds }: Session, invocationId: string): (Step & { isOwn: boolean })[] =>
  events
    .flatMap((event, index) => (event.invocationId === invocationId ? [{ event, sequence: index + 1 }] : []))
    .map(({ event, sequence }, place) => ({
      place,
      sequence,
      event: event as NewEvent,
      isOwn: runtimeEventIds.has(event.id ?? ''),
    }));

/** Agent and branch of a step; the branch distinguishes parallel agents. */
interface Place {
  agent: { name: string };
  branch: string | undefined;
}

export class Script {
  /** Ids of all function calls that the session had when the script was read. */
  readonly callIds: ReadonlySet<string>;
  readonly #ids: ReadonlySet<string>;
  readonly #remaining: Step[];
  /** Messages that the invocation took, by the id of the step before them. */
  readonly #messages = new Map<string, NewEvent[]>();

  /** @param history - the events before those of the script */
  constructor(steps: readonly Step[], history: readonly Event[] = []) {
    const events = steps.map(({ event }) => event);
    this.#remaining = steps.filter(({ event }) => !isSteer(event));
    let step = '';
    for (const event of events)
      if (!isSteer(event)) step = event.id;
      else this.#messages.set(step, [...(this.#messages.get(step) ?? []), event]);
    this.#ids = new Set(events.map(({ id }) => id));
    this.callIds = new Set(
      [...history, ...events].flatMap(({ content }) => getFunctionCalls(content).map(({ id }) => id ?? '')),
    );
  }

  has({ id }: NewEvent): boolean {
    return this.#ids.has(id);
  }

  /** The messages that were stored behind a step. */
  messagesBehind({ id }: NewEvent): NewEvent[] {
    return this.#messages.get(id) ?? [];
  }

  /**
   * Takes the next step of an agent, if there is one.
   * @throws {AgentError} if another maker made it, because the agent's definition has changed
   */
  take(place: Place, maker: Maker): NewEvent | undefined {
    const next = this.#remaining.find((step) => isStepBy(step, place));
    const other = next
      ? !isMadeBy(maker, next.event) && next
      : this.#remaining.find(({ event }) => isBefore(event, place));
    if (other) throw agentChanged(other);
    return this.takeIf(place, maker);
  }

  /** Takes the next step of an agent if this maker made it. */
  takeIf(place: Place, maker: Maker): NewEvent | undefined {
    const step = this.#remaining.find((each) => isStepBy(each, place));
    if (!step || !isMadeBy(maker, step.event)) return undefined;
    this.#remove(step);
    // The event is copied, because a tool may change its arguments, which must not change the history.
    return cloneJson(step.event);
  }

  /** Takes the next step of this maker, whatever the agent did before it. */
  takeNext(agentName: string, maker: Maker): Step | undefined {
    const step = this.#remaining.find(({ event }) => event.author === agentName && isMadeBy(maker, event));
    if (step) this.#remove(step);
    return step;
  }

  hasStep(place: Place): boolean {
    return this.#remaining.some((step) => isStepBy(step, place));
  }

  hasAny(isMeant: (event: NewEvent) => boolean): boolean {
    return this.#remaining.some(({ event }) => isMeant(event));
  }

  get isOver(): boolean {
    return this.#remaining.length === 0;
  }

  /** @throws {AgentError} if the agent did not take all stored steps, because its definition has changed */
  checkAllTaken(): void {
    const [first] = this.#remaining;
    if (first) throw agentChanged(first);
  }

  #remove(step: Step): void {
    this.#remaining.splice(this.#remaining.indexOf(step), 1);
  }
}

const isStepBy = ({ event }: Step, { agent, branch }: Place) =>
  event.author === agent.name && (event.branch ?? undefined) === branch;

/** True for a step that must come before a new step of `place`; false for steps of parallel agents. */
function isBefore(event: NewEvent, { branch }: Place): boolean {
  const [one, other] = [toPath(event.branch), toPath(branch)];
  return one.startsWith(other) || other.startsWith(one);
}

const toPath = (branch: string | null | undefined) => (branch ? `${branch}.` : '');

const agentChanged = ({ event, sequence }: Step) =>
  new AgentError(
    'interrupted',
    `The invocation was interrupted: its process stopped, and the agent has changed since. It no longer makes the ` +
      `step of \`${event.author}\` that is event ${sequence} of the session.`,
  );
