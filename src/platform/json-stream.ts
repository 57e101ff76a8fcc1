/** JSON text in pieces, because it may be too long for a string. The sender empties the arrays to free memory. */
export interface JsonStream {
  first: string[];
  /** The pieces after `first`; absent if `first` is the whole text. */
  rest?: AsyncIterable<string[]>;
}

/** A page of a list: its elements as comma-separated JSON, and the position of the next page. */
export interface ArrayPage<Place> {
  text: string;
  next: Place | undefined;
}

/** Returns a JSON array whose pages are read while the array is sent. */
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

/** Joins the pieces. Responses to changes use this instead of streaming, because they may be stored for a retry. */
export async function collect({ first, rest }: JsonStream): Promise<string> {
  const pieces = [...first];
  for await (const further of rest ?? []) pieces.push(...further);
  return pieces.join('');
}
