/** JSON text in pieces, because it may be too long for one string. The sender empties the arrays to free memory. */
export interface JsonStream {
  first: string[];
  /** Further pieces; absent if `first` is the whole text. */
  rest?: AsyncIterable<string[]>;
}

/** A page of a list: elements as comma-separated JSON, and the start of the next page. */
export interface ArrayPage<Place> {
  text: string;
  next: Place | undefined;
}

/** Returns a JSON array whose pages are read while it is sent. */
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

/** Joins the pieces. Used for answers to changes: they may be stored for a retry, so they are not streamed. */
export async function collect({ first, rest }: JsonStream): Promise<string> {
  const pieces = [...first];
  for await (const further of rest ?? []) pieces.push(...further);
  return pieces.join('');
}
