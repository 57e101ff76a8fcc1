/** JSON text that may be too long for one string, in pieces. A sender empties the lists to free what it has sent. */
export interface JsonStream {
  first: string[];
  /** Absent where `first` is all. */
  rest?: AsyncIterable<string[]>;
}

/** The value as one string: for the response to a change, which may be kept for a retry and so is not sent in parts. */
export async function collect({ first, rest }: JsonStream): Promise<string> {
  const pieces = [...first];
  for await (const further of rest ?? []) pieces.push(...further);
  return pieces.join('');
}
