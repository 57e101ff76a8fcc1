import { evalCaseOperations } from './cases/routes.ts';
import { onlineOperations } from './online/routes.ts';
import { judgingOperations } from './runs/judging-routes.ts';
import { evalResultOperations } from './runs/result-routes.ts';
import { evalRunOperations } from './runs/routes.ts';
import { scoringOperations } from './scoring/routes.ts';
import { evalSetOperations } from './sets/routes.ts';

/** Evaluation operations at the paths of ADK's development server, available only if the development UI is enabled. */
export const evalOperations = [
  ...evalSetOperations,
  ...evalCaseOperations,
  ...scoringOperations,
  ...evalRunOperations,
  ...evalResultOperations,
  ...judgingOperations,
];

/** True if the operation has only one of ADK's older paths, which contain underscores. */
const isOldSpelling = ({ path }: { path: string }) => path.replaceAll(/\{\w+\}/g, '').includes('_');

/** Operations below `/apps` also exist without the development UI, and show callers only their own sets and runs. */
const copiesBelowApps = evalOperations
  .filter((each) => !isOldSpelling(each))
  .map((each): (typeof evalOperations)[number] => ({
    ...each,
    isCopy: true,
    path: each.path.replace(/^\/dev/, ''),
    // Without the mark of ADK's wire (`wire`), because ADK's clients use only ADK's own paths.
    wire: undefined,
    area: 'Agent execution',
    scope: each.method === 'get' ? 'read' : 'develop',
  }));

export const appEvalOperations = [...copiesBelowApps, ...onlineOperations];
