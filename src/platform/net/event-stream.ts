/**
 * Yields the text of a stream of server-sent events with other data in them: `toData` returns the texts that take the
 * place of one event's, each an event of its own; none leaves it out, `undefined` ends the stream. Other lines go on as
 * they are. `atEnd` returns further ones when the stream has ended; an event whose empty line is missing then counts.
 */
export async function* mapEvents(
  text: AsyncIterable<string>,
  toData: (data: string) => string[] | undefined,
  atEnd: () => string[] = () => [],
): AsyncGenerator<string> {
  let open = '';
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
    open += piece;
    // A carriage return at the end may be the first half of a line's end.
    const lines = open.split(/\r\n|\n|\r(?!$)/);
    open = lines.pop() ?? '';
    const out = lines.map(toLine).join('');
    if (out !== '') yield out;
    if (isOver) return;
  }
  const rest = toLine(open.replace(/\r$/, ''));
  yield `${rest}${data.length > 0 ? toLine('') : ''}`;
  if (!isOver) yield toEvents(atEnd());
}

const toEvents = (texts: string[]) => texts.map((text) => `data: ${text}\n\n`).join('');

/** Returns a response with another body of text. */
export function withBody({ status, statusText, headers }: Response, body: AsyncIterable<string>): Response {
  // Its length, and what packed it, are those of the body that came.
  const { 'content-length': _length, 'content-encoding': _encoding, ...left } = Object.fromEntries(headers);
  const bytes = ReadableStream.from(body).pipeThrough(new TextEncoderStream());
  return new Response(bytes, { status, statusText, headers: left });
}
