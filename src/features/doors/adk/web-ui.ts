import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type RequestHandler, Router } from 'express';
import { createPages, type Pages } from '../../../platform/http/pages.ts';

/** Where the UI lives: on one page, whose addresses are relative. */
const HOME = '/dev-ui/';
/** Path below it. */
const ICON_FONT = 'fonts/icons.woff2';

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

/**
 * Without a `backendUrl` the API is at the root of the host that the page came from; without `telemetry` newer UIs ask
 * on each load.
 */
const toRuntimeConfig = (publicUrl: string | undefined) => ({
  backendUrl: publicUrl !== undefined && new URL(publicUrl).pathname !== '/' ? publicUrl : '',
  telemetry: false,
  // Otherwise the name of another product stands over our version; the UI wants both or none.
  logo: {
    text: 'Agent runtime',
    imageUrl:
      "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg'><circle cx='50%25' cy='50%25' r='9' fill='%237c8cff'/></svg>",
  },
});
/** ADK's own: the logo to show instead of the built-in one. */
const UI_CONFIG = { logo_text: null, logo_image_url: null };

/** File names with a hash of their content, as Angular's builder writes them: what they hold never changes. */
const HASHED_NAME = /-[A-Z0-9]{8}\.(?:js|css)$/;

/**
 * The development UI: the prebuilt ADK Web UI under `/dev-ui/`, without credentials.
 * @param publicUrl - where clients reach the service [where the page came from]
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

/** The font of the UI's icons, which its package loads from elsewhere; found as the files of the UI are. */
function sendIconFont(): RequestHandler {
  const built = fileURLToPath(new URL('icons.woff2', import.meta.url));
  const name = '@fontsource/material-symbols-outlined/files/material-symbols-outlined-latin-400-normal.woff2';
  const path = existsSync(built) ? built : createRequire(import.meta.url).resolve(name);
  // By name below a root: of a whole path every directory with a dot in front would make it a 404.
  const options = { root: dirname(path), headers: { 'cache-control': 'no-cache' } };
  return (_request, response) => response.sendFile(basename(path), options);
}

/** `@font-face` rules; all of those in the prebuilt page load from another origin. */
const FONT_FACE = /@font-face\s*\{[^}]*\}/g;
const PRECONNECT = /\s*<link rel="preconnect"[^>]*>/g;
/** Angular loads its style sheet through an inline event handler, which the page's policy forbids. */
const DEFERRED_STYLES = / media="print" onload="this\.media='all'"/g;

/** Text fonts that machines have. */
const SANS = ['Roboto', 'Segoe UI', 'Helvetica Neue', 'Arial', 'Liberation Sans', 'DejaVu Sans'];
const MONO = ['Roboto Mono', 'Menlo', 'Consolas', 'Liberation Mono', 'DejaVu Sans Mono'];
/** The text fonts that the UI asks for, often without a fallback. */
const TEXT_FONTS: [family: string, local: string[]][] = [
  ['Google Sans', SANS],
  ['Roboto', SANS],
  ['Google Sans Mono', MONO],
  ['Roboto Mono', MONO],
];
/** The UI writes icons as words (`more_vert`) in one of these fonts, whose ligatures draw them. */
const ICON_FONTS = ['Material Icons', 'Material Symbols Outlined'];

/**
 * The UI's prebuilt page made to work on a machine without a network: fonts of this machine and of this server
 * instead of ones from elsewhere, no inline handlers, and a base that makes its relative addresses right.
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

/** Colours of code by kinds of tokens, in the words of Prism. */
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

/** The style sheets of highlighted code by file name, which the package of the UI (2.0.0) lacks. */
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
