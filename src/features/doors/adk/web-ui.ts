import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { type RequestHandler, Router } from 'express';
import { NotFoundError } from '../../../core/errors.ts';
import { createPages, type Pages } from '../../../platform/http/operation/pages.ts';

/** Path of the ADK Web UI, a single page with relative URLs. */
const HOME = '/dev-ui/';
const ICON_FONT = 'fonts/icons.woff2';
const ROOT = fileURLToPath(new URL('../../../../', import.meta.url));
/** What `npm run dev-ui` fetches; the npm package and the container have it. */
const VENDOR = `${ROOT}vendor/`;
const BROWSER = `${VENDOR}adk-devtools/dist/browser`;
const ICONS = `${VENDOR}material-symbols-outlined/files`;

/**
 * Content security policy that allows only what the ADK Web UI needs: files and responses of this origin, a WebAssembly
 * module that draws graphs, styles that Angular writes into the page, and media in `data:` and `blob:` URLs. Content of
 * a conversation therefore cannot send requests to other servers.
 */
const PAGE_POLICY =
  "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; " +
  "font-src 'self' data:; " +
  "img-src 'self' data: blob:; media-src 'self' data: blob:; connect-src 'self'; worker-src 'self' blob:; " +
  "frame-src 'self' data: blob:; frame-ancestors 'none'; base-uri 'self'; form-action 'none'";

/** The UI's settings. Empty `backendUrl`: the page's own host. Without `telemetry` it asks for consent on each load. */
const toRuntimeConfig = (publicUrl: string | undefined) => ({
  backendUrl: publicUrl !== undefined && new URL(publicUrl).pathname !== '/' ? publicUrl : '',
  telemetry: false,
  // Without a logo the UI shows another product's name above this version. It needs `text` and `imageUrl`.
  logo: {
    text: 'Agent runtime',
    imageUrl:
      "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg'><circle cx='50%25' cy='50%25' r='9' fill='%237c8cff'/></svg>",
  },
});
/** Response for the UI's second configuration file. It sets no logo, because the runtime configuration sets one. */
const UI_CONFIG = { logo_text: null, logo_image_url: null };

/** Files that never change: Angular's builder writes a hash of the content into their names. */
const HASHED_NAME = /-[A-Z0-9]{8}\.(?:js|css)$/;

/**
 * Serves the prebuilt ADK Web UI under `/dev-ui/`. The pages require no authentication.
 * @param publicUrl - public URL of the service; default: the origin of the page
 */
export function devUiPages(publicUrl?: string): Pages {
  const pages = createPages('Development UI', HOME, {
    folder: BROWSER,
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
  router.use(HOME, async (_request, _response, next) => {
    if (!existsSync(BROWSER)) await fetchFiles();
    next();
  });
  router.get(HOME + ICON_FONT, sendIconFont);
  router.use(pages.handler);
  return { ...pages, handler: router };
}

/** The fetch that runs, because a page asks for many files at once. */
let fetching: Promise<unknown> | undefined;

/**
 * Fetches the files in a clone, which lacks them until the first visit.
 * @throws {NotFoundError} if npm's registry cannot be reached
 */
async function fetchFiles(): Promise<void> {
  fetching ??= promisify(execFile)(process.execPath, [`${ROOT}.ci/dev-ui.mjs`]).finally(() => (fetching = undefined));
  await fetching.catch(() => {
    throw new NotFoundError('The files of the ADK Web UI could not be fetched; npm run dev-ui says why.');
  });
}

/** Serves the icons' font, which the prebuilt page would load from another origin. */
const sendIconFont: RequestHandler = (_request, response) =>
  // The font by its name below `root`: Express gives 404 for a full path with a directory that starts with a dot.
  response.sendFile('material-symbols-outlined-latin-400-normal.woff2', {
    root: ICONS,
    headers: { 'cache-control': 'no-cache' },
  });

/** `@font-face` rules are removed from the prebuilt page, because they load fonts from another origin. */
const FONT_FACE = /@font-face\s*\{[^}]*\}/g;
const PRECONNECT = /\s*<link rel="preconnect"[^>]*>/g;
/** Removed: Angular loads its style sheet by an inline event handler, which the content security policy forbids. */
const DEFERRED_STYLES = / media="print" onload="this\.media='all'"/g;

/** Names of sans-serif fonts that are usually installed on a computer. */
const SANS = ['Roboto', 'Segoe UI', 'Helvetica Neue', 'Arial', 'Liberation Sans', 'DejaVu Sans'];
const MONO = ['Roboto Mono', 'Menlo', 'Consolas', 'Liberation Mono', 'DejaVu Sans Mono'];
/** Fonts that the UI requests for text, often without a fallback, each with installed fonts to use instead. */
const TEXT_FONTS: [family: string, local: string[]][] = [
  ['Google Sans', SANS],
  ['Roboto', SANS],
  ['Google Sans Mono', MONO],
  ['Roboto Mono', MONO],
];
/** Fonts of the UI's icons. The UI writes an icon as a word (`more_vert`), and the font's ligature draws the icon. */
const ICON_FONTS = ['Material Icons', 'Material Symbols Outlined'];

/** Lets the UI's page work without other servers: local fonts, no inline event handlers, a base for relative URLs. */
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

/** Colours of highlighted code by the token types of the library Prism. */
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

/** Styles of highlighted code, by file name: the ADK Web UI's package (2.0.0) requests but lacks these files. */
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
