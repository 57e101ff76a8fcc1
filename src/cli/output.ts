import { readFileSync } from 'node:fs';
import { styleText } from 'node:util';
import { parseExactJson } from '../core/exact-json.ts';

/** Matches what changes a terminal's state: control characters, line separators, marks of writing direction. */
const OBEYED = /(?!\r?\n|\t)[\p{Cc}\u2028-\u202e\u2066-\u2069]/gu;

/**
 * Escapes control characters, e.g. as `\x1b`, because texts of users and models must not move the cursor, clear the
 * screen or set the title of a terminal. JSON stays valid: in it they are escaped already.
 */
export const toShown = (text: string): string =>
  text.replaceAll(OBEYED, (mark) => {
    const code = mark.charCodeAt(0).toString(16);
    return mark < ' ' ? `\\x${code.padStart(2, '0')}` : `\\u${code.padStart(4, '0')}`;
  });

/** Prints a text of a user, model or server, with control characters escaped. */
export const print = (text: string): void => console.log(toShown(text));

/** Formats a text for the terminal. Leaves it plain if the output is not a terminal or `NO_COLOR` is set. */
export const style = (format: Parameters<typeof styleText>[0], text: string): string =>
  styleText(format, toShown(text), { stream: process.stdout });

/** Aligns the columns of a table. The last column is not padded. */
export function toColumns(rows: readonly (readonly string[])[]): string {
  const count = Math.max(0, ...rows.map((row) => row.length));
  const widths = Array.from({ length: count }, (_, column) =>
    Math.max(...rows.map((row) => (column === count - 1 ? 0 : (row[column]?.length ?? 0)))),
  );
  return rows
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

/** Prints a list: as JSON with `--json`, else as a table with a head. Prints the text `empty` for an empty list. */
export function printList<Item>(
  items: readonly Item[],
  options: { json?: boolean; head: string[]; toRow: (item: Item) => string[]; empty: string },
): void {
  if (options.json) return print(JSON.stringify(items));
  if (items.length === 0) return print(options.empty);
  const [head = '', ...rows] = toColumns([
    options.head,
    ...items.map((item) => options.toRow(item).map((cell) => toLine(cell))),
  ]).split('\n');
  console.log([style('bold', head), ...rows].join('\n'));
}

export const toTime = (seconds: number | null | undefined): string =>
  seconds === null || seconds === undefined ? '–' : new Date(seconds * 1000).toLocaleString('sv-SE');

export function toLine(text: string, length = Number.POSITIVE_INFINITY): string {
  const line = toShown(text.replaceAll(/\s+/g, ' ').trim());
  return line.length > length ? `${line.slice(0, length - 1)}…` : line;
}

/** Width of a progress bar, in characters. */
const BAR = 30;

/** @param share from 0 to 1 */
export const toBar = (share: number): string => '█'.repeat(Math.floor(share * BAR)).padEnd(BAR, '░');

/** What a command ends with, described for `--help` and `docs/errors.md`. */
export const EXIT_CODES = {
  0: 'It is done, or nothing was found.',
  1: 'It failed, or found what it looks for: a fault, a difference, a case that did not pass, a session that was skipped.',
  2: 'The command line is wrong, or nothing could begin: a file, a setting or a service is missing.',
  3: 'A part of what it should compare, a replay or an evaluation, could not be compared.',
  130: 'The service was told twice to stop, and ended at once.',
} as const;

/** An error of a command. Its message is printed without a stack. */
export class CommandError extends Error {
  /** 1: the command failed; 2: the command could not start. */
  readonly exitCode: 1 | 2;
  /** The HTTP status if the service refused the request. */
  readonly status: number | undefined;

  constructor(message: string, exitCode: 1 | 2 = 1, status?: number) {
    super(message);
    this.exitCode = exitCode;
    this.status = status;
  }
}

/** Rethrows with exit code 2, because 1 means that a case failed or a comparison found a difference. */
export const cannotRun = (error: unknown): never => {
  throw new CommandError(error instanceof Error ? error.message : String(error), 2);
};

/** @throws {CommandError} if the file is no JSON */
export function readJsonFile(file: string): unknown {
  const text = readFileSync(file, 'utf8');
  try {
    return parseExactJson(text);
  } catch {
    throw new CommandError(`${file} is no JSON.`, 2);
  }
}
