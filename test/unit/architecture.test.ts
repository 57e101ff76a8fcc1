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

/** The folder of a file as this list names it: the files beside `main.ts` are the process, and that is the last. */
const folderOf = (file: string) =>
  file === 'src/main.ts' ? 'main' : dirname(file).replace(/^src\/?/, '') || 'process';

/**
 * The folders in their order, each with those that its files import: all of them stand above it in this list. A new
 * arrow is a decision: it is added here or the code goes elsewhere.
 */
const LINE: [folder: string, imports: string[]][] = [
  ['core', []],
  ['net', ['core']],
  ['db', ['core']],
  ['db/embedded', ['core']],
  ['agent/definition', ['core']],
  ['agent/models', ['agent/definition', 'core', 'net']],
  ['agent/tools', ['agent/definition', 'core', 'net']],
  ['agent/arguments', ['core']],
  ['agent/mcp', ['agent/arguments', 'agent/definition', 'core', 'net']],
  ['agent/loop', ['agent/arguments', 'agent/definition', 'core']],
  ['agent', ['agent/definition', 'agent/loop', 'agent/mcp', 'agent/tools', 'core']],
  ['http/operation', ['core']],
  ['limits', ['core', 'db', 'http/operation']],
  ['audit', ['core', 'db', 'http/operation']],
  ['budgets', ['core', 'db', 'http/operation']],
  ['http/access', ['core', 'http/operation']],
  ['http/validation', ['core', 'http/operation']],
  ['http/openapi', ['http/operation']],
  ['http', ['core', 'db', 'http/access', 'http/openapi', 'http/operation', 'http/validation']],
  ['holds', ['db', 'http/operation']],
  ['sessions', ['core', 'db', 'holds', 'http/operation']],
  ['artifacts', ['core', 'db', 'holds', 'http/operation', 'sessions']],
  ['memory', ['core', 'db', 'http/operation', 'sessions']],
  ['idempotency', ['core', 'db', 'http/operation', 'sessions']],
  ['webhooks', ['core', 'db', 'holds', 'http/operation', 'net']],
  ['apps', ['agent/definition', 'core', 'http/operation']],
  ['traces', ['agent/definition', 'agent/loop', 'apps', 'core', 'db', 'holds', 'http/operation', 'sessions']],
  ['metrics', ['agent/loop', 'core', 'db']],
  [
    'invocations',
    ['agent/definition', 'agent/loop', 'apps', 'artifacts', 'budgets', 'core', 'db', 'http/operation'].concat([
      'idempotency',
      'limits',
      'memory',
      'sessions',
      'traces',
      'webhooks',
    ]),
  ],
  [
    'invocations/routes',
    ['agent', 'agent/definition', 'core', 'http/operation', 'idempotency', 'invocations', 'sessions', 'webhooks'],
  ],
  [
    'invocations/replay',
    ['agent/arguments', 'agent/definition', 'agent/loop', 'apps', 'budgets', 'core', 'http/operation'].concat([
      'invocations',
      'sessions',
    ]),
  ],
  ['invocations/live', ['agent/definition', 'agent/loop', 'apps', 'core', 'http/operation', 'invocations', 'sessions']],
  ['evals/metrics', ['core', 'http/validation']],
  ['evals/judges', ['core', 'evals/metrics']],
  [
    'evals',
    ['agent/definition', 'apps', 'budgets', 'core', 'db', 'evals/judges', 'evals/metrics', 'holds'].concat([
      'http/operation',
      'http/validation',
      'idempotency',
      'invocations',
      'sessions',
    ]),
  ],
  [
    'cronjobs',
    ['agent/definition', 'apps', 'core', 'db', 'holds', 'http/operation', 'idempotency', 'invocations', 'webhooks'],
  ],
  [
    'users',
    ['artifacts', 'core', 'db', 'evals', 'holds', 'http/operation', 'idempotency', 'invocations'].concat([
      'sessions',
      'traces',
    ]),
  ],
  ['service', ['core', 'db', 'http/operation']],
  ['devui', ['http/operation']],
  [
    'process',
    [
      'agent',
      'agent/definition',
      'agent/loop',
      'agent/mcp',
      'agent/models',
      'agent/tools',
      'apps',
      'artifacts',
      'audit',
      'budgets',
      'core',
      'cronjobs',
      'db',
      'db/embedded',
    ].concat(
      ['devui', 'evals', 'holds', 'http', 'http/operation', 'idempotency'],
      [
        'invocations',
        'invocations/live',
        'invocations/replay',
        'invocations/routes',
        'limits',
        'memory',
        'metrics',
        'service',
        'sessions',
        'traces',
      ].concat('users', 'webhooks'),
    ),
  ],
  ['doctor', ['core', 'db', 'process']],
  [
    'cli',
    [
      'agent/loop',
      'core',
      'db/embedded',
      'doctor',
      'evals',
      'http/access',
      'http/openapi',
      'http/operation',
      'http/validation',
    ].concat(['invocations/replay', 'process']),
  ],
  ['main', ['cli', 'process']],
];

describe('the folders form a line', () => {
  const folders = LINE.map(([folder]) => folder);
  const arrows = (folder: string) => {
    const imported = files.filter((file) => folderOf(file) === folder).flatMap((file) => importsOf(file).map(folderOf));
    return [...new Set(imported)].filter((other) => other !== folder).toSorted();
  };

  test('every folder stands in it', () => {
    expect([...new Set(files.map(folderOf))].toSorted()).toEqual(folders.toSorted());
  });

  test.each(LINE)('%s imports what the list says, and only what stands above it', (folder, imports) => {
    expect(arrows(folder)).toEqual(imports);
    expect(imports.filter((other) => folders.indexOf(other) >= folders.indexOf(folder))).toEqual([]);
  });
});

test('the environment is read in one file', () => {
  expect(files.filter((file) => textOf(file).includes('process.env'))).toEqual(['src/core/environment.ts']);
});

describe('ARCHITECTURE.md', () => {
  const page = textOf('ARCHITECTURE.md');

  test('has a sentence for each folder, in the order of the line', () => {
    const [, listed = ''] = /```\n(core [\s\S]*?)```/.exec(page) ?? [];
    const rows = [...listed.matchAll(/^(\S+) +\S.{15,}$/gm)].map(([, folder]) => folder);
    expect(rows).toEqual(LINE.map(([folder]) => folder));
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

  test('the first two are short', () => {
    expect(textOf('README.md').split('\n').length).toBeLessThanOrEqual(200);
    expect(textOf('ARCHITECTURE.md').split('\n').length).toBeLessThanOrEqual(150);
  });
});

/** The anchor that GitHub gives a heading. */
const toAnchor = (heading: string) =>
  heading
    .toLowerCase()
    .replaceAll(/[^\w -]/g, '')
    .replaceAll(' ', '-');
