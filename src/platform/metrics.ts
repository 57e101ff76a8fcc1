/** Why a waiting invocation was refused its turn; used as metric labels. */
export const TURN_REFUSALS = ['budget', 'room', 'request', 'unserved', 'failure'] as const;
export type TurnRefusal = (typeof TURN_REFUSALS)[number];

/**
 * The methods never wait or throw. Label values name operations, outcomes and pools, and are never chosen by callers.
 */
export interface Metrics {
  /** Records an answered request. `operation` is its id, `unknown` if no route matched. */
  request(operation: string, status: number, seconds: number): void;
  /** Records an open event stream. @returns a function to call at its end */
  stream(operation: string): () => void;
  /** Records how long an invocation waited for its session, and whether it was admitted (`claimed`) or refused. */
  queued(outcome: 'claimed' | 'refused', seconds: number): void;
  /** Counts an invocation of a dead process that another process ended. */
  takenOver(): void;
  turnRefused(reason: TurnRefusal): void;
  /** Counts answers that should have resumed a paused invocation and did not; the invocation is resumed now. */
  foundForgotten(answers: number): void;
  /** Counts tool calls with an unknown outcome, which may have had effects. */
  unknownCalls(count: number): void;
  lent: (pool: 'main' | 'reads', seconds: number) => void;
  fired(latenessSeconds: number): void;
  delivered(outcome: 'delivered' | 'postponed' | 'failed'): void;
  scored(outcome: 'passed' | 'failed' | 'not_evaluated' | 'skipped', count?: number): void;
}
