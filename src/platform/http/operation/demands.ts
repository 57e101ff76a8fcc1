import type { Scope } from './principal.ts';

/** A scope that a request needs because of what it says, beside that of its operation. */
export interface Demand {
  scope: Scope;
  /** The reason, a whole sentence for the caller. */
  because: string;
}

/** An agent other than the deployed one is the operator's to allow: prompt, tools, servers and model are theirs. */
export const overrideDemands = (harness: object | null | undefined): Demand[] =>
  Object.keys(harness ?? {}).length > 0
    ? [{ scope: 'override', because: '`harness` changes the deployed agent.' }]
    : [];

/** Where answers of models and of tools come from: as the agent is deployed, or from what is stored. */
interface SentModes {
  modelExecutionMode?: string | null | undefined;
  toolExecutionMode?: string | null | undefined;
}

/** A stored model with live tools calls them with arguments that no model chose now: those of a case, or of a tape. */
export const writtenCallDemands = ({ modelExecutionMode, toolExecutionMode }: SentModes): Demand[] =>
  modelExecutionMode !== 'live' && toolExecutionMode === 'live'
    ? [
        {
          scope: 'override',
          because: 'with a stored model and live tools what is stored says what tools are called with.',
        },
      ]
    : [];

/** The scope for the state of all users: a change of it is one of every session and, by `{app:…}`, every prompt. */
export const SHARED_STATE_DEMAND: Demand = {
  scope: 'admin',
  because: 'keys with `app:` in front are the state of all users.',
};

/** The scopes that a change of the state needs. */
export const sharedStateDemands = (delta: object | null | undefined): Demand[] =>
  Object.keys(delta ?? {}).some((name) => name.startsWith('app:')) ? [SHARED_STATE_DEMAND] : [];

/** The author of an event and its change of the state. */
interface SentEvent {
  author?: string | null | undefined;
  actions?: { stateDelta?: object | null | undefined } | null | undefined;
}

/** Events in the name of an agent are taken for its words by models and by people. */
export const eventDemands = (events: readonly SentEvent[]): Demand[] => [
  ...(events.some(({ author }) => author && author !== 'user')
    ? [{ scope: 'import' as const, because: 'an event has an author other than `user`.' }]
    : []),
  ...events.flatMap(({ actions }) => sharedStateDemands(actions?.stateDelta)),
];
