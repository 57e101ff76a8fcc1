/**
 * Pause after an attempt (from 1), in milliseconds: twice as long each time, up to a limit; between a half and the
 * whole of it at random, so that many do not come at once.
 */
export function backOffMs(
  attempt: number,
  { firstMs, maxMs }: { firstMs: number; maxMs: number },
  random: () => number = Math.random,
): number {
  const longest = Math.min(firstMs * 2 ** (attempt - 1), maxMs);
  return Math.round(longest * (0.5 + random() / 2));
}
