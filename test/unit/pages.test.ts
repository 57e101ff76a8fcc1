import { readFileSync } from 'node:fs';
import { afterAll, expect, test } from 'vitest';
import { openMembers } from '../../docs/members.ts';
import { filledPages, listMarks, PARTS } from '../../docs/pages.ts';

/** The parts of pages that are made from the code: `npm run docs:config` writes them. */

// A compiler, which takes three seconds of a machine that does nothing else.
const MINUTES = 20 * 60_000;
const members = openMembers();
afterAll(() => members.close());
const parts = { ...PARTS, ...members.parts };

test('every page has what is made from the code: npm run docs:config', { timeout: MINUTES }, () => {
  const pages = filledPages(parts);
  expect([...pages.keys()]).toEqual(expect.arrayContaining(['docs/agents-in-code.md', 'docs/errors.md']));
  for (const [page, text] of pages) expect(readFileSync(new URL(`../../${page}`, import.meta.url), 'utf8')).toBe(text);
});

test('every mark names a part that there is, and each part stands in one page', () => {
  const names = listMarks().map((mark) => mark.replace(/:.*/, ''));
  expect(names.filter((name) => !(name in parts))).toEqual([]);
  expect(Object.keys(parts).filter((name) => !names.includes(name))).toEqual([]);
});

test('every export of the package, and every member, has a sentence that says what it does', {
  timeout: MINUTES,
}, () => {
  const lists = listMarks().filter((mark) => mark.startsWith('members:'));
  const lines = lists.flatMap((mark) => parts['members']?.(mark.slice('members:'.length).trim()).split('\n') ?? []);
  expect(lines.length).toBeGreaterThan(150);
  const others = parts['other exports']?.('').split('\n') ?? [];
  expect([...lines, ...others].filter((line) => !/^- `.+`: .{12,}\.$/.test(line))).toEqual([]);
});

test('every code, status, type and exit code has a sentence, and what to do', () => {
  const lists = ['codes of invocations', 'statuses'].flatMap((name) => parts[name]?.('').split('\n') ?? []);
  expect(lists.filter((line) => !/^- `\w+`: [A-Z`].{15,}\. \*[^*]+\.\* [A-Z`].{15,}\.$/.test(line))).toEqual([]);
  const sentences = ['types of 422', 'exit codes'].flatMap((name) => parts[name]?.('').split('\n') ?? []);
  expect(sentences.filter((line) => !/^- `\w+`: [A-Z].{10,}\.$/.test(line))).toEqual([]);
});
