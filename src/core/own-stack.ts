/** Where this installation's code lies: `src/` or `dist/`. */
const RUNTIME = new URL('..', import.meta.url).href;

/**
 * Returns an error's message, and below it what of its stack the author of an agent can act on: the line that a syntax
 * error shows, and the calls in files that are neither of Node, nor of a package, nor of this installation.
 */
export function toOwnStack(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { message, stack = '' } = error;
  const lines = stack.split('\n');
  const first = lines.findIndex((line) => line.includes(message.split('\n')[0] ?? ''));
  // Node puts the place and the line of a syntax error above the message.
  const shown = lines.slice(0, Math.max(first, 0)).filter((line) => line.trim() !== '');
  const calls = lines.filter((line) => /^\s+at .*(file:\/\/|\/)/.test(line) && !/node:|\/node_modules\//.test(line));
  return [message, ...shown, ...calls.filter((line) => !line.includes(RUNTIME))].join('\n');
}
