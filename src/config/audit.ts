import { choiceOr, whole } from './setting-schemas.ts';

/** What is kept of who was allowed what. */
export const AUDIT = {
  AUDIT: choiceOr(
    'off',
    ['off', 'writes', 'all'],
    'What is kept in the table `audit_log`: nothing, refusals and who was allowed to change something or to run the ' +
      'agent (`writes`, one statement more for each), or reads as well (`all`).',
  ),
  AUDIT_RETENTION_DAYS: whole(90, [1, 3_650], 'How many days entries of the audit are kept.'),
  AUDIT_RETENTION_COUNT: whole(
    1_000_000,
    [10_000, 1_000_000_000],
    'How many entries of the audit are kept; those of the last day always are.',
  ),
  AUDIT_MAX_REFUSALS_PER_MINUTE: whole(
    60,
    [1, 10_000],
    'How many refusals of one caller, or of one address where nobody is known, each process keeps in a minute; ' +
      'of all callers ten times as many.',
  ),
};
