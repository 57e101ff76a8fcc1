import { EventEmitter } from 'node:events';
import { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import type { Connection } from 'pg';

/*
 * What a server sends, on its way to node-postgres's parser. Node makes a buffer of 64 KiB for each time it reads, and
 * the parser copies a row of a megabyte into buffers of twice the size again and again; one string is made of it, and
 * bytes of that again by who sends it. Together that was nine times its size, outside of the young generation: each
 * third such answer brought on a full collection, which on two processors holds up everybody for 20 ms. So all
 * connections read into one buffer, and the large rows of some statements stay the bytes that came.
 */

/** The code of a DataRow, and the bytes of a message's code and length (PostgreSQL's protocol 3, message formats). */
const DATA_ROW = 0x44;
const HEADER_BYTES = 5;
/** Rows from this size on are worth the way; a smaller one costs node-postgres little. */
const MIN_BYTES = 4_096;

/** Text of a row as bytes of UTF-8. */
export class LargeText {
  readonly bytes: Buffer;

  constructor(bytes: Buffer) {
    this.bytes = bytes;
  }

  get length(): number {
    return this.bytes.length;
  }

  toString(): string {
    return this.bytes.toString();
  }
}

/** What a connection of node-postgres has beside its published types (pg 8.23.1, lib/connection.js). */
interface Internals extends EventEmitter {
  attachListeners(stream: EventEmitter): void;
}

const readers = new WeakMap<object, MessageReader>();

/** What all connections read into, one after the other: whoever keeps anything of it has copied it by then. */
const sharedBuffer = Buffer.allocUnsafeSlow(65_536);

/** Makes the socket of a connection of node-postgres; with TLS a plain one, since TLS has a buffer of its own. */
export function newSocket(whose: () => object, { ssl }: { ssl?: unknown }): Socket {
  if (ssl) return new Socket();
  const callback = (length: number) => {
    readers.get(whose())?.push(sharedBuffer.subarray(0, length));
    return true;
  };
  return new Socket({ onread: { buffer: sharedBuffer, callback } });
}

/** Lets all that comes on a connection pass here before node-postgres parses it. */
export function readMessages(connection: Connection): void {
  const internals = connection as unknown as Internals;
  const attach = internals.attachListeners.bind(connection);
  internals.attachListeners = (stream) => {
    const parser = new EventEmitter();
    attach(parser);
    const reader = new MessageReader(
      (bytes) => void parser.emit('data', bytes),
      (fields) => void internals.emit('dataRow', { name: 'dataRow', fields }),
    );
    readers.set(connection, reader);
    // Of a socket with the shared buffer nothing comes here.
    (stream as Readable).on('data', (bytes: Buffer) => reader.push(bytes));
  };
  // Before node-postgres begins the next statement of the connection.
  connection.on('readyForQuery', () => readers.get(connection)?.beReady());
}

/** Says that the large rows of the statement that is being sent on a connection are to come as {@link LargeText}. */
export function takeBytes(connection: object): void {
  readers.get(connection)?.takeBytes();
}

/** Divides what a server sends into the large rows of some statements and all other messages, which it passes on. */
class MessageReader {
  readonly #passOn: (messages: Buffer) => void;
  readonly #onRow: (fields: (LargeText | null)[]) => void;
  /** node-postgres keeps parts of what it is given until it is signed in. */
  #isSignedIn = false;
  #takesBytes = false;
  /** The beginning of a header whose rest is still to come. */
  #header: Buffer | undefined;
  /** A message whose rest is still to come, so far; of a row what follows the header. */
  #message: Buffer | undefined;
  #filled = 0;
  #isRow = false;

  constructor(passOn: (messages: Buffer) => void, onRow: (fields: (LargeText | null)[]) => void) {
    this.#passOn = passOn;
    this.#onRow = onRow;
  }

  beReady(): void {
    this.#isSignedIn = true;
    this.#takesBytes = false;
  }

  takeBytes(): void {
    this.#takesBytes = true;
  }

  /** @param came is another's after the call */
  push(came: Buffer): void {
    const bytes = this.#header ? Buffer.concat([this.#header, came]) : came;
    this.#header = undefined;
    // Whole messages are passed on together, from here.
    let from = this.#message ? this.#fill(bytes, 0) : 0;
    for (let at = from; at < bytes.length; ) {
      if (bytes.length - at < HEADER_BYTES) {
        this.#give(bytes.subarray(from, at));
        this.#header = Buffer.from(bytes.subarray(at));
        return;
      }
      const size = bytes.readUInt32BE(at + 1) + 1;
      this.#isRow = this.#takesBytes && bytes[at] === DATA_ROW && size >= MIN_BYTES;
      if (!this.#isRow && at + size <= bytes.length) {
        at += size;
        continue;
      }
      // What came before it goes before it.
      this.#give(bytes.subarray(from, at));
      const skipped = this.#isRow ? HEADER_BYTES : 0;
      this.#message = Buffer.allocUnsafeSlow(size - skipped);
      this.#filled = 0;
      at = this.#fill(bytes, at + skipped);
      from = at;
    }
    this.#give(bytes.subarray(from));
  }

  /** Goes on with the message that is not complete. @returns where the next one begins */
  #fill(bytes: Buffer, at: number): number {
    const message = this.#message;
    if (!message) return at;
    const count = bytes.copy(message, this.#filled, at);
    this.#filled += count;
    if (this.#filled === message.length) {
      this.#message = undefined;
      if (this.#isRow) this.#onRow(fieldsOf(message));
      else this.#passOn(message);
    }
    return at + count;
  }

  #give(messages: Buffer): void {
    if (messages.length > 0) this.#passOn(this.#isSignedIn ? messages : Buffer.from(messages));
  }
}

/** The fields of a DataRow: their number, then of each its length, or -1 for null, and its bytes. */
function fieldsOf(row: Buffer): (LargeText | null)[] {
  let at = 2;
  return Array.from({ length: row.readInt16BE(0) }, () => {
    const length = row.readInt32BE(at);
    at += 4;
    if (length < 0) return null;
    at += length;
    return new LargeText(row.subarray(at - length, at));
  });
}
