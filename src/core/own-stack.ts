import { fileURLToPath } from 'node:url';

/** The directory of the runtime's own code, `src/` or `dist/`. */
const RUNTIME = fileURLToPath(new URL('..', import.meta.url));

/**
 * Returns the lines of an error's stack that concern the author of an agent: the place of a syntax error, and calls in
 * the agent's own files.
 */
export function ownLines(error: unknown): string[] {
  if (!(error instanceof Error)) return [];
  const { message, stack = '' } = error;
  const lines = stack.split('\n');
  // Node puts the file and the source line of a syntax error above the message.
  const shown = lines.slice(
    0,
    Math.max(
      0,
      lines.findIndex((line) => line.includes(message.split('\n')[0] ?? '')),
    ),
  );
  const calls = lines.filter((line) => /^\s+at .*(file:\/\/|\/)/.test(line) && !/node:|\/node_modules\//.test(line));
  return [...shown.filter((line) => line.trim() !== ''), ...calls.filter((line) => !line.includes(RUNTIME))];
}
