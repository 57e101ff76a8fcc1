/** JSON text that may be too long for one string, in pieces. A sender empties the lists to free what it has sent. */
export interface JsonStream {
  first: string[];
  /** Absent where `first` is all. */
  rest?: AsyncIterable<string[]>;
}

/** A page of a list: its elements as JSON text with commas between them, and the place of the next page. */
export interface ArrayPage<Place> {
  text: string;
  next: Place | undefined;
}

/** Returns a list as a JSON array whose pages are read as they are sent. */
export async function toArrayStream<Place>(
  readPage: (after?: Place) => Promise<ArrayPage<Place>>,
): Promise<JsonStream> {
  const { text, next } = await readPage();
  return next === undefined ? { first: ['[', text, ']'] } : { first: ['[', text], rest: readOn(readPage, next) };
}

async function* readOn<Place>(readPage: (after: Place) => Promise<ArrayPage<Place>>, first: Place) {
  for (let place: Place | undefined = first; place !== undefined; ) {
    const { text, next }: ArrayPage<Place> = await readPage(place);
    if (text !== '') yield [',', text];
    place = next;
  }
  yield [']'];
}

/** The value as one string: for the response to a change, which may be kept for a retry and so is not sent in parts. */
export async function collect({ first, rest }: JsonStream): Promise<string> {
  const pieces = [...first];
  for await (const further of rest ?? []) pieces.push(...further);
  return pieces.join('');
}
