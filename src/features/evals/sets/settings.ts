import { flag, type SettingValues, text } from '../../../config/setting-schemas.ts';

export const EVALUATION_SETTINGS = {
  EVALS: flag(
    false,
    'Whether [evaluation](evaluation.md) is served below `/apps` in every mode, and run in this process; ' +
      '`DEV_UI` has paths of its own.',
  ),
  EVALS_JUDGE_MODEL: text('Model that judges where a metric names none.', "the application's model"),
};

export type EvaluationSettings = SettingValues<typeof EVALUATION_SETTINGS>;
