import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { startHeldProvider } from '../support/held-provider.ts';
import { startTokenIssuer } from '../support/token-issuer.ts';
import { startWatched, type WatchedService } from '../support/watched-service.ts';

/** A second attack on what was fixed, by a signed-in user of a service in mode `jwt`. */

const SESSIONS = '/apps/harness_agent/users/mallory/sessions';
const ofProcess = ({ process: { pid } }: WatchedService, file: string, name: string) =>
  Number(new RegExp(`${name}:\\s+(\\d+)`).exec(readFileSync(`/proc/${pid}/${file}`, 'utf8'))?.[1]);

/** Starts a service, and mallory's token. */
async function start(environment: Record<string, string> = {}) {
  const tokens = await startTokenIssuer();
  const service = await startWatched({ ...tokens.environment, DEV_UI: 'false', ...environment });
  onTestFinished(async () => {
    await service.close();
    await tokens.close();
  });
  return { service, headers: await tokens.headersOf('mallory') };
}

/** Opens a live session by hand, for frames that no client library sends. */
async function openRaw(url: string, { authorization }: Record<string, string>): Promise<Socket> {
  const { hostname, port, host } = new URL(url);
  const socket = connect(Number(port), hostname).on('error', () => undefined);
  onTestFinished(() => void socket.destroy());
  socket.write(
    `GET /run_live?user_id=mallory&session_id=s&modalities=TEXT HTTP/1.1\r\nHost: ${host}\r\n` +
      `Authorization: ${authorization}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n` +
      'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n',
  );
  const [answer] = (await once(socket, 'data')) as [Buffer];
  expect(answer.toString()).toMatch(/^HTTP\/1.1 101 /);
  return socket;
}

/** A frame with a mask of zeros. */
const frame = (head: number, bytes: number) =>
  Buffer.concat([Buffer.from([head, 0x80 | bytes, 0, 0, 0, 0]), Buffer.alloc(bytes, 'x')]);
const [TEXT_BEGINS, GOES_ON, PONG] = [0x01, 0x00, 0x8a];

/** Writes until the other side wants no more. @returns true where that has gone */
const write = (socket: Socket, bytes: Buffer) =>
  new Promise<boolean>((resolve) => {
    if (socket.destroyed || !socket.writable) return resolve(true);
    socket.write(bytes, () => resolve(socket.destroyed));
  });

test('pongs between the fragments of a frame are counted, and keep no memory', async () => {
  const { service, headers } = await start();
  await service.post(SESSIONS, { sessionId: 's' }, headers);
  const socket = await openRaw(service.url, headers);
  await write(socket, frame(TEXT_BEGINS, 1));
  const many = Buffer.concat([...Array.from({ length: 499 }, () => frame(PONG, 125)), frame(GOES_ON, 1)]);
  const before = ofProcess(service, 'status', 'VmRSS');
  let pongs = 0;
  while (pongs < 1_500_000 && !(await write(socket, many))) pongs += 499;
  const grownMb = (ofProcess(service, 'status', 'VmRSS') - before) / 1024;
  expect(pongs).toBeLessThan(1_500_000);
  expect(grownMb).toBeLessThan(100);
});

test('starts that wait are not read again with each look at the queues', async () => {
  const provider = await startHeldProvider();
  onTestFinished(() => provider.close());
  const model = { MODEL_PROVIDER: 'openai-compatible', MODEL_NAME: 'held', MODEL_BASE_URL: provider.baseUrl };
  const { service, headers } = await start(model);
  const begin = (id: string, part: object) =>
    service.post(`${SESSIONS}/${id}/invocations`, { newMessage: { role: 'user', parts: [part] } }, headers);
  const ids = ['a', 'b', 'c', 'd', 'e', 'f'];
  for (const id of ids) {
    await service.post(SESSIONS, { sessionId: id }, headers);
    expect((await begin(id, { text: 'go' })).status).toBe(200);
  }
  const before = ofProcess(service, 'io', 'rchar');
  for (const id of ids) {
    const { body } = await begin(id, { inlineData: { mimeType: 'image/png', data: 'A'.repeat(2_000_000) } });
    expect(body).toMatchObject({ status: 'queued' });
    // Each notification is a look at the queues, and so is each change of a session that is waited for.
    await service.post(SESSIONS, {}, headers);
  }
  const readMb = (ofProcess(service, 'io', 'rchar') - before) / 2 ** 20;
  expect(readMb).toBeLessThan(20);
  provider.release();
  const statusesOf = async (id: string) =>
    JSON.stringify((await service.get(`${SESSIONS}/${id}/invocations`, headers)).body).match(/"succeeded"/g)?.length;
  await expect.poll(() => Promise.all(ids.map(statusesOf))).toEqual(ids.map(() => 2));
});
