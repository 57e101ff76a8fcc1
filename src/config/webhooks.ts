import { flag, list, whole } from './setting-schemas.ts';

/** Where and how the ends of invocations and of cronjob runs are sent. */
export const WEBHOOKS = {
  WEBHOOKS: flag(false, 'Whether there are webhooks: their operations, and a sender in this process.'),
  WEBHOOKS_ALLOWED_HOSTS: list(
    'Hosts that webhooks may have: names, `*.example.com`, or an origin, which may be `http` and private.',
    'every public host, by https',
  ),
  WEBHOOKS_MAX_PER_USER: whole(10, [1, 1_000], 'Maximum number of webhooks of one user.'),
  WEBHOOKS_MAX_PENDING_PER_USER: whole(
    1_000,
    [1, 100_000],
    'Maximum number of deliveries of a user that wait in one application; further ones are kept and not sent.',
  ),
  WEBHOOKS_MAX_SENDING: whole(20, [1, 1_000], 'Maximum number of deliveries that this process sends at once.'),
  WEBHOOKS_MAX_SENDING_PER_HOST: whole(
    4,
    [1, 1_000],
    'Maximum number of deliveries that are sent to one host at once, in all processes.',
  ),
  WEBHOOKS_MAX_SENDING_PER_USER: whole(
    4,
    [1, 1_000],
    'Maximum number of deliveries of one user that are sent at once, in all processes.',
  ),
  WEBHOOKS_TIMEOUT_MS: whole(15_000, [100, 60_000], 'Maximum time of one attempt to deliver.'),
  WEBHOOKS_RETENTION_DAYS: whole(7, [1, 365], 'How many days deliveries are kept that have ended.'),
  WEBHOOKS_RETENTION_COUNT: whole(1_000, [1, 100_000], 'How many ended deliveries of each webhook are kept.'),
};
