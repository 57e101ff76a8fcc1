import { evalCaseOperations } from './cases/routes.ts';
import { evalResultOperations } from './runs/result-routes.ts';
import { evalFileOperations } from './sets/file-routes.ts';
import { judgingOperations } from './runs/judging-routes.ts';
import { evalRunOperations } from './runs/routes.ts';
import { evalSessionOperations } from './scoring/routes.ts';
import { evalSetOperations } from './sets/routes.ts';
import { waitingRunOperations } from './runs/waiting-run-routes.ts';

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
