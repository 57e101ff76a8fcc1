/** What a fixed piece of work costs on the machine that the limits of the tests were found on, milliseconds of CPU. */
const PIECE_MS = 60;
const TEXT = JSON.stringify(Array.from({ length: 4_000 }, (_, n) => ({ id: n, text: 'x'.repeat(50), list: [n, [n]] })));

/**
 * Measures how many times more CPU time than there the same work takes on this thread now, at least 1: neighbours on
 * the cores, a slower one and the collections of a small heap make all work dearer, a freeze makes one piece so.
 */
export function measureSlowness(): number {
  const before = process.threadCpuUsage();
  for (let round = 0; round < 16; round += 1) JSON.stringify(JSON.parse(TEXT));
  const { user, system } = process.threadCpuUsage(before);
  return Math.max(1, (user + system) / 1000 / PIECE_MS);
}
