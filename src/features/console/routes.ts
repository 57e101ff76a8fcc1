import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { type Config, isLaptop } from '../../config/config.ts';
import type { Feature } from '../../platform/feature/feature.ts';
import { createPages, type Pages } from '../../platform/http/operation/pages.ts';
import { checkClient, CONSOLE_SETTINGS, type ConsoleSettings } from './settings.ts';

export interface ConsoleContext {
  version: string;
  config: ConsoleSettings & Pick<Config, 'auth' | 'DEV_UI' | 'HOST'>;
  /** Names of the features that this service serves. */
  served: ReadonlySet<string>;
}

/** Matches names of files that contain a hash of the content, as written by the build tool Vite. */
const HASHED_NAME = /-[\w-]{8}\.(?:js|css)$/;

/**
 * Serves the build of `console/` under `/console/`, without credentials: the pages are static and call the API. Their
 * settings, in `config.json`, contain no secrets.
 */
function consolePages({ version, config, served }: ConsoleContext): Pages {
  const { auth, CONSOLE_CLIENT_ID, DEV_UI: devUi } = config;
  const [cronjobs, webhooks, evals] = ['cronjobs', 'webhooks', 'evals'].map((name) => served.has(name));
  const features = { devUi, cronjobs, webhooks, evals };
  const issuers = (auth.issuers ?? []).map(({ issuer, audience, userClaim, userPrefix, clientId }) => ({
    issuer,
    audience,
    userClaim,
    userPrefix,
    clientId: clientId ?? CONSOLE_CLIENT_ID,
  }));
  const asked = issuers.flatMap((each) => (each.clientId === undefined ? [] : [new URL(each.issuer).origin]));
  return createPages('Console', '/console/', {
    folder: findFolder(),
    policy: toPolicy(asked),
    texts: { 'config.json': ['application/json', JSON.stringify({ version, mode: auth.mode, issuers, features })] },
    hashedName: HASHED_NAME,
    hasViews: true,
  });
}

/**
 * The console may use files and API responses of this origin, blobs for pictures and PDFs of artifacts, and the token
 * issuers at which it logs in. Inline scripts and styles and all other origins are forbidden.
 */
const toPolicy = (issuers: readonly string[]) =>
  `default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src ${["'self'", ...issuers].join(' ')}; ` +
  "frame-src blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/** The console's build: beside this file in the npm package and the container, in `console/dist` in a clone. */
function findFolder(): string {
  const built = fileURLToPath(new URL('pages', import.meta.url));
  return existsSync(built) ? built : fileURLToPath(new URL('../../../console/dist', import.meta.url));
}

export const consoleFeature = {
  name: 'console',
  settings: { Server: CONSOLE_SETTINGS },
  checkSettings: checkClient,
  servedWith: { setting: 'CONSOLE=true', isSet: (config) => config.CONSOLE ?? isLaptop(config) },
  pages: consolePages,
} satisfies Feature<ConsoleContext>;
