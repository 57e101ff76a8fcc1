import { Agent, type IncomingMessage, request } from 'node:http';
import { Worker } from 'node:worker_threads';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Runtime } from '../../src/process/runtime.ts';
import { startOn } from '../support/app.ts';
import { testDatabase } from '../support/database.ts';

const database = testDatabase();
const CLIENTS = 20;
/** Far longer than a client pauses: what a test of it needs is that a connection in use is not taken for idle. */
const DRAIN_MS = 1_500;

let runtime: Runtime;
beforeAll(async () => {
  runtime = await startOn(database.url, { DRAIN_DELAY_MS: String(DRAIN_MS) });
});
afterAll(() => runtime.close());

interface Reply {
  status: number | undefined;
  connection: string | undefined;
}

/** One request on a kept-alive connection of its own. @throws what Node says of the connection. */
const get = (agent: Agent, path: string): Promise<Reply> =>
  new Promise((resolve, reject) => {
    request(`${runtime.url}${path}`, { agent }, (response: IncomingMessage) => {
      response.resume().on('end', () => {
        resolve({ status: response.statusCode, connection: response.headers.connection });
      });
      response.on('error', reject);
    })
      .on('error', reject)
      .end();
  });

test('a stopping service says so first, ends each connection with an answer, and resets none in use', async () => {
  const failures: string[] = [];
  const replies: Reply[] = [];
  const { promise: whenAllRan, resolve: allRan } = Promise.withResolvers<void>();
  let warm = 0;
  /** Asks on and on over one connection, and turns elsewhere when an answer says that it was the last. */
  const load = async (client: number) => {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    for (let turn = 0; ; turn++) {
      if (turn === 10 && ++warm === CLIENTS) allRan();
      try {
        const reply = await get(agent, client % 2 === 0 ? '/version' : '/apps/harness_agent/users/u/sessions');
        replies.push(reply);
        if (reply.connection === 'close') break;
      } catch (error) {
        failures.push(String((error as NodeJS.ErrnoException).code));
        break;
      }
      await new Promise((resolve) => setTimeout(resolve, 5 * client));
    }
    agent.destroy();
  };
  const loads = Promise.all(Array.from({ length: CLIENTS }, (_, client) => load(client)));
  await whenAllRan;
  const agent = new Agent({ keepAlive: true });
  expect(await get(agent, '/ready')).toEqual({ status: 200, connection: 'keep-alive' });
  const closed = runtime.close();
  expect(await get(agent, '/ready')).toEqual({ status: 503, connection: 'close' });
  expect(await get(agent, '/health')).toEqual({ status: 200, connection: 'close' });
  await closed;
  await loads;
  agent.destroy();
  expect(failures).toEqual([]);
  expect(replies.filter(({ status }) => status !== 200)).toEqual([]);
  expect(replies.filter(({ connection }) => connection === 'close')).toHaveLength(CLIENTS);
});

/** Opens connections with a request each, and posts how they ended: the thread of the service is busy meanwhile. */
const CONNECTING = `
  const { connect } = require('node:net');
  const { parentPort, workerData: { port, clients, connected } } = require('node:worker_threads');
  const ended = Array.from({ length: clients }, () => new Promise((resolve) => {
    let answer = '';
    const request = 'GET /version HTTP/1.1\\r\\nhost: 127.0.0.1\\r\\n\\r\\n';
    const socket = connect(port, '127.0.0.1', () => {
      socket.write(request);
      Atomics.add(connected, 0, 1);
    });
    socket.on('data', (chunk) => (answer += chunk)).on('error', (error) => resolve(error.code));
    socket.on('close', () => resolve(answer.slice(0, 12)));
  }));
  Promise.all(ended).then((all) => parentPort.postMessage(all));`;

test('connections that wait to be accepted when the delay ends are answered', async () => {
  const other = await startOn(database.url, { DRAIN_DELAY_MS: '100' });
  const clients = 20;
  const connected = new Int32Array(new SharedArrayBuffer(4));
  const worker = new Worker(CONNECTING, {
    eval: true,
    workerData: { port: Number(new URL(other.url).port), clients, connected },
  });
  await new Promise((resolve) => worker.once('online', resolve));
  const ended = new Promise((resolve) => worker.once('message', resolve));
  const closed = other.close();
  const until = performance.now() + 200;
  for (let count = 0; performance.now() < until || count < clients; count = Atomics.load(connected, 0))
    Atomics.wait(connected, 0, count, 10);
  expect(await ended).toEqual(Array.from({ length: clients }, () => 'HTTP/1.1 200'));
  await closed;
});
