import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { createPages, type Pages } from '../../platform/http/pages.ts';

/** Settings that the console needs before a login. They contain no secrets. */
interface ConsoleOptions {
  version: string;
  auth: { mode: 'local' | 'key' } | { mode: 'jwt'; issuer: string; audience: string | undefined; userClaim: string };
  /** OAuth client id for the login. `undefined`: the person pastes a token. */
  clientId: string | undefined;
  /** Which optional features this service has enabled. */
  features: { devUi: boolean; cronjobs: boolean; webhooks: boolean; evals: boolean };
}

/** Matches names of files that contain a hash of the content, as written by the build tool Vite. */
const HASHED_NAME = /-[\w-]{8}\.(?:js|css)$/;

/** Serves the build of `console/` under `/console/`, without credentials: the pages are static and call the API. */
export function consolePages({ version, auth, clientId, features }: ConsoleOptions): Pages {
  const login =
    auth.mode === 'jwt'
      ? { mode: auth.mode, issuer: auth.issuer, audience: auth.audience, userClaim: auth.userClaim, clientId }
      : { mode: auth.mode };
  return createPages('Console', '/console/', {
    folder: findFolder(),
    policy: toPolicy(auth.mode === 'jwt' && clientId !== undefined ? new URL(auth.issuer).origin : ''),
    texts: { 'config.json': ['application/json', JSON.stringify({ version, ...login, features })] },
    hashedName: HASHED_NAME,
    hasViews: true,
  });
}

/**
 * The console may use files and API responses of this origin, blobs for pictures and PDFs of artifacts, and the token
 * issuer for the login. Inline scripts and styles and all other origins are forbidden.
 */
const toPolicy = (issuer: string) =>
  `default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self' ${issuer}; ` +
  "frame-src blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/** The console's build: beside this file in the npm package and the container, in `console/dist` in a clone. */
function findFolder(): string {
  const built = fileURLToPath(new URL('pages', import.meta.url));
  return existsSync(built) ? built : fileURLToPath(new URL('../../../console/dist', import.meta.url));
}
