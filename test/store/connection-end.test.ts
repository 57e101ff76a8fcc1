import { connect, createServer, type AddressInfo, type Server } from 'node:net';
import { sql } from 'drizzle-orm';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { testDatabase } from '../support/database.ts';
import { openPool } from '../support/store.ts';

const database = testDatabase();

/** ReadyForQuery, and FATAL 57P01: https://www.postgresql.org/docs/current/protocol-message-formats.html */
const READY = Buffer.from('Z\0\0\0\x05I', 'latin1');
const FIELDS = Buffer.from(
  'SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0',
  'latin1',
);
const SIZE = Buffer.alloc(4);
SIZE.writeInt32BE(FIELDS.length + 4);
const TERMINATED = Buffer.concat([Buffer.from('E'), SIZE, FIELDS]);

/** How many of the next connections end with the very packet that says that they are open. */
let ending = 0;
let relay: Server;
beforeAll(async () => {
  relay = createServer((client) => {
    const { hostname, port } = new URL(database.url);
    const upstream = connect(Number(port), hostname);
    client.pipe(upstream);
    upstream.on('data', (chunk: Buffer) => {
      const ends = ending > 0 && chunk.includes(READY);
      client.write(ends ? Buffer.concat([chunk, TERMINATED]) : chunk);
      if (!ends) return;
      ending--;
      client.end();
    });
    for (const [one, other] of [
      [client, upstream],
      [upstream, client],
    ] as const)
      one.on('error', () => undefined).on('close', () => other.destroy());
  });
  await new Promise<void>((resolve) => relay.listen(0, '127.0.0.1', resolve));
});
afterAll(() => new Promise((resolve) => relay.close(resolve)));

test('a connection that the server ends as it opens fails its statement, and not the process', async () => {
  const url = new URL(database.url);
  url.port = String((relay.address() as AddressInfo).port);
  const pool = openPool(url.href, 2);
  const select = () => pool.db.execute<{ one: number }>(sql`select 1 as one`);
  ending = 3;
  const outcomes = [
    ...(await Promise.allSettled([select(), pool.reads.execute(sql`select 1`)])),
    ...(await Promise.allSettled([pool.transaction((tx) => tx.execute(sql`select 1`))])),
  ];
  expect([outcomes.map(({ status }) => status), ending]).toEqual([['rejected', 'rejected', 'rejected'], 0]);
  expect((await select()).rows).toEqual([{ one: 1 }]);
  await pool.close();
});
