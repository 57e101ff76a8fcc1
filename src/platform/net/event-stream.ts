/**
 * Rewrites the data of server-sent events in a text stream; other lines pass unchanged.
 * @param toData - returns the events that replace an event: `[]` drops it, `undefined` ends the stream
 * @param atEnd - events appended at the end; a last event without an empty line after it still counts
 */
export async function* mapEvents(
  text: AsyncIterable<string>,
  toData: (data: string) => string[] | undefined,
  atEnd: () => string[] = () => [],
): AsyncGenerator<string> {
  /** The parts of the line that has not ended; searching the joined line with each part would take quadratic time. */
  let open: string[] = [];
  /** A carriage return at the end of a piece, which may be half of a line ending. */
  let held = '';
  let data: string[] = [];
  let isOver = false;
  const toLine = (line: string): string => {
    if (isOver) return '';
    const field = /^data(?:: ?(.*))?$/s.exec(line);
    if (field) {
      data.push(field[1] ?? '');
      return '';
    }
    if (line !== '' || data.length === 0) return `${line}\n`;
    const texts = toData(data.join('\n'));
    data = [];
    isOver = texts === undefined;
    return texts?.length ? toEvents(texts) : '\n';
  };
  for await (const piece of text) {
    const next = held + piece;
    held = next.endsWith('\r') ? '\r' : '';
    const [first = '', ...others] = next.slice(0, next.length - held.length).split(/\r\n|\n|\r/);
    open.push(first);
    const last = others.pop();
    if (last === undefined) continue;
    const lines = [open.join(''), ...others];
    open = [last];
    const out = lines.map(toLine).join('');
    if (out !== '') yield out;
    if (isOver) return;
  }
  const rest = toLine(open.join(''));
  yield `${rest}${data.length > 0 ? toLine('') : ''}`;
  if (!isOver) yield toEvents(atEnd());
}

const toEvents = (texts: string[]) => texts.map((text) => `data: ${text}\n\n`).join('');

export function withBody({ status, statusText, headers }: Response, body: AsyncIterable<string>): Response {
  // The headers for length and encoding are dropped, because they describe the old body.
  const { 'content-length': _length, 'content-encoding': _encoding, ...left } = Object.fromEntries(headers);
  return new Response(ReadableStream.from(toBytes(body)), { status, statusText, headers: left });
}

async function* toBytes(body: AsyncIterable<string>): AsyncGenerator<Uint8Array> {
  const encoder = new TextEncoder();
  for await (const piece of body) if (piece !== '') yield encoder.encode(piece);
}
