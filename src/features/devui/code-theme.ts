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

/** The style sheets of highlighted code by file name, which the package of the UI (2.0.0) lacks. */
export const CODE_THEMES: Record<string, string> = {
  'prism-light.css': toStyles(LIGHT),
  'prism-dark.css': toStyles(DARK),
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
