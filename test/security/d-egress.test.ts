import { createServer, type AddressInfo } from 'node:net';
import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { startApp, type TestApp } from '../support/app.ts';
import { type Receiver, startReceiver } from '../support/webhook-receiver.ts';

/**
 * Webhooks that lead into the operator's network, each delivered by the running service. They are put into the table
 * past the check of their registration: a name may lead elsewhere by now, and a rule may be younger than a row.
 */

const HOOKS = '/harness/webhooks';
/** This machine and its networks, in all spellings that an address may have. */
const HOSTS = [
  '127.0.0.1',
  '127.1',
  '2130706433',
  '0x7f000001',
  '0x7f.1',
  '0177.0.0.1',
  '0.0.0.0',
  '0',
  '[::1]',
  '[::]',
  '[0:0:0:0:0:0:0:1]',
  '[::ffff:127.0.0.1]',
  '[::ffff:7f00:1]',
  '[::127.0.0.1]',
  '[64:ff9b::7f00:1]',
  '[fe80::1]',
  '[fd00::1]',
  '10.0.0.1',
  '169.254.169.254',
  'localhost',
  'LOCALHOST',
];
const DENIED = expect.stringMatching(/ is not a public address\.$/) as unknown;

/** Names whose owner answers with other addresses by now. */
const REBOUND: Record<string, string[]> = {
  'rebound.example': ['127.0.0.1'],
  'half.example': ['93.184.215.14', '127.0.0.1'],
  'mapped.example': ['::ffff:127.0.0.1'],
};
vi.mock('node:dns/promises', async (original) => {
  const { lookup } = await original<{ lookup: (name: string, options: object) => Promise<unknown> }>();
  const toAnswer = (address: string) => ({ address, family: address.includes(':') ? 6 : 4 });
  return { lookup: async (name: string, options: object) => REBOUND[name]?.map(toAnswer) ?? lookup(name, options) };
});

let app: TestApp;
let receiver: Receiver;
let sql: Client;
let connections = 0;
/** Listens on all addresses of the machine; a refused handshake is a connection too. */
const trap = createServer((socket) => {
  connections += 1;
  socket.destroy();
});
let port = 0;

beforeAll(async () => {
  await new Promise<void>((resolve) => trap.listen(0, '::', resolve));
  port = (trap.address() as AddressInfo).port;
  receiver = await startReceiver();
  // All of them are names that are allowed: of an address that vouches for nothing.
  const names = HOSTS.map((host) => new URL(`https://${host}`).hostname.replace(/^\[(.*)\]$|\.$/, '$1'));
  const allowed = [receiver.origin, ...names, ...Object.keys(REBOUND)].join();
  app = await startApp({ WEBHOOKS: 'true', WEBHOOKS_ALLOWED_HOSTS: allowed });
  sql = new Client({ connectionString: app.databaseUrl });
  await sql.connect();
});
afterAll(async () => {
  await sql.end();
  await app.close();
  await receiver.close();
  trap.close();
});

let users = 0;

/** Registers an address of the receiver, puts another into its row, and runs the agent. @returns the first answer */
async function deliveredTo(address: string): Promise<{ status?: number; error?: string }> {
  const ownerId = `owner${users++}`;
  const registered = await app.post(HOOKS, { ownerId, url: `${receiver.origin}/${ownerId}` });
  const { webhookId } = registered.body as { webhookId: string };
  const { href } = new URL(address);
  await sql.query('update webhooks set url = $1 where id = $2', [href, webhookId]);
  const sessions = `/apps/harness_agent/users/${ownerId}/sessions`;
  const { id } = (await app.post(sessions, {})).body as { id: string };
  const newMessage = { role: 'user', parts: [{ text: 'hi' }] };
  const started = await app.post(`${sessions}/${id}/invocations`, { newMessage, webhookUrl: href });
  expect(started.status).toBe(200);
  const answers = async () => {
    const { items } = (await app.get(`${HOOKS}/${webhookId}/deliveries`)).body as { items: { answers: object[] }[] };
    return items[0]?.answers ?? [];
  };
  await expect.poll(answers).toHaveLength(1);
  const [first = {}] = await answers();
  return first;
}

test('D: a name that leads to this machine once it is called is refused, whatever else it leads to', async () => {
  const before = connections;
  for (const [name, addresses] of Object.entries(REBOUND))
    expect([name, addresses, await deliveredTo(`https://${name}:${port}/`)]).toEqual([
      name,
      addresses,
      expect.objectContaining({ error: DENIED }),
    ]);
  expect(connections).toBe(before);
});

describe('D: a webhook does not reach what only the service reaches', () => {
  test.each(HOSTS)('%s is refused before there is a connection', async (host) => {
    const before = connections;
    expect(await deliveredTo(`https://${host}:${port}/`)).toMatchObject({ error: DENIED });
    expect(connections).toBe(before);
  });

  test.each([301, 302, 303, 307, 308])(
    'a redirect %s to this machine is an answer, and nobody follows it',
    async (status) => {
      const before = connections;
      receiver.reply(`/to${status}`, () => ({ status, headers: { location: `http://127.0.0.1:${port}/` } }));
      expect(await deliveredTo(`${receiver.origin}/to${status}`)).toMatchObject({ status });
      expect(connections).toBe(before);
    },
  );
});
