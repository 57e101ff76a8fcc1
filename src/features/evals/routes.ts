import { evalCaseOperations } from './cases/routes.ts';
import { judgingOperations } from './runs/judging-routes.ts';
import { evalResultOperations } from './runs/result-routes.ts';
import { evalRunOperations } from './runs/routes.ts';
import { scoringOperations } from './scoring/routes.ts';
import { evalSetOperations } from './sets/routes.ts';

/** Evaluation, in development UI mode only. */
export const evalOperations = [
  ...evalSetOperations,
  ...evalCaseOperations,
  ...scoringOperations,
  ...evalRunOperations,
  ...evalResultOperations,
  ...judgingOperations,
];
