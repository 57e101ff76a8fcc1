/** Maximum number of characters of a name that are compared, because the time grows with the length. */
const MAX_LENGTH = 64;
/** Minimum length of an abbreviation, such as `dry` for `dryRun`. */
const MIN_BEGINNING = 3;

/** Removes differences of spelling: upper case, characters such as `-` and `_`, and a version at the end. */
const plain = (name: string) =>
  name
    .toLowerCase()
    .replace(/[-_]v\d+$/, '')
    .replaceAll(/[^a-z0-9]/g, '');

/**
 * Returns the known name that was most likely meant: it differs in at most two letters and a third of its letters, or
 * begins with the sent name.
 * @param isShortened false: a name that begins with the sent name is not similar
 */
export function nearestName(sent: string, known: Iterable<string>, isShortened = true): string | undefined {
  const wanted = plain(sent.slice(0, MAX_LENGTH));
  const allowed = Math.min(2, Math.floor(wanted.length / 3));
  let best: { name: string; cost: number } | undefined;
  for (const name of known) {
    const candidate = plain(name);
    const isClose = Math.abs(candidate.length - wanted.length) <= allowed;
    const distance = isClose ? editDistance(wanted, candidate) : Number.POSITIVE_INFINITY;
    const begins = isShortened && wanted.length >= MIN_BEGINNING && candidate.startsWith(wanted);
    const cost = distance <= allowed ? distance : begins ? candidate.length : Number.POSITIVE_INFINITY;
    if (cost < (best?.cost ?? Number.POSITIVE_INFINITY)) best = { name, cost };
  }
  return best?.name;
}

/**
 * Damerau–Levenshtein distance (optimal string alignment): letters to insert, delete, replace or swap with a neighbour.
 */
function editDistance(one: string, other: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: other.length + 1 }, (_, index) => index);
  for (let row = 1; row <= one.length; row += 1) {
    const next = [row];
    for (let column = 1; column <= other.length; column += 1) {
      const isSame = one[row - 1] === other[column - 1];
      const changed = (last[column - 1] as number) + (isSame ? 0 : 1);
      const moved = Math.min((last[column] as number) + 1, (next[column - 1] as number) + 1);
      const isSwapped =
        row > 1 && column > 1 && one[row - 1] === other[column - 2] && one[row - 2] === other[column - 1];
      const swapped = isSwapped ? (beforeLast[column - 2] as number) + 1 : Number.POSITIVE_INFINITY;
      next.push(Math.min(changed, moved, swapped));
    }
    beforeLast = last;
    last = next;
  }
  return last.at(-1) as number;
}
