import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { createPages, type Pages } from '../../platform/http/pages.ts';

/** Facts that the console needs before anyone has logged in; none of them is a secret. */
interface ConsoleOptions {
  version: string;
  auth: { mode: 'local' | 'key' } | { mode: 'jwt'; issuer: string; audience: string | undefined; userClaim: string };
  /** The client of the issuer [a token is pasted]. */
  clientId: string | undefined;
  /** The optional operations that there are. */
  features: { devUi: boolean; cronjobs: boolean; webhooks: boolean; evals: boolean };
}

/** File names with a hash of their content, as Vite writes them. */
const HASHED_NAME = /-[\w-]{8}\.(?:js|css)$/;

/** The console: the committed build of `console/` under `/console/`, without credentials. It calls the API alone. */
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
 * Allows the files and answers of this origin, and what it has loaded as data: pictures and PDF of artifacts. No inline
 * script, no inline style, and nobody else but the issuer that a login asks.
 */
const toPolicy = (issuer: string) =>
  `default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self' ${issuer}; ` +
  "frame-src blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/** In the package and the container the build is beside this file, where `npm run build` has put it. */
function findFolder(): string {
  const built = fileURLToPath(new URL('pages', import.meta.url));
  return existsSync(built) ? built : fileURLToPath(new URL('../../../console/dist', import.meta.url));
}
