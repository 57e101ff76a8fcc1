import { evalCaseOperations } from './case-routes.ts';
import { evalResultOperations } from './result-routes.ts';
import { evalFileOperations } from './file-routes.ts';
import { judgingOperations } from './judging-routes.ts';
import { evalRunOperations } from './run-routes.ts';
import { evalSessionOperations } from './session-routes.ts';
import { evalSetOperations } from './set-routes.ts';
import { waitingRunOperations } from './waiting-run-routes.ts';

/** Evaluation, in development UI mode only: sets, cases, results, metrics. */
export const evalOperations = [
  ...evalSetOperations,
  ...evalCaseOperations,
  ...waitingRunOperations,
  ...evalRunOperations,
  ...judgingOperations,
  ...evalFileOperations,
  ...evalSessionOperations,
  ...evalResultOperations,
];
