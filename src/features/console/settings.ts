import { ConfigError } from '../../core/errors.ts';
import { documented, flag, type SettingValues, text } from '../../config/setting-schemas.ts';

export const CONSOLE_SETTINGS = {
  CONSOLE: documented(
    flag(false, '').removeDefault().optional(),
    'The [console](console.md) at `/console/`.',
    '`true`, `false`',
    '`true` in mode `local` on a loopback `HOST`, else `false`',
  ),
  CONSOLE_CLIENT_ID: text(
    'Public client of `JWT_ISSUER` with which the [console](console.md#login) logs in; in `JWT_ISSUERS` it is `clientId`.',
    'a token is pasted',
  ),
};

export type ConsoleSettings = SettingValues<typeof CONSOLE_SETTINGS>;

/** @throws {ConfigError} if a client has no issuer */
export function checkClient({
  CONSOLE_CLIENT_ID: clientId,
  JWT_ISSUER: issuer,
}: Pick<ConsoleSettings, 'CONSOLE_CLIENT_ID'> & { JWT_ISSUER?: string | undefined }): void {
  if (clientId === undefined || issuer !== undefined) return;
  throw new ConfigError(
    'CONSOLE_CLIENT_ID: found without JWT_ISSUER; unset it. An entry of JWT_ISSUERS has a `clientId` of its own.',
  );
}
