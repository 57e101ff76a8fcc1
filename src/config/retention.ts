import { z } from 'zod';
import { choice, choiceOr, documented, textOr, url, whole } from './setting-schemas.ts';

export const ARTIFACTS = {
  ARTIFACT_STORE: documented(
    z
      .string()
      .regex(/^s3:\/\/[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](?:\/[\w./-]{0,512})?$/, 's3://bucket or s3://bucket/prefix')
      .optional(),
    "Bucket for the bytes of artifacts, Amazon S3 or compatible. AWS's SDK finds its credentials: " +
      '`AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY` in the environment, else those of the machine. ' +
      'The npm package needs `npm install @aws-sdk/client-s3` for it.',
    '`s3://bucket/prefix`',
    'in the database',
  ),
  ARTIFACT_STORE_PATH_STYLE: choice(
    ['true', 'false'],
    "Whether the bucket's name stands in the path instead of the host name.",
    '`true` if `AWS_ENDPOINT_URL` is set',
  ),
  AWS_REGION: textOr('us-east-1', 'Region of the bucket.'),
  AWS_ENDPOINT_URL: url('Address of a store that is not Amazon S3.', 'Amazon S3'),
};

export const RETENTION = {
  SESSION_RETENTION_DAYS: whole(
    0,
    [0, 36_500],
    'Days after its last change after which a session is deleted; 0: never.',
  ),
  SESSION_RETENTION_COUNT: whole(0, [0, 1_000_000], 'Newest sessions of a user that an application keeps; 0: all.'),
  ARTIFACT_RETENTION_COUNT: whole(0, [0, 1_000_000], 'Newest versions of an artifact that are kept; 0: all.'),
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
    'What the [audit](security.md#audit) records: nothing; refusals, changes and runs of the agent ' +
      '(`writes`, one statement more for each); or reads as well (`all`).',
  ),
  AUDIT_RETENTION_DAYS: whole(90, [1, 3_650], 'Days for which entries are kept.'),
  AUDIT_RETENTION_COUNT: whole(
    1_000_000,
    [10_000, 1_000_000_000],
    'Entries that are kept; those of the last day always are.',
  ),
};
