import { existsSync, readFileSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import express, { type RequestHandler, Router } from 'express';
import { RequestRefusedError } from '../../platform/http/operation/request-errors.ts';
import { CODE_THEMES } from './code-theme.ts';
import { toOfflinePage } from './offline-page.ts';

/** Where the UI lives; the page's base is absolute, so that every one of its addresses finds its files. */
const HOME = '/dev-ui/';
const ICON_FONT = `${HOME}fonts/icons.woff2`;

/**
 * Allows what the UI needs and nothing else: files and answers of this origin, a WebAssembly module that draws graphs,
 * styles that Angular writes into the page, media that a conversation carries as data. Nothing a conversation shows
 * can call out.
 */
const PAGE_POLICY =
  "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; " +
  "font-src 'self' data:; " +
  "img-src 'self' data: blob:; media-src 'self' data: blob:; connect-src 'self'; worker-src 'self' blob:; " +
  "frame-src 'self' data: blob:; frame-ancestors 'none'; base-uri 'self'; form-action 'none'";

/** Without a `backendUrl` the API is where the page came from; without `telemetry` newer UIs ask on each load. */
const RUNTIME_CONFIG = {
  backendUrl: '',
  telemetry: false,
  // Otherwise the name of another product stands over our version; the UI wants both or none.
  logo: {
    text: 'Agent runtime',
    imageUrl: "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg'><circle cx='50%25' cy='50%25' r='9'/></svg>",
  },
};
/** ADK's own: the logo to show instead of the built-in one. */
const UI_CONFIG = { logo_text: null, logo_image_url: null };

/** File names with a hash of their content, as Angular's builder writes them: what they hold never changes. */
const HASHED_NAME = /-[A-Z0-9]{8}\.(?:js|css)$/;

/** The development UI: the prebuilt ADK Web UI under `/dev-ui/`, to which `/` leads, without credentials. */
export function devUiPages(): RequestHandler[] {
  const folder = findBrowserFolder();
  const page = toOfflinePage(readFileSync(join(folder, 'index.html'), 'utf8'), HOME, ICON_FONT);
  const router = Router({ caseSensitive: true, strict: true });
  router.get(['/', '/dev-ui'], redirectHome);
  router.get([HOME, `${HOME}index.html`], sendText('text/html; charset=utf-8', page, PAGE_POLICY));
  router.get(`${HOME}config`, sendText('application/json', JSON.stringify(UI_CONFIG)));
  router.get(`${HOME}assets/config/runtime-config.json`, sendText('application/json', JSON.stringify(RUNTIME_CONFIG)));
  for (const [name, styles] of Object.entries(CODE_THEMES))
    router.get(HOME + name, sendText('text/css; charset=utf-8', styles));
  router.get(ICON_FONT, sendIconFont());
  router.all(['/', '/dev-ui', `${HOME}{*path}`], onlyRead);
  router.use(HOME, express.static(folder, { index: false, redirect: false, setHeaders }));
  return [router];
}

/**
 * The files of the UI: beside this file in the package and the container, where `npm run build` has put them; in a
 * clone those of the development dependency, which exports its server only and needs 18 packages for that. Each of
 * them is replaced by an empty one in package.json `overrides`, which only a clone heeds.
 */
function findBrowserFolder(): string {
  const built = fileURLToPath(new URL('browser', import.meta.url));
  if (existsSync(built)) return built;
  const server = createRequire(import.meta.url).resolve('@google/adk-devtools');
  return join(dirname(server), '..', 'browser');
}

/** The font of the UI's icons, which its package loads from elsewhere. */
function sendIconFont(): RequestHandler {
  const path = createRequire(import.meta.url).resolve(
    '@fontsource/material-symbols-outlined/files/material-symbols-outlined-latin-400-normal.woff2',
  );
  // By name below a root: of a whole path every directory with a dot in front would make it a 404.
  const options = { root: dirname(path), headers: { 'cache-control': 'no-cache' } };
  return (_request, response) => response.sendFile(basename(path), options);
}

/** The query stays: a link to a session is `/dev-ui?app=…&session=…`. */
const redirectHome: RequestHandler = (request, response) => {
  const [, query] = request.url.split(/(?=\?)/);
  response.writeHead(307, { location: HOME + (query ?? '') }).end();
};

function sendText(type: string, text: string, policy?: string): RequestHandler {
  const body = Buffer.from(text);
  return (_request, response) => {
    if (policy !== undefined) response.setHeader('content-security-policy', policy);
    response.writeHead(200, { 'content-type': type, 'content-length': body.length }).end(body);
  };
}

const onlyRead: RequestHandler = ({ method }, _response, next) => {
  if (method === 'GET' || method === 'HEAD') return next();
  throw new RequestRefusedError('method_not_allowed', 'Method Not Allowed', { allow: 'GET, HEAD' });
};

/** Files whose name changes with their content are kept for a year, the others are compared each time. */
function setHeaders(response: ServerResponse, path: string): void {
  response.setHeader('cache-control', HASHED_NAME.test(path) ? 'public, max-age=31536000, immutable' : 'no-cache');
}
