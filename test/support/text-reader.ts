import type { Event } from '../../src/core/event.ts';

/** What a reader of a stream with text has, by the rules of the wire, over any number of connections. */
export interface TextReader {
  /** The last `id` that it got. */
  place: string | undefined;
  /** Texts of the stored events, by their sequence. */
  whole: Map<number, string>;
  /** Text of events to come, by agent. */
  open: Map<string, string>;
  /** How often all text was taken back. */
  voids: number;
  /** Deltas that it got. */
  deltas: number;
  /** Events whose text was not what had come of it, and frames that came twice. */
  faults: string[];
}

export const newTextReader = (place?: string): TextReader => ({
  place,
  whole: new Map(),
  open: new Map(),
  voids: 0,
  deltas: 0,
  faults: [],
});

const textOf = ({ content }: Event) => (content?.parts ?? []).map(({ text = '' }) => text).join('');

/** Takes one frame without the blank line behind it. */
export function takeFrame(reader: TextReader, frame: string): void {
  const [, id, data] = /^(?:id: (\S+)\n)?data: (.*)$/s.exec(frame) ?? [];
  if (data === undefined) return;
  const event = JSON.parse(data) as Event;
  const author = event.author ?? '';
  if (event.partial === true) {
    reader.open.set(author, (reader.open.get(author) ?? '') + textOf(event));
    reader.deltas += 1;
  } else if (event.interrupted === true && !event.content && !event.errorCode) {
    reader.open.clear();
    reader.voids += 1;
  } else if (id !== undefined) {
    const sequence = Number.parseInt(id, 10);
    if (reader.whole.has(sequence)) reader.faults.push(`event ${sequence} came twice`);
    const had = reader.open.get(author) ?? '';
    if (!textOf(event).startsWith(had)) reader.faults.push(`of event ${sequence} came ${JSON.stringify(had)}`);
    reader.open.delete(author);
    reader.whole.set(sequence, textOf(event));
  }
  reader.place = id ?? reader.place;
}

/** Yields the frames of a response, without the blank lines, until so many bytes came, wherever that cuts one. */
export async function* readFrames(response: Response, maxBytes = Infinity): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let [text, bytes] = ['', 0];
  for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
    text += decoder.decode(chunk.subarray(0, Math.max(0, maxBytes - bytes)), { stream: true });
    bytes += chunk.length;
    const frames = text.split('\n\n');
    text = frames.pop() ?? '';
    yield* frames;
    if (bytes >= maxBytes) return;
  }
}

/** Reads a response frame by frame until `isEnough`, or until so many bytes came. */
export async function readText(
  reader: TextReader,
  response: Response,
  isEnough: () => boolean = () => false,
  maxBytes?: number,
): Promise<void> {
  for await (const frame of readFrames(response, maxBytes)) {
    takeFrame(reader, frame);
    if (isEnough()) return;
  }
}
