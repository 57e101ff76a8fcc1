import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Node, parseSync, visitorKeys } from 'oxc-parser';
import { expect, test } from 'vitest';

/** The limits of size that no linter here knows, for every file that is written by hand. */

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const MAX_COLUMNS = 120;
const MAX_FILE_LINES = 300;
const MAX_FUNCTION_LINES = 60;

interface Source {
  path: string;
  lines: string[];
  text: string;
}

/** The TypeScript files of a folder and of those below it. */
const sourcesIn = (folder: string): Source[] =>
  readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts') && !name.includes('node_modules'))
    .map((name) => {
      const path = join(folder, name);
      const text = readFileSync(join(ROOT, path), 'utf8');
      return { path, text, lines: text.trimEnd().split('\n') };
    });

const product = sourcesIn('src');
const everything = [
  ...product,
  ...sourcesIn('test'),
  ...sourcesIn('bench'),
  ...sourcesIn('examples'),
  ...sourcesIn('docs'),
];

const lineAt = (text: string, offset: number) => text.slice(0, offset).split('\n').length;
const parse = ({ path, text }: Source) => parseSync(path, text);

function* nodesOf(node: Node): Generator<Node> {
  yield node;
  for (const key of visitorKeys[node.type] ?? []) {
    const below = (node as unknown as Record<string, Node | (Node | null)[] | null | undefined>)[key];
    for (const each of Array.isArray(below) ? below : [below]) if (each) yield* nodesOf(each);
  }
}

/** The places that break a rule. */
const violations = (sources: Source[], linesIn: (source: Source) => number[]): string[] =>
  sources.flatMap((source) => linesIn(source).map((line) => `${source.path}:${line}`));

test('no line is over 120 columns, comments neither', () => {
  const longLines = ({ lines }: Source) =>
    lines.flatMap((line, index) => (line.length > MAX_COLUMNS ? [index + 1] : []));
  expect(violations(everything, longLines)).toEqual([]);
});

test('no file of the product is over 300 lines', () => {
  const lastLine = ({ lines }: Source) => (lines.length > MAX_FILE_LINES ? [lines.length] : []);
  expect(violations(product, lastLine)).toEqual([]);
});

test('no function of the product is over 60 lines', () => {
  const longFunctions = (source: Source) =>
    [...nodesOf(parse(source).program)]
      .filter(({ type }) => /^(?:FunctionDeclaration|FunctionExpression|ArrowFunctionExpression)$/.test(type))
      .map(({ start, end }) => [lineAt(source.text, start), lineAt(source.text, end)] as const)
      .flatMap(([first, last]) => (last - first >= MAX_FUNCTION_LINES ? [first] : []));
  expect(violations(product, longFunctions)).toEqual([]);
});

test('at least 95 of 100 exports of the product have a sentence', () => {
  const exports = product.flatMap((source) => {
    const { program, comments } = parse(source);
    return program.body
      .filter((node) => node.type === 'ExportNamedDeclaration' && node.declaration !== null)
      .map((node) => {
        const before = comments.findLast(({ end }) => end <= node.start);
        const isNext = before !== undefined && source.text.slice(before.end, node.start).trim() === '';
        const isDocumented = isNext && before.type === 'Block' && before.value.startsWith('*');
        return { place: `${source.path}:${lineAt(source.text, node.start)}`, isDocumented };
      });
  });
  const bare = exports.filter(({ isDocumented }) => !isDocumented).map(({ place }) => place);
  expect(bare.length > exports.length * 0.05 ? bare : []).toEqual([]);
});

test('a doc comment begins with a noun or a verb, not with a clause that has no head', () => {
  const headless = ({ text }: Source) =>
    [...text.matchAll(/\/\*\*[\s*]*(?:What|Who|Whoever|Whose|Of|So)\b/g)].map(({ index }) => lineAt(text, index));
  expect(violations(product, headless)).toEqual([]);
});
