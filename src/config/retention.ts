import { choiceOr, whole } from './setting-schemas.ts';

export const RETENTION = {
  RUN_RETENTION_DAYS: whole(
    90,
    [1, 3_650],
    'Days for which runs of cronjobs, and of evaluation with their sessions, are kept.',
  ),
};

export const AUDIT = {
  AUDIT: choiceOr(
    'off',
    ['off', 'writes', 'all'],
    'What the [audit](hardening.md#audit) records: nothing; refusals, changes and runs of the agent ' +
      '(`writes`, one statement more for each); or reads as well (`all`).',
  ),
  AUDIT_RETENTION_DAYS: whole(90, [1, 3_650], 'Days for which entries are kept.'),
  AUDIT_RETENTION_COUNT: whole(
    1_000_000,
    [10_000, 1_000_000_000],
    'Entries that are kept; those of the last day always are.',
  ),
};
