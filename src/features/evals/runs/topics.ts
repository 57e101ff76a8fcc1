/** Published when there is something new for the workers: a run, or a place for one of its cases. */
export const EVALS_TOPIC = 'evals';
/** Published when a run was cancelled. */
export const CANCEL_TOPIC = 'evals:cancel';

/** The topic that is published when cases of a run ended, or the run itself. */
export const runTopic = (runId: string) => `eval:${runId}`;
