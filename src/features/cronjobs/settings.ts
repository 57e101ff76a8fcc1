import { flag, type SettingValues, whole } from '../../config/setting-schemas.ts';

export const CRONJOB_SETTINGS = {
  CRONJOBS: flag(false, 'Whether [cronjobs](cronjobs.md) are served, and run in this process.'),
  CRONJOBS_MAX_PER_USER: whole(100, [1, 100_000], 'Cronjobs of one user.'),
  CRONJOBS_MIN_INTERVAL_SECONDS: whole(
    30,
    [30, 86_400],
    'Shortest time between two times of a cronjob; a schedule that fires more often gets 422.',
  ),
  CRONJOBS_MAX_RUNS: whole(20, [1, 10_000], 'Runs in this process at once; others wait.'),
  CRONJOBS_MAX_RUNS_PER_USER: whole(5, [1, 10_000], 'Runs of one user at once, in all processes; others wait.'),
};

export type CronjobSettings = SettingValues<typeof CRONJOB_SETTINGS>;
