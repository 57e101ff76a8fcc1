import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createTcpServer, type AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createEgress, createSockets, type EgressPolicy } from '../../../../src/platform/net/egress.ts';

/** Answers whatever the test put in; counts connections, not requests: a refused TLS handshake is a connection too. */
let answer: (request: IncomingMessage, response: ServerResponse) => void = () => {};
let connections = 0;
const server = createServer((request, response) => answer(request, response));
const tcp = createTcpServer((socket) => {
  connections += 1;
  socket.destroy();
});
let port = 0;
let tcpPort = 0;

beforeAll(async () => {
  server.on('connection', () => {
    connections += 1;
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  await new Promise<void>((resolve) => tcp.listen(0, '::', resolve));
  port = (server.address() as AddressInfo).port;
  tcpPort = (tcp.address() as AddressInfo).port;
});
afterAll(() => {
  server.close();
  server.closeAllConnections();
  tcp.close();
});

const PUBLIC: EgressPolicy = { allowLoopback: false };
const LOCAL: EgressPolicy = { allowLoopback: true };

async function get(url: string, policy: EgressPolicy, init?: RequestInit) {
  const egress = createEgress(policy);
  try {
    const response = await egress.fetch(url, init);
    return { status: response.status, text: await response.text() };
  } finally {
    await egress.close();
  }
}

const NAMES: Record<string, string[]> = {
  localhost: ['127.0.0.1', '::1'],
  'localhost.': ['127.0.0.1'],
  'metadata.google.internal': ['169.254.169.254'],
  'mixed.example': ['93.184.216.34', '127.0.0.1'],
  'mapped.example': ['::ffff:127.0.0.1'],
  'private.example': ['10.1.2.3'],
  'v6.example': ['::1'],
  'local6.example': ['fd00::1'],
  'nat64.example': ['64:ff9b::7f00:1'],
};
const resolve = async (hostname: string) => NAMES[hostname] ?? Promise.reject(new Error('unknown name'));

const SPELLINGS = [
  '127.0.0.1',
  '127.1',
  '127.0.1',
  '127.255.255.254',
  '2130706433',
  '0x7f000001',
  '0x7f.0.0.1',
  '0x7f.1',
  '0177.0.0.1',
  '0177.1',
  '017700000001',
  '127。0。0。1',
  '127.0。0．1',
  '①②⑦.⓪.⓪.①',
  '%31%32%37.0.0.1',
  '127.0.0.1.',
  '0',
  '0.0.0.0',
  '0x0',
  '0.1.2.3',
  '169.254.169.254',
  '0xA9FEA9FE',
  '2852039166',
  '0251.0376.0251.0376',
  '169.254.43518',
  '168.63.129.16',
  '100.100.100.200',
  '10.0.0.1',
  '0xa000001',
  '172.16.0.1',
  '172.31.255.255',
  '192.168.0.1',
  '100.64.0.1',
  '192.0.0.192',
  '192.0.2.1',
  '198.18.0.1',
  '224.0.0.1',
  '255.255.255.255',
  '[::1]',
  '[::]',
  '[0:0:0:0:0:0:0:1]',
  '[::ffff:127.0.0.1]',
  '[::ffff:7f00:1]',
  '[::ffff:a9fe:a9fe]',
  '[::127.0.0.1]',
  '[64:ff9b::127.0.0.1]',
  '[64:ff9b:1::7f00:1]',
  '[2002:7f00:1::]',
  '[2001:0:7f00:1::]',
  '[fe80::1]',
  '[fec0::1]',
  '[fc00::1]',
  '[fd00:ec2::254]',
  '[ff02::1]',
  '[100::1]',
  '[1::1]',
  ...Object.keys(NAMES),
];

test('there are at least 48 spellings', () => {
  expect(SPELLINGS.length).toBeGreaterThanOrEqual(48);
});

test.each(SPELLINGS)('%s is not reached, by https or http', async (host) => {
  const before = connections;
  for (const scheme of ['https', 'http']) {
    for (const place of [port, tcpPort]) {
      await expect(get(`${scheme}://${host}:${place}/`, { ...PUBLIC, resolve })).rejects.toMatchObject({
        code: 'egress_denied',
      });
    }
  }
  expect(connections).toBe(before);
});

test('the same listener is reached where loopback is allowed, so that the tests above can fail', async () => {
  answer = (_request, response) => response.end('here');
  const before = connections;
  for (const host of ['127.0.0.1', '2130706433', 'localhost', '[::ffff:7f00:1]']) {
    expect(await get(`http://${host}:${port}/`, { ...LOCAL, resolve: async () => ['127.0.0.1'] })).toEqual({
      status: 200,
      text: 'here',
    });
  }
  expect(connections).toBe(before + 4);
  // A name and not only an address: what stops it above is the check of what it resolves to.
  await expect(
    get(`https://any.example:${tcpPort}/`, { ...LOCAL, resolve: async () => ['127.0.0.1'] }),
  ).rejects.toThrow('fetch failed');
  expect(connections).toBe(before + 5);
});

test('in local mode private and metadata addresses stay out, and http only goes to loopback', async () => {
  for (const host of ['10.0.0.1', '169.254.169.254', '[fd00::1]', '0.0.0.0', '1.1.1.1']) {
    await expect(get(`http://${host}/`, LOCAL)).rejects.toMatchObject({ code: 'egress_denied' });
  }
});

test.each([
  'file:///etc/passwd',
  'ftp://example.org/',
  'data:text/plain,x',
  'blob:https://example.org/1',
  'ws://example.org/',
])('%s is no address to call', async (url) => {
  await expect(get(url, LOCAL)).rejects.toMatchObject({ code: 'egress_denied' });
});

test('a name and a password in the address are refused', async () => {
  await expect(get(`http://user:pass@127.0.0.1:${port}/`, LOCAL)).rejects.toMatchObject({ code: 'egress_denied' });
});

test('a name that changes between two lookups is checked at each connection', async () => {
  const before = connections;
  const answers = [['10.0.0.1'], ['127.0.0.1'], ['::1']];
  let asked = 0;
  const egress = createEgress({ ...PUBLIC, resolve: async () => answers[asked++ % answers.length] ?? [] });
  for (const _ of answers) {
    await expect(egress.fetch(`https://rebind.example:${tcpPort}/`)).rejects.toMatchObject({ code: 'egress_denied' });
  }
  await egress.close();
  // One lookup for each connection: none between the check and the connection.
  expect(asked).toBe(answers.length);
  expect(connections).toBe(before);
});

test.each([301, 302, 303, 307, 308])('a %i redirect to a forbidden address is not followed', async (status) => {
  const policy = { ...LOCAL, allowedHosts: [`http://127.0.0.1:${port}`] };
  const targets = [
    `http://localhost:${tcpPort}/`,
    'http://169.254.169.254/latest',
    'file:///etc/passwd',
    '//10.0.0.1/',
  ];
  const before = connections;
  for (const location of targets) {
    answer = (_request, response) => response.writeHead(status, { location }).end();
    await expect(get(`http://127.0.0.1:${port}/`, policy)).rejects.toMatchObject({ code: 'egress_denied' });
  }
  // Only those to the first address.
  expect(connections).toBe(before + targets.length);
});

test('three redirects are followed, a fourth is not', async () => {
  let left = 3;
  answer = (_request, response) => {
    if (left === 0) response.end('there');
    else response.writeHead(302, { location: `/${(left -= 1)}` }).end();
  };
  expect(await get(`http://127.0.0.1:${port}/`, LOCAL)).toEqual({ status: 200, text: 'there' });
  left = 4;
  await expect(get(`http://127.0.0.1:${port}/`, LOCAL)).rejects.toThrow('redirects more than 3 times');
});

test('headers and bodies do not travel to another origin', async () => {
  const other = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () =>
      response.end(
        JSON.stringify({ method: request.method, headers: request.headers, body: Buffer.concat(chunks).toString() }),
      ),
    );
  });
  await new Promise<void>((done) => other.listen(0, '127.0.0.1', done));
  const location = `http://127.0.0.1:${(other.address() as AddressInfo).port}/`;
  answer = (_request, response) => response.writeHead(302, { location }).end();
  const headers = { authorization: 'Bearer secret', 'x-api-key': 'secret', accept: 'text/html' };
  const { text } = await get(`http://127.0.0.1:${port}/`, LOCAL, { method: 'POST', headers, body: 'secret' });
  other.close();
  other.closeAllConnections();
  expect(text).not.toContain('secret');
  expect(JSON.parse(text)).toMatchObject({ method: 'GET', headers: { accept: 'text/html' }, body: '' });
});

test('an allow-list lets nothing else through', async () => {
  answer = (_request, response) => response.end('here');
  const only = (allowedHosts: string[]): EgressPolicy => ({
    ...LOCAL,
    allowedHosts,
    resolve: async () => ['127.0.0.1'],
  });
  const url = `http://a.localhost:${port}/`;
  for (const allowed of ['a.localhost', '*.localhost', 'A.LOCALHOST']) {
    expect(await get(url, only([allowed]))).toEqual({ status: 200, text: 'here' });
  }
  for (const allowed of [[], ['b.localhost'], ['localhost'], ['*.a.localhost'], ['alocalhost']]) {
    await expect(get(url, only(allowed))).rejects.toMatchObject({ code: 'egress_denied' });
  }
});

test('an origin that the operator vouches for may be http and private, and nothing beside it', async () => {
  answer = (_request, response) => response.end('here');
  const policy = {
    ...PUBLIC,
    allowedHosts: [`http://mcp:${port}`],
    resolve: async () => ['127.0.0.1'],
  };
  expect(await get(`http://mcp:${port}/`, policy)).toEqual({ status: 200, text: 'here' });
  for (const url of [`https://mcp:${port}/`, `http://mcp:${tcpPort}/`, `http://127.0.0.1:${port}/`]) {
    await expect(get(url, policy)).rejects.toMatchObject({ code: 'egress_denied' });
  }
});

test('a body that is too large is cut', async () => {
  const block = Buffer.alloc(1024 * 1024);
  answer = (_request, response) => {
    const pump = () => {
      while (response.writable && response.write(block));
    };
    response.on('drain', pump);
    pump();
  };
  await expect(get(`http://127.0.0.1:${port}/`, LOCAL)).rejects.toThrow('The response is larger than 4194304 bytes.');
});

test('close ends connections in use', async () => {
  answer = (_request, response) => void response.write('never the end');
  const egress = createEgress(LOCAL);
  const response = await egress.fetch(`http://127.0.0.1:${port}/`);
  await Promise.all([expect(response.text()).rejects.toThrow('terminated'), egress.close()]);
});

test('connections that are kept outlive their clients, are no more than given, and each is checked', async () => {
  answer = (_request, response) => void response.write('never the end');
  const before = connections;
  const sockets = createSockets(LOCAL, 1);
  const [one, other] = [createEgress(LOCAL, '', sockets), createEgress(LOCAL, '', sockets)];
  const url = `http://127.0.0.1:${port}/`;
  const endless = await one.fetch(url);
  answer = (_request, response) => response.end('here');
  const waiting = other.fetch(url);
  await Promise.all([expect(endless.text()).rejects.toThrow('aborted'), one.close()]);
  for (const response of [await waiting, await other.fetch(url)]) expect(await response.text()).toBe('here');
  // The one that was ended with its client, and one for both requests of the other.
  expect(connections).toBe(before + 2);
  await expect(one.fetch(url)).rejects.toThrow('aborted');
  await other.close();
  await sockets.close();

  const names = [['10.0.0.1'], ['127.0.0.1']];
  const inward = { ...PUBLIC, resolve: async () => names.shift() ?? [] };
  const kept = createSockets(inward);
  for (const _ of [1, 2]) {
    const egress = createEgress(inward, '', kept);
    await expect(egress.fetch(`https://rebind.example:${tcpPort}/`)).rejects.toMatchObject({ code: 'egress_denied' });
    await egress.close();
  }
  expect(names).toEqual([]);
  expect(connections).toBe(before + 2);
});
