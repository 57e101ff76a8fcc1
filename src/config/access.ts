import { choice, flag, list, text, textOr, url } from './setting-schemas.ts';

/** Who may call. `access-settings.ts` makes an access mode of them. */
export const ACCESS = {
  AUTH_MODE: choice(
    ['local', 'key', 'jwt'],
    'Who may call: everybody on this machine, holders of a key, or users with a token of an issuer.',
    '`key` if `RUNTIME_API_KEYS` or `RUNTIME_API_KEYS_FILE` is set, `jwt` if `JWT_ISSUER` is set, else `local`',
  ),
  ALLOW_ANONYMOUS: flag(
    false,
    'Lets mode `local` and the development UI mode listen on any address. It means "no login" and nothing else: ' +
      'requests by a name other than `localhost` need `ALLOWED_HOSTS`.',
  ),
  RUNTIME_API_KEYS: list(
    'Keys of mode `key`, of at least 16 characters each. Several are valid at once, so that keys can be replaced.',
  ),
  RUNTIME_API_KEYS_FILE: text(
    'File of keys with scopes, users, apps and expiry, as `npm run keys:create` prints them: one a line, or a JSON ' +
      'array. It is read again as it changes.',
  ),
  JWT_ISSUER: url('Issuer of the tokens of mode `jwt`.'),
  JWT_AUDIENCE: text('Audience that a token must be made for; required in mode `jwt`.'),
  JWT_JWKS_URL: url('Where the public keys of the issuer are.', 'from the discovery document of the issuer'),
  JWT_USER_CLAIM: textOr('sub', 'Claim that holds the user of a token.'),
  JWT_SCOPE_CLAIM: text(
    'Claim that holds the scopes of a token, of which ours count; a token with none of them has those of a user.',
    'every token has `invoke`, `read` and `write`',
  ),
};
