import { flag, list, type SettingValues, whole } from '../../config/setting-schemas.ts';

export const WEBHOOK_SETTINGS = {
  WEBHOOKS: flag(false, 'Whether [webhooks](webhooks.md) are served, and sent by this process.'),
  WEBHOOKS_ALLOWED_HOSTS: list(
    'Hosts that webhooks may have: names, `*.example.com`, or an origin, which may be `http` and private.',
    'every public host, by https',
  ),
  WEBHOOKS_MAX_PER_USER: whole(10, [1, 1_000], 'Webhooks of one user.'),
};

export type WebhookSettings = SettingValues<typeof WEBHOOK_SETTINGS>;
