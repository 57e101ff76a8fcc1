/** Edits that make one name another's misspelling: a third of its length, at least one and at most three. */
const MAX_EDITS = 3;

/**
 * Finds the known name that another one resembles; `undefined` where none does. Case, `-`, `_` and a version at the end
 * do not matter.
 */
export function findNearest(name: string, known: readonly string[]): string | undefined {
  const plain = toPlain(name);
  const most = Math.min(MAX_EDITS, Math.max(1, Math.floor(plain.length / 3)));
  const [best] = known
    .map((one) => ({ one, edits: countEdits(plain, toPlain(one)) }))
    .toSorted((left, right) => left.edits - right.edits);
  if (best && best.edits <= most) return best.one;
  // A name that was cut off.
  return known.find((one) => plain.length > MAX_EDITS && toPlain(one).startsWith(plain));
}

const toPlain = (name: string) =>
  name
    .toLowerCase()
    .replace(/_v\d+$/, '')
    .replaceAll(/[-_\s]/g, '');

/** Characters of a name that are compared: a longer one resembles nothing that is known. */
const MAX_LENGTH = 128;

/** Counts the insertions, deletions and replacements that make one text the other. */
function countEdits(from: string, to: string): number {
  if (Math.max(from.length, to.length) > MAX_LENGTH) return Infinity;
  let row = Array.from({ length: to.length + 1 }, (_, place) => place);
  for (let place = 1; place <= from.length; place += 1) {
    const next = [place];
    for (let other = 1; other <= to.length; other += 1) {
      const replaced = (row[other - 1] ?? 0) + (from[place - 1] === to[other - 1] ? 0 : 1);
      next.push(Math.min((row[other] ?? 0) + 1, (next[other - 1] ?? 0) + 1, replaced));
    }
    row = next;
  }
  return row[to.length] ?? Infinity;
}
