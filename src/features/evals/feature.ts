import type { Config } from '../../config/config.ts';
import { deleteSession } from '../../conversation/sessions/session-store.ts';
import { runAsSystem } from '../../platform/context.ts';
import type { DatabasePool } from '../../platform/db/database.ts';
import { evalSessionScores, evalVerdicts, sessionVerdicts } from '../../platform/db/schema/schema.ts';
import type { Counts, Feature, User } from '../../platform/feature/feature.ts';
import { evalCasePath, evalRunPath, evalSetPath } from '../../platform/http/operation/parameters.ts';
import { adkEvalOperations, EVAL_ALIASES } from './adk-routes.ts';
import { countEvaluations, deleteEvaluations, deleteRunCases, deleteSessionCases } from './erase-store.ts';
import { evalMetricSchema } from './metrics/criteria.ts';
import { runScoreRules } from './online/score-worker.ts';
import { evalCaseResultSchema, evalRunSchema } from './runs/eval-run.ts';
import { runEvalCases } from './runs/run-worker.ts';
import { forgetOldRuns } from './runs/eval-run-store.ts';
import type { EvalContext } from './sets/context.ts';
import { evalCaseSchema, evalSetSchema } from './sets/eval-set.ts';
import { EVALUATION_SETTINGS, type EvaluationSettings } from './sets/settings.ts';
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

/** Maximum number of stored runs of an evaluation set. */
const MAX_KEPT = 1_000;

export interface Context extends EvalContext {
  config: EvaluationSettings & Pick<Config, 'DEV_UI' | 'RUN_RETENTION_DAYS'>;
}

/**
 * Also deletes the sessions in which evaluation runs replayed copies of the user's data. Row-level security is off
 * here, because other users own some of these evaluation runs.
 */
const eraseCopies = ({ database }: { database: DatabasePool }, user: User): Promise<Counts> =>
  runAsSystem(() =>
    database.transaction(async (tx) => {
      const { count, sessions } = await deleteRunCases(tx, user);
      for (const key of sessions) await deleteSession(tx, key);
      return count > 0 ? { eval_run_cases: count } : deleteEvaluations(tx, user);
    }),
  );

export const evalFeature = {
  name: 'evals',
  settings: { Evaluation: EVALUATION_SETTINGS },
  servedWith: { setting: 'EVALS=true', isSet: ({ EVALS }) => EVALS },
  operations: appEvalOperations,
  devOperations: [...evalOperations, ...adkEvalOperations],
  aliases: EVAL_ALIASES,
  schemas: {
    EvalCase: evalCaseSchema,
    EvalCaseResult: evalCaseResultSchema,
    EvalMetric: evalMetricSchema,
    EvalRun: evalRunSchema,
    EvalSet: evalSetSchema,
  },
  parameters: {
    EvalSetId: evalSetPath.shape.evalSetId,
    EvalId: evalCasePath.shape.evalId,
    EvalRunId: evalRunPath.shape.runId,
  },
  workers: [
    (context) => (context.config.DEV_UI || context.config.EVALS ? runEvalCases(context) : undefined),
    (context) => (context.config.EVALS ? runScoreRules(context) : undefined),
  ],
  sweeps: [
    {
      group: 'minutely',
      name: 'deleting old evaluation runs',
      run: ({ database, config }) => forgetOldRuns(database.db, { days: config.RUN_RETENTION_DAYS, count: MAX_KEPT }),
    },
  ],
  userTables: [{ table: evalSessionScores }, { table: evalVerdicts }, { table: sessionVerdicts }],
  userCopies: [{ count: (db, user) => runAsSystem(() => countEvaluations(db, user)), erase: eraseCopies }],
  forgetSessions: async (_context, tx, keys, { copiesToo }) => {
    if (!copiesToo) return;
    for (const key of keys) {
      const repeated = await deleteSessionCases(tx, key);
      for (const copy of repeated) await deleteSession(tx, copy);
    }
  },
} satisfies Feature<Context>;
