import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The root of the clone. */
export const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** A fenced block of a page. */
export interface Listing {
  page: string;
  language: string;
  text: string;
  /** Its page and its first line, or that behind a start: unique. */
  name: string;
}

const PAGES = ['*.md', 'docs/*.md', 'examples/*.md', 'template/*.md'];

const nameOf = (text: string) => text.split('\n').find((line) => line !== '$ npm start') ?? '';

/** Returns every fenced block of the pages for users, in their order. Blocks of CONTRIBUTING.md sketch absent features. */
export function findListings(): Listing[] {
  return globSync(PAGES, { cwd: ROOT, exclude: ['CONTRIBUTING.md'] })
    .toSorted()
    .flatMap((page) =>
      [...readFileSync(join(ROOT, page), 'utf8').matchAll(/^ *```(\w*)\n([^]*?)^ *```$/gm)].map(
        ([, language = '', text = '']) => ({ page, language, text, name: `${page}: ${nameOf(text)}` }),
      ),
    );
}

/** A command of a transcript, and what it is printed to answer. */
export interface Command {
  command: string;
  printed: string;
}

/** Returns the commands of a transcript: each begins with `$`, and goes on while a quote or a line is open. */
export function readTranscript(text: string): Command[] {
  const commands: Command[] = [];
  let isOpen = false;
  for (const line of text.trimEnd().split('\n')) {
    const last = commands.at(-1);
    if (last && isOpen) last.command += `\n${line}`;
    else if (line.startsWith('$ ')) commands.push({ command: line.slice(2), printed: '' });
    else if (last) last.printed += `${line}\n`;
    const { command = '' } = commands.at(-1) ?? {};
    isOpen = command.endsWith('\\') || (command.match(/'/g)?.length ?? 0) % 2 === 1;
  }
  return commands;
}

/** Returns whether an answer is the printed one: `…` and what is before it in its word, and times, may be anything. */
export function isAsPrinted(printed: string, answer: string): boolean {
  const bare = (text: string) => text.replaceAll(/\s/g, '');
  const pattern = bare(printed)
    .split(/[\w-]*…|\d{4}-\d\d-\d\dT[\d:.]+Z|\d{9,}(?:\.\d+)?/)
    .map((part) => part.replaceAll(/[$()*+.?[\\\]^{|}]/g, '\\$&'))
    .join('[^]*?');
  // What npm says of its script is not printed.
  return new RegExp(`^${pattern}$`).test(bare(answer.replace(/^\n> .*\n> .*\n\n/, '')));
}
