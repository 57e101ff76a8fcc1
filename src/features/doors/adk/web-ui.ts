import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type RequestHandler, Router } from 'express';
import { createPages, type Pages } from '../../../platform/http/pages.ts';

/** Path of the UI: a single page with relative URLs. */
const HOME = '/dev-ui/';
const ICON_FONT = 'fonts/icons.woff2';

/**
 * Content security policy that allows only what the UI needs: files and responses of this origin, a WebAssembly module
 * that draws graphs, styles that Angular writes into the page, and media that a conversation contains as data. Content
 * of a conversation cannot call other servers.
 */
const PAGE_POLICY =
  "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; " +
  "font-src 'self' data:; " +
  "img-src 'self' data: blob:; media-src 'self' data: blob:; connect-src 'self'; worker-src 'self' blob:; " +
  "frame-src 'self' data: blob:; frame-ancestors 'none'; base-uri 'self'; form-action 'none'";

/**
 * Without a `backendUrl` the API is at the root of the host that served the page; without `telemetry` newer UIs ask for
 * consent on each load.
 */
const toRuntimeConfig = (publicUrl: string | undefined) => ({
  backendUrl: publicUrl !== undefined && new URL(publicUrl).pathname !== '/' ? publicUrl : '',
  telemetry: false,
  // Without a logo the UI shows another product's name over our version; it requires both members or none.
  logo: {
    text: 'Agent runtime',
    imageUrl:
      "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg'><circle cx='50%25' cy='50%25' r='9' fill='%237c8cff'/></svg>",
  },
});
/** ADK's configuration file: the logo to show instead of the built-in one. */
const UI_CONFIG = { logo_text: null, logo_image_url: null };

/** File names with a content hash, as Angular's builder writes them; such files never change. */
const HASHED_NAME = /-[A-Z0-9]{8}\.(?:js|css)$/;

/**
 * The prebuilt ADK Web UI under `/dev-ui/`, without credentials.
 * @param publicUrl - public address of the service; default: the origin of the page
 */
export function devUiPages(publicUrl?: string): Pages {
  const pages = createPages('Development UI', HOME, {
    folder: findBrowserFolder(),
    policy: PAGE_POLICY,
    toPage: (html) => toOfflinePage(html, ICON_FONT),
    texts: {
      config: ['application/json', JSON.stringify(UI_CONFIG)],
      'assets/config/runtime-config.json': ['application/json', JSON.stringify(toRuntimeConfig(publicUrl))],
      ...CODE_THEMES,
    },
    hashedName: HASHED_NAME,
  });
  const router = Router({ caseSensitive: true, strict: true });
  router.get(HOME + ICON_FONT, sendIconFont());
  router.use(pages.handler);
  return { ...pages, handler: router };
}

/**
 * Finds the files of the UI. In the package and the container `npm run build` has put them beside this file. A clone
 * uses those of the development dependency, which exports only its server and needs 18 packages for that; each of them
 * is replaced by an empty one in package.json `overrides`, which apply in a clone only.
 */
function findBrowserFolder(): string {
  const built = fileURLToPath(new URL('browser', import.meta.url));
  if (existsSync(built)) return built;
  const server = createRequire(import.meta.url).resolve('@google/adk-devtools');
  return join(dirname(server), '..', 'browser');
}

/**
 * Serves the font of the UI's icons, which the UI's package loads from another origin; found like the files of the UI.
 */
function sendIconFont(): RequestHandler {
  const built = fileURLToPath(new URL('icons.woff2', import.meta.url));
  const name = '@fontsource/material-symbols-outlined/files/material-symbols-outlined-latin-400-normal.woff2';
  const path = existsSync(built) ? built : createRequire(import.meta.url).resolve(name);
  // Sent by name below a root, because Express answers 404 for a full path with any directory that starts with a dot.
  const options = { root: dirname(path), headers: { 'cache-control': 'no-cache' } };
  return (_request, response) => response.sendFile(basename(path), options);
}

/** `@font-face` rules; all those in the prebuilt page load from another origin. */
const FONT_FACE = /@font-face\s*\{[^}]*\}/g;
const PRECONNECT = /\s*<link rel="preconnect"[^>]*>/g;
/** Angular loads its style sheet through an inline event handler, which the page's policy forbids. */
const DEFERRED_STYLES = / media="print" onload="this\.media='all'"/g;

/** Text fonts that are usually installed. */
const SANS = ['Roboto', 'Segoe UI', 'Helvetica Neue', 'Arial', 'Liberation Sans', 'DejaVu Sans'];
const MONO = ['Roboto Mono', 'Menlo', 'Consolas', 'Liberation Mono', 'DejaVu Sans Mono'];
/** Text fonts that the UI requests, often without a fallback. */
const TEXT_FONTS: [family: string, local: string[]][] = [
  ['Google Sans', SANS],
  ['Roboto', SANS],
  ['Google Sans Mono', MONO],
  ['Roboto Mono', MONO],
];
/** The UI writes icons as words (`more_vert`) in one of these fonts, whose ligatures draw the icon. */
const ICON_FONTS = ['Material Icons', 'Material Symbols Outlined'];

/**
 * Makes the prebuilt page work without a network: it uses local fonts and those of this server, has no inline handlers,
 * and gets a base for its relative URLs.
 */
function toOfflinePage(html: string, iconFont: string): string {
  return html
    .replaceAll(FONT_FACE, '')
    .replaceAll(PRECONNECT, '')
    .replaceAll(DEFERRED_STYLES, '')
    .replace(/<base href="[^"]*">/, '<base href="./">')
    .replace('</head>', `<style>${fontFaces(iconFont)}</style></head>`);
}

function fontFaces(iconFont: string): string {
  const texts = TEXT_FONTS.flatMap(([family, fonts]) => [
    fontFace(family, '400 599', fonts.map((name) => `local('${name}')`).join(',')),
    fontFace(family, '600 900', fonts.map((name) => `local('${name} Bold')`).join(',')),
  ]);
  const icons = ICON_FONTS.map((family) => fontFace(family, '400', `url(${iconFont})`));
  return [...texts, ...icons].join('');
}

const fontFace = (family: string, weight: string, source: string) =>
  `@font-face{font-family:'${family}';font-weight:${weight};font-display:block;src:${source}}`;

/** Colours of code by token kind, as Prism names them. */
const LIGHT = {
  text: '#24292e',
  comment: '#6a737d',
  keyword: '#b31d28',
  string: '#0b5394',
  number: '#005cc5',
  name: '#6f42c1',
};
const DARK: typeof LIGHT = {
  text: '#e1e4e8',
  comment: '#959da5',
  keyword: '#f97583',
  string: '#9ecbff',
  number: '#79b8ff',
  name: '#b392f0',
};

const CSS = 'text/css; charset=utf-8';

/** Style sheets for highlighted code by file name, which the UI's package (2.0.0) lacks. */
const CODE_THEMES: Record<string, [type: string, text: string]> = {
  'prism-light.css': [CSS, toStyles(LIGHT)],
  'prism-dark.css': [CSS, toStyles(DARK)],
};

function toStyles(palette: typeof LIGHT): string {
  const rule = (types: string[], color: string) => `${types.map((type) => `.token.${type}`).join(',')}{color:${color}}`;
  return [
    `code[class*="language-"],pre[class*="language-"]{color:${palette.text};font-family:monospace;white-space:pre}`,
    'pre[class*="language-"]{overflow:auto;padding:1em}',
    rule(['comment', 'prolog', 'doctype', 'cdata'], palette.comment),
    rule(['keyword', 'atrule', 'important', 'operator', 'deleted'], palette.keyword),
    rule(['string', 'char', 'attr-value', 'regex', 'inserted'], palette.string),
    rule(['number', 'boolean', 'constant', 'property', 'symbol'], palette.number),
    rule(['function', 'class-name', 'builtin', 'selector', 'attr-name', 'tag'], palette.name),
  ].join('\n');
}
