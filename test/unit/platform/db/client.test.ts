import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { expect, test } from 'vitest';
import { connect } from '../../../../src/platform/db/client.ts';
import { openDatabase } from '../../../../src/platform/db/database.ts';
import { poolOptions } from '../../../support/store.ts';

/** AuthenticationCleartextPassword, as a server sends it: it waits for the password then, for a minute. */
const WANTS_PASSWORD = Buffer.from([0x52, 0, 0, 0, 8, 0, 0, 0, 3]);

/** A message of PostgreSQL's protocol 3: its code, its length, its content. */
function message(code: string, content: Buffer): Buffer {
  const head = Buffer.alloc(5);
  head.write(code);
  head.writeInt32BE(content.length + 4, 1);
  return Buffer.concat([head, content]);
}

async function listen(server: Server): Promise<string> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return `postgres://u@127.0.0.1:${(server.address() as AddressInfo).port}/d?sslmode=disable`;
}

test.each(['in_hot_standby', 'default_transaction_read_only'])(
  'a server that reports %s is read-only',
  async (name) => {
    const ready = Buffer.concat([
      message('R', Buffer.alloc(4)),
      message('S', Buffer.from(`${name}\0on\0`)),
      message('Z', Buffer.from('I')),
    ]);
    const server = createServer((socket) =>
      socket.once('data', () => socket.write(ready)).on('error', () => undefined),
    );
    const url = await listen(server);
    await expect(connect({ url }, {})).rejects.toMatchObject({ code: '25006' });
    const client = await connect({ url }, {}, { acceptsReadOnly: true });
    expect(client.isReadOnly).toBe(true);
    await client.end();
    server.close();
  },
);

test('a connection whose password cannot be read is ended, and does not wait at the server', async () => {
  const accepted: Socket[] = [];
  const server = createServer((socket) => {
    accepted.push(socket.on('data', () => socket.write(WANTS_PASSWORD)).on('error', () => undefined));
  });
  const url = await listen(server);
  const pool = openDatabase({ ...poolOptions(url, 2), passwordFile: '/nowhere/password' });
  await expect(pool.db.execute('select 1')).rejects.toMatchObject({
    cause: { message: 'DATABASE_PASSWORD_FILE cannot be read (ENOENT)', code: '08001' },
  });
  const [socket] = accepted;
  if (!socket?.closed) await once(socket as Socket, 'close');
  expect(accepted).toHaveLength(1);
  await pool.close();
  server.close();
});
