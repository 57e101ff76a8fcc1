import { EventEmitter } from 'node:events';
import fc from 'fast-check';
import type { Connection } from 'pg';
import { expect, test } from 'vitest';
import { type LargeText, readMessages, takeBytes } from '../../../../src/platform/db/row-bytes.ts';

/** A message as a server sends it: its code, its length, its content. */
function message(code: string, content: Buffer): Buffer {
  const head = Buffer.alloc(5);
  head.write(code);
  head.writeInt32BE(content.length + 4, 1);
  return Buffer.concat([head, content]);
}

function row(fields: (Buffer | null)[]): Buffer {
  const count = Buffer.alloc(2);
  count.writeInt16BE(fields.length);
  const parts = fields.map((field) => {
    const length = Buffer.alloc(4);
    length.writeInt32BE(field?.length ?? -1);
    return field ? Buffer.concat([length, field]) : length;
  });
  return message('D', Buffer.concat([count, ...parts]));
}

/** A connection whose parser notes what it is given, in the order in which it is given it. */
function connection() {
  const came: (Buffer | (string | null)[])[] = [];
  const fake = Object.assign(new EventEmitter(), {
    attachListeners: (stream: EventEmitter) => void stream.on('data', (bytes: Buffer) => came.push(Buffer.from(bytes))),
  });
  fake.on('dataRow', ({ fields }: { fields: (LargeText | null)[] }) =>
    came.push(fields.map((field) => field?.toString() ?? null)),
  );
  readMessages(fake as unknown as Connection);
  const stream = new EventEmitter();
  fake.attachListeners(stream);
  fake.emit('readyForQuery');
  /** Sends bytes in pieces that are overwritten afterwards, as those of a shared buffer are. */
  const send = (bytes: Buffer, cuts: number[]) => {
    const places = [...new Set(cuts.map((cut) => cut % bytes.length))].toSorted((a, b) => a - b);
    for (const [index, from] of [0, ...places].entries()) {
      const piece = Buffer.from(bytes.subarray(from, places[index] ?? bytes.length));
      stream.emit('data', piece);
      piece.fill(0);
    }
  };
  return { fake, send, came };
}

/** What came, with texts of the same kind that follow each other joined. */
const joined = (came: (Buffer | (string | null)[])[]) =>
  came.reduce<(string | (string | null)[])[]>((all, each) => {
    const last = all.at(-1);
    if (!Buffer.isBuffer(each)) all.push(each);
    else if (typeof last === 'string') all[all.length - 1] = last + each.toString('latin1');
    else all.push(each.toString('latin1'));
    return all;
  }, []);

const sizes = fc.array(fc.option(fc.oneof(fc.nat(40), fc.integer({ min: 4_000, max: 9_000 })), { freq: 4 }), {
  minLength: 1,
  maxLength: 4,
});

test('however the bytes of a server are cut, large rows come whole and in their place, all else as it was', () => {
  fc.assert(
    fc.property(fc.array(sizes, { maxLength: 5 }), fc.array(fc.nat(), { maxLength: 30 }), (rows, cuts) => {
      const { fake, send, came } = connection();
      takeBytes(fake);
      const expected: (Buffer | (string | null)[])[] = [message('2', Buffer.alloc(0))];
      const sent = [expected[0] as Buffer];
      for (const lengths of rows) {
        const fields = lengths.map((length) => (length === null ? null : Buffer.alloc(length, 'abc')));
        const bytes = row(fields);
        sent.push(bytes);
        expected.push(bytes.length < 4_096 ? bytes : fields.map((field) => field?.toString() ?? null));
      }
      const end = message('C', Buffer.from('SELECT 1\0'));
      send(Buffer.concat([...sent, end]), cuts);
      expect(joined(came)).toEqual(joined([...expected, end]));
    }),
    { numRuns: 300 },
  );
});

test('without the wish, and after the statement that had it, large rows are passed on whole', () => {
  const { fake, send, came } = connection();
  const bytes = row([Buffer.alloc(70_000, 'x')]);
  send(bytes, [1, 3, 66_000]);
  takeBytes(fake);
  fake.emit('readyForQuery');
  send(bytes, [2]);
  expect(came).toEqual([bytes, bytes]);
});
