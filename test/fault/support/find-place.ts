import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Node, parseSync } from 'oxc-parser';

const SRC = fileURLToPath(new URL('../../../src/', import.meta.url));
/** The SQL functions as a migrated database has them. */
const FUNCTIONS = 'migrations/0001_functions.sql';

/** One change of the product: a few words of a function, constant or class, and what becomes of them. */
export interface Change {
  /**
   * The name of what is declared at the top of some file, wherever that file is, or of an SQL function;
   * `<folder>/<name>` where several have the name and the words.
   */
  in: string;
  /** What stands there exactly once. Spaces, line breaks and trailing commas do not matter. */
  from: string;
  to: string;
}

interface Declaration {
  name: string;
  path: string;
  start: number;
  end: number;
}

const texts = new Map(
  readdirSync(SRC, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => [`src/${name}`, readFileSync(join(SRC, name), 'utf8')]),
);
const declarations = [...texts].flatMap(([path, text]) => parseSync(path, text).program.body.flatMap(declaredBy(path)));
const functions = readFileSync(join(SRC, '..', FUNCTIONS), 'utf8');
texts.set(FUNCTIONS, functions);
for (const { 0: text, 1: name = '', index } of functions.matchAll(/^create function (\w+)\([^]*?\$\$;/gm)) {
  declarations.push({ name, path: FUNCTIONS, start: index, end: index + text.length });
}

/** What a statement at the top of a file declares, with the place of the whole statement. */
function declaredBy(path: string) {
  return (statement: Node): Declaration[] => {
    const declared = statement.type === 'ExportNamedDeclaration' ? statement.declaration : statement;
    const at = { path, start: statement.start, end: statement.end };
    if (declared?.type === 'FunctionDeclaration' || declared?.type === 'ClassDeclaration') {
      return declared.id ? [{ ...at, name: declared.id.name }] : [];
    }
    if (declared?.type !== 'VariableDeclaration') return [];
    return declared.declarations.flatMap(({ id }) => (id.type === 'Identifier' ? [{ ...at, name: id.name }] : []));
  };
}

/** The text of a file of the product, as it was when this process began. */
export const textOf = (path: string): string => texts.get(path) ?? '';

/** The files that the changes make other ones, with their new texts. @throws {Error} when a place is not there once. */
export function applyChanges(changes: Change[]): Map<string, string> {
  const changed = new Map<string, string>();
  // From the bottom up, so that no change moves the place of a later one.
  for (const { path, start, end, to } of changes.map(findPlace).toSorted((a, b) => b.start - a.start)) {
    const text = changed.get(path) ?? textOf(path);
    changed.set(path, text.slice(0, start) + to + text.slice(end));
  }
  return changed;
}

function findPlace({ in: name, from, to }: Change): { path: string; start: number; end: number; to: string } {
  const folder = name.slice(0, name.lastIndexOf('/') + 1);
  const declared = declarations.filter((each) => each.name === name.slice(folder.length) && each.path.includes(folder));
  const pattern = new RegExp(toPattern(from), 'g');
  const places = declared.flatMap(({ path, start, end }) =>
    [...textOf(path).slice(start, end).matchAll(pattern)].map((match) => {
      const at = start + match.index;
      return { path, start: at, end: at + match[0].length, to };
    }),
  );
  const [place] = places;
  if (place && places.length === 1) return place;
  throw new Error(`${name} is declared ${declared.length} times, and has ${places.length} times: ${from}`);
}

/** The words and signs of a text with whatever space between them, and a comma where a formatter may put one. */
function toPattern(text: string): string {
  const tokens = text.match(/[\w$]+|[^\w\s]/g) ?? [];
  return tokens
    .map((token, index) => {
      const word = token.replaceAll(/[$()*+.?[\\\]^{|}]/g, String.raw`\$&`);
      const isWord = /^[\w$]/.test(token);
      const follows = index > 0 && isWord && /[\w$]$/.test(tokens[index - 1] ?? '');
      const comma = /[)\]}]/.test(token) ? String.raw`(?:,\s*)?` : '';
      return `${follows ? String.raw`\s+` : ''}${comma}${word}`;
    })
    .join(String.raw`\s*`);
}
