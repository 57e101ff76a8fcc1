/** JSON text that may be too long for one string: its first piece, and the further ones as they are read; joined they are one value. */
export interface LongText {
  first: string;
  /** Absent where `first` is all. */
  rest?: AsyncIterable<string>;
}

/** The whole value as one string: for the answer of a change, which may be kept for a retry and so cannot be sent piece by piece. */
export async function wholeText({ first, rest }: LongText): Promise<string> {
  let text = first;
  for await (const piece of rest ?? []) text += piece;
  return text;
}
