import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { expect, test } from 'vitest';
import { openDatabase } from '../../../../src/platform/db/database.ts';
import { poolOptions } from '../../../support/store.ts';

/** AuthenticationCleartextPassword, as a server sends it: it waits for the password then, for a minute. */
const WANTS_PASSWORD = Buffer.from([0x52, 0, 0, 0, 8, 0, 0, 0, 3]);

test('a connection whose password cannot be read is ended, and does not wait at the server', async () => {
  const accepted: Socket[] = [];
  const server = createServer((socket) => {
    accepted.push(socket.on('data', () => socket.write(WANTS_PASSWORD)).on('error', () => undefined));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `postgres://u@127.0.0.1:${(server.address() as AddressInfo).port}/d?sslmode=disable`;
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
