import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { createPages, type Pages } from '../../platform/http/pages.ts';

/** What the console needs before a login. None of it is secret. */
interface ConsoleOptions {
  version: string;
  auth: { mode: 'local' | 'key' } | { mode: 'jwt'; issuer: string; audience: string | undefined; userClaim: string };
  /** OAuth client id for the login. Absent: the user pastes a token. */
  clientId: string | undefined;
  /** Which optional operations this service has. */
  features: { devUi: boolean; cronjobs: boolean; webhooks: boolean; evals: boolean };
}

/** File names with a hash of their content, as Vite writes them. */
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
 * Content security policy. Allows files and API answers of this origin, blobs for pictures and PDFs of artifacts, and
 * requests to the issuer for the login. No inline script or style, no other origin.
 */
const toPolicy = (issuer: string) =>
  `default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self' ${issuer}; ` +
  "frame-src blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/** Finds the build: beside this file in the package and the container, in `console/dist` in a checkout. */
function findFolder(): string {
  const built = fileURLToPath(new URL('pages', import.meta.url));
  return existsSync(built) ? built : fileURLToPath(new URL('../../../console/dist', import.meta.url));
}
