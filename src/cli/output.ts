import { styleText } from 'node:util';

/** One colour or weight of a text; none where the output is no terminal or `NO_COLOR` is set. */
export const style = (format: Parameters<typeof styleText>[0], text: string): string =>
  styleText(format, text, { stream: process.stdout });

/** A table with aligned columns; the last one may be of any length. */
function toColumns(rows: readonly (readonly string[])[]): string {
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

/** Prints a list: one JSON document with `--json`, else a table with a head, else what there is when it is empty. */
export function printList<Item>(
  items: readonly Item[],
  options: { json?: boolean; head: string[]; toRow: (item: Item) => string[]; empty: string },
): void {
  if (options.json) return console.log(JSON.stringify(items));
  if (items.length === 0) return console.log(options.empty);
  const [head = '', ...rows] = toColumns([options.head, ...items.map(options.toRow)]).split('\n');
  console.log([style('bold', head), ...rows].join('\n'));
}

/** Unix seconds as a local time for people. */
export const toTime = (seconds: number | null | undefined): string =>
  seconds === null || seconds === undefined ? '–' : new Date(seconds * 1000).toLocaleString('sv-SE');

/** A text in one line of at most so many characters. */
export function toLine(text: string, length: number): string {
  const line = text.replaceAll(/\s+/g, ' ').trim();
  return line.length > length ? `${line.slice(0, length - 1)}…` : line;
}
