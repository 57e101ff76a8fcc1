import { isResultArtifact } from '../../../core/names.ts';
import type { Scope } from './principal.ts';

/** A scope that a request requires because of its content, in addition to its operation's scope. */
export interface Demand {
  scope: Scope;
  /** Why the scope is required: a full sentence of the error message. */
  because: string;
}

/** Prompt, tools, servers and model are the operator's, so changing them needs the operator's permission. */
export const overrideDemands = (harness: object | null | undefined): Demand[] =>
  Object.keys(harness ?? {}).length > 0
    ? [{ scope: 'override', because: '`harness` changes the deployed agent.' }]
    : [];

/** Where a replay or evaluation gets the responses of models and tools from: live calls, or stored data. */
interface SentModes {
  modelExecutionMode?: string | null | undefined;
  toolExecutionMode?: string | null | undefined;
}

/** With a stored model, live tools are called with arguments from a case or a recording, which no model chose now. */
export const writtenCallDemands = ({ modelExecutionMode, toolExecutionMode }: SentModes): Demand[] =>
  modelExecutionMode !== 'live' && toolExecutionMode === 'live'
    ? [
        {
          scope: 'override',
          because: 'with a stored model and live tools what is stored says what tools are called with.',
        },
      ]
    : [];

/** Changing an application's shared state affects all users' sessions and, by `{app:…}`, every prompt. */
export const SHARED_STATE_DEMAND: Demand = {
  scope: 'admin',
  because: 'keys with `app:` in front are the state of all users.',
};

export const sharedStateDemands = (delta: object | null | undefined): Demand[] =>
  Object.keys(delta ?? {}).some((name) => name.startsWith('app:')) ? [SHARED_STATE_DEMAND] : [];

interface SentEvent {
  author?: string | null | undefined;
  actions?: { stateDelta?: object | null | undefined } | null | undefined;
}

/** Models and people trust events in an agent's name as the agent's words, so writing them needs a scope. */
export const eventDemands = (events: readonly SentEvent[]): Demand[] => [
  ...(events.some(({ author }) => author && author !== 'user')
    ? [{ scope: 'import' as const, because: 'an event has an author other than `user`.' }]
    : []),
  ...events.flatMap(({ actions }) => sharedStateDemands(actions?.stateDelta)),
];

/** What is written under the name of a kept function response, a model reads as what its tool gave. */
export const artifactDemands = (name: string | null | undefined): Demand[] =>
  isResultArtifact(name) ? [{ scope: 'import', because: '`tool-results/` begins the names of results of tools.' }] : [];
