/**
 * JSON text that may be too long for one string: its first part and the further ones as they are read, one value when
 * joined.
 */
export interface JsonStream {
  first: string;
  /** Absent where `first` is all. */
  rest?: AsyncIterable<string>;
}

/** The value as one string: for the response to a change, which may be kept for a retry and so is not sent in parts. */
export async function collect({ first, rest }: JsonStream): Promise<string> {
  let text = first;
  for await (const part of rest ?? []) text += part;
  return text;
}
