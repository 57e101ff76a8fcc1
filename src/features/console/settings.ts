import { documented, flag, type SettingValues, text } from '../../config/setting-schemas.ts';

export const CONSOLE_SETTINGS = {
  CONSOLE: documented(
    flag(false, '').removeDefault().optional(),
    'The [console](console.md) at `/console/`.',
    '`true`, `false`',
    '`true` in mode `local` on a loopback `HOST`, else `false`',
  ),
  CONSOLE_CLIENT_ID: text(
    'Public client of `JWT_ISSUER` with which the [console](console.md#login) logs in.',
    'a token is pasted',
  ),
};

export type ConsoleSettings = SettingValues<typeof CONSOLE_SETTINGS>;
