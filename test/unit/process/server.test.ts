import { createServer, type Server } from 'node:http';
import { expect, test } from 'vitest';
import { readConfig } from '../../../src/process/config.ts';
import { listen } from '../../../src/process/server.ts';

const config = readConfig({ PORT: '0' });
const close = { drainMs: 0, graceMs: 10, whenEnded: async () => undefined, interrupt: () => undefined };
const isAsked = (server: Server) => new Promise((resolve) => server.once('request', resolve));

const AGAIN = { detail: 'The service is stopping. Try again.' };
const LOOK = { detail: 'The service is stopping. What was asked may have begun: look before you send it again.' };

test.each([
  ['GET', {}, '1', AGAIN],
  ['POST', { 'idempotency-key': 'k' }, '1', AGAIN],
  ['POST', {}, null, LOOK],
  ['PATCH', {}, null, LOOK],
])('%s with %j, which has no answer when the grace is over, gets 503', async (method, headers, again, body) => {
  const server = createServer(() => undefined);
  const listener = await listen(server, config);
  const asked = isAsked(server);
  const answer = fetch(listener.url, { method, headers });
  await asked;
  await listener.close(close);
  const response = await answer;
  expect([response.status, response.headers.get('retry-after'), await response.json()]).toEqual([503, again, body]);
});

test('an answer that has begun is cut off when the grace is over', async () => {
  const server = createServer((_request, response) => response.write('data: 1\n\n'));
  const listener = await listen(server, config);
  const response = await fetch(listener.url);
  const rest = response.text();
  const closed = listener.close(close);
  await expect(rest).rejects.toThrow('terminated');
  await closed;
});

test('a server that has closed keeps no process alive', async () => {
  const countTimers = () => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;
  const listener = await listen(createServer(), config);
  const before = countTimers();
  await listener.close(close);
  expect(countTimers()).toBeLessThanOrEqual(before);
});
