/** Reasons why the turn of an invocation that waits is refused: each is a label of a metric. */
export const TURN_REFUSALS = ['budget', 'room', 'request', 'unserved', 'failure'] as const;
export type TurnRefusal = (typeof TURN_REFUSALS)[number];

/**
 * Records the work of a process where metrics are collected. Every method returns at once and never throws. Callers
 * choose no label: only names of operations, outcomes and pools are labels.
 */
export interface Metrics {
  /** A request was answered. `operation` is its operation id, `unknown` where no route took it. */
  request(operation: string, status: number, seconds: number): void;
  /** A stream of server-sent events begins; what is returned is called at its end. */
  stream(operation: string): () => void;
  /** An invocation has waited for its session, in vain or not. */
  queued(outcome: 'claimed' | 'refused', seconds: number): void;
  /** The invocation of a dead process was ended. */
  takenOver(): void;
  /** The turn of an invocation that waits was refused. */
  turnRefused(reason: TurnRefusal): void;
  /** Answers were found that nothing would have brought to their paused invocation, which goes on now. */
  foundForgotten(answers: number): void;
  /** Calls of tools became unknown: they may have acted. */
  unknownCalls(count: number): void;
  /** A connection of the database was waited for. */
  lent: (pool: 'main' | 'reads', seconds: number) => void;
  /** A cronjob was fired so long after its time. */
  fired(latenessSeconds: number): void;
  /** An attempt to send a delivery to a webhook has ended. */
  delivered(outcome: 'delivered' | 'postponed' | 'failed'): void;
  /** Scores that rules ask for were made, or left out. */
  scored(outcome: 'passed' | 'failed' | 'not_evaluated' | 'skipped', count?: number): void;
}
