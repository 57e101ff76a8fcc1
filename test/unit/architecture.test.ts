import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { invocationSchema } from '../../src/invocations/invocation.ts';

const root = fileURLToPath(new URL('../../', import.meta.url));
const files = globSync('src/**/*.ts', { cwd: root }).toSorted();
const textOf = (file: string) => readFileSync(join(root, file), 'utf8');

/** What a file imports from this project, values and types, as paths from the top. */
const importsOf = (file: string): string[] =>
  [...textOf(file).matchAll(/(?:from|import)\s*\(?\s*'(\.[^']+)'/g)].map(([, path = '']) =>
    normalize(join(dirname(file), path)),
  );

/** The rooms of `src/` from the bottom up: a room imports only what stands before it. `main.ts` is above them all. */
const ROOMS = [
  'core',
  'platform',
  'agent',
  'config',
  'conversation',
  'observability',
  'invocations',
  'features',
  'process',
  'cli',
];
const roomOf = (file: string) => (file === 'src/main.ts' ? 'main.ts' : (file.split('/')[1] ?? ''));
/** Every import between two files, as a pair of the names that a function gives their places. */
const arrowsBetween = (placeOf: (file: string) => string): [from: string, to: string, file: string][] =>
  files.flatMap((file) =>
    importsOf(file)
      .filter((other) => placeOf(other) !== placeOf(file))
      .map((other): [string, string, string] => [placeOf(file), placeOf(other), `${file} imports ${other}`]),
  );

describe('the rooms', () => {
  test('are those of the list', () => {
    expect([...new Set(files.map(roomOf))].filter((room) => room !== 'main.ts').toSorted()).toEqual(ROOMS.toSorted());
  });

  test('import only rooms that stand before them', () => {
    const line = [...ROOMS, 'main.ts'];
    const upward = arrowsBetween(roomOf).filter(([from, to]) => line.indexOf(to) > line.indexOf(from));
    expect(upward.map(([, , imported]) => imported)).toEqual([]);
  });

  test('have no circle of folders', () => {
    const arrows = arrowsBetween(dirname);
    const next = new Map<string, Set<string>>();
    for (const [from, to] of arrows) next.set(from, (next.get(from) ?? new Set()).add(to));
    expect(arrows.filter(([from, to]) => reaches(next, to, from)).map(([, , imported]) => imported)).toEqual([]);
  });

  // Files beside the doors' folders are what doors share.
  const removable = globSync(['src/features/*/', 'src/features/doors/*/'], { cwd: root })
    .map((folder) => folder.replace(/\/$/, ''))
    .filter((folder) => folder !== 'src/features/doors');

  test.each(removable)('%s is imported by the list of features alone, and is in it', (feature) => {
    const importers = files.filter(
      (file) =>
        !file.startsWith(`${feature}/`) && importsOf(file).some((imported) => imported.startsWith(`${feature}/`)),
    );
    expect(importers).toEqual(['src/process/features.ts']);
  });
});

/** Whether arrows lead from one place to another. */
function reaches(next: Map<string, Set<string>>, from: string, to: string, seen = new Set<string>()): boolean {
  if (from === to) return true;
  if (seen.has(from)) return false;
  seen.add(from);
  return [...(next.get(from) ?? [])].some((place) => reaches(next, place, to, seen));
}

test('the environment is read in one file', () => {
  const readers = files.filter((file) => textOf(file).includes('process.env'));
  expect(readers).toEqual([expect.stringMatching('^src/config/')]);
});

test('SQL text is made of constants: only these files write raw SQL, one of them that of an operator', () => {
  expect(files.filter((file) => /\bsql\.raw\(|\.inlineParams\(/.test(textOf(file)))).toEqual([
    'src/cli/sessions-where.ts',
    'src/conversation/sessions/event-store.ts',
    'src/conversation/sessions/session-list.ts',
    'src/conversation/sessions/session-text.ts',
    'src/features/users/user-tables.ts',
    'src/invocations/list-invocations.ts',
    'src/platform/db/sql.ts',
  ]);
});

describe('ARCHITECTURE.md', () => {
  const page = textOf('ARCHITECTURE.md');

  test('has a paragraph for each room, from the bottom up', () => {
    const rows = [...page.matchAll(/^- \*\*`(\w+)`\*\* \S.{40,}/gm)].map(([, room]) => room);
    expect(rows).toEqual(ROOMS);
  });

  test('has a row for each status of an invocation', () => {
    const [, table = ''] = /## States of an invocation\n([\s\S]*?)\n\n[^|\n]/.exec(page) ?? [];
    const rows = [...table.matchAll(/^\| `(\w+)` \|/gm)].map(([, status]) => status);
    expect(rows).toEqual(invocationSchema.shape.status.options);
  });
});

describe('pages', () => {
  const pages = globSync(['*.md', 'docs/*.md', 'examples/*.md'], { cwd: root }).toSorted();

  test.each(pages)('%s names only files that exist, and links to headings that exist', (name) => {
    const page = textOf(name);
    const named = [...page.matchAll(/`((?:src|test|docs|examples|migrations)\/[\w./-]*)`/g)].map(
      ([, path = '']) => path,
    );
    const linked = [...page.matchAll(/\]\(([\w./-]*)(?:#([\w-]+))?\)/g)].map(([, path = '', heading]) => ({
      path: path === '' ? name : join(dirname(name), path),
      heading,
    }));
    expect([...named, ...linked.map(({ path }) => path)].filter((path) => !existsSync(join(root, path)))).toEqual([]);
    const headings = (path: string) => [...textOf(path).matchAll(/^#+ (.+)$/gm)].map(([, text = '']) => toAnchor(text));
    expect(linked.filter(({ path, heading }) => heading && !headings(path).includes(heading))).toEqual([]);
  });
});

/** The anchor that GitHub gives a heading. */
const toAnchor = (heading: string) =>
  heading
    .toLowerCase()
    .replaceAll(/[^\w -]/g, '')
    .replaceAll(' ', '-');
