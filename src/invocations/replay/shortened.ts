/** Maximum length of a text in an answer, characters. */
const MAX_TEXT = 4_000;
/** How much of two texts is shown before the place where they part. */
const CONTEXT = 200;

/** A text of bounded length, which says what was left out. */
export const shortened = (text: string): string =>
  text.length <= MAX_TEXT ? text : `${text.slice(0, MAX_TEXT)}… [${text.length - MAX_TEXT} characters left out]`;

/** Two values of bounded size. Of long texts that part which holds the first difference. */
export function shortenedPair(before: unknown, after: unknown): { before: unknown; after: unknown } {
  if (typeof before === 'string' && typeof after === 'string') {
    const start = Math.max(commonLength(before, after) - CONTEXT, 0);
    const isLong = Math.max(before.length, after.length) > MAX_TEXT;
    const from = (text: string) => (isLong && start > 0 ? `…${text.slice(start)}` : text);
    return { before: shortened(from(before)), after: shortened(from(after)) };
  }
  return { before: shortenedValue(before), after: shortenedValue(after) };
}

/** A large value becomes the beginning of its JSON text. */
function shortenedValue(value: unknown): unknown {
  const text = JSON.stringify(value) ?? 'null';
  return text.length <= MAX_TEXT ? value : shortened(text);
}

function commonLength(one: string, other: string): number {
  let length = 0;
  while (length < one.length && length < other.length && one[length] === other[length]) length += 1;
  return length;
}
