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
 * @param home path of the UI's files, with a slash at both ends
 */
export function toOfflinePage(html: string, home: string, iconFont: string): string {
  return html
    .replaceAll(FONT_FACE, '')
    .replaceAll(PRECONNECT, '')
    .replaceAll(DEFERRED_STYLES, '')
    .replace(/<base href="[^"]*">/, `<base href="${home}">`)
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
