import { evalCaseOperations } from './cases/routes.ts';
import { onlineOperations } from './online/routes.ts';
import { judgingOperations } from './runs/judging-routes.ts';
import { evalResultOperations } from './runs/result-routes.ts';
import { evalRunOperations } from './runs/routes.ts';
import { scoringOperations } from './scoring/routes.ts';
import { evalSetOperations } from './sets/routes.ts';

/** Evaluation at the paths of ADK's development server, in development UI mode only. */
export const evalOperations = [
  ...evalSetOperations,
  ...evalCaseOperations,
  ...scoringOperations,
  ...evalRunOperations,
  ...evalResultOperations,
  ...judgingOperations,
];

/** True of what has an older spelling of ADK alone, as the specification has it. */
const isOldSpelling = ({ path }: { path: string }) => path.replaceAll(/\{\w+\}/g, '').includes('_');

/**
 * The same where people log in: below `/apps`, for those who may `read` or `develop`, each of whom sees their own sets
 * and runs.
 */
const copiesBelowApps = evalOperations
  .filter((each) => !isOldSpelling(each))
  .map((each): (typeof evalOperations)[number] => ({
    ...each,
    isCopy: true,
    path: each.path.replace(/^\/dev/, ''),
    // Only ADK's own paths have its clients.
    wire: undefined,
    area: 'Agent execution',
    scope: each.method === 'get' ? 'read' : 'develop',
  }));

/** Evaluation below `/apps`: what the development server has too, and scores of sessions as users have them. */
export const appEvalOperations = [...copiesBelowApps, ...onlineOperations];
