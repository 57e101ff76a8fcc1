import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

/** One message of a client that the server answers as a whole: a simple query, or everything from Parse up to Sync. */
export interface Message {
  /** The text of its statement; empty where there is none. */
  sql: string;
  /** The `application_name` of its connection. */
  application: string;
  /** Numbers the connections from 1. */
  connection: number;
  /** True when the statement or one of its parameters holds the text. */
  has(text: string): boolean;
  /**
   * Breaks the connection on both sides: in `before` the server never sees the message, in `after` the client no reply.
   */
  cut(): void;
}

/** True for the renewal of a lease: it comes when its time has come, not at a place of an operation. */
export const isRenewal = ({ sql }: Message): boolean => /^\s*update "?invocations"? set "?lease_expire_time/.test(sql);

/** What a test does to the messages; a promise holds the message, or its reply, until it settles. */
export interface Rules {
  /** Before the message goes to the server. */
  before?(message: Message): void | Promise<void>;
  /** After the server has answered, before the client hears of it. */
  after?(message: Message): void | Promise<void>;
}

/** A TCP proxy in front of PostgreSQL that understands the frames of protocol 3. */
export interface PostgresProxy {
  /** The database's URL with the proxy's port. */
  url: string;
  /** What happens to messages; `{}` lets everything pass. */
  rules: Rules;
  /** True: nothing passes in either direction, and nobody is told. */
  isBlackHole: boolean;
  /** The server that new connections lead to, by the URL of its database; those that are open stay where they are. */
  target: string;
  /** From now on nothing passes on the connections that are open, and nobody is told; new ones work. */
  swallowOpen(): void;
  /** True: new connections are closed at once. */
  isRefusing: boolean;
  /** Breaks every connection. */
  cutAll(): void;
  close(): Promise<void>;
}

/** Starts a proxy in front of the server of a URL (`sslmode=disable`). */
export async function startProxy(databaseUrl: string): Promise<PostgresProxy> {
  const pairs = new Set<() => void>();
  const swallowed = new Set<number>();
  let count = 0;
  const server = createServer((client) => {
    if (proxy.isRefusing) {
      client.destroy();
      return;
    }
    const { port, hostname } = new URL(proxy.target);
    const upstream = connect(Number(port), hostname);
    const cut = () => {
      pairs.delete(cut);
      client.destroy();
      upstream.destroy();
    };
    pairs.add(cut);
    const connection = ++count;
    const isSwallowed = () => proxy.isBlackHole || swallowed.has(connection);
    relay({ client, upstream, proxy, connection, isSwallowed, cut });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = new URL(databaseUrl);
  url.port = String((server.address() as AddressInfo).port);
  const proxy: PostgresProxy = {
    url: url.href,
    rules: {},
    isBlackHole: false,
    target: databaseUrl,
    swallowOpen() {
      for (let connection = 1; connection <= count; connection++) swallowed.add(connection);
    },
    isRefusing: false,
    cutAll: () => pairs.forEach((cut) => cut()),
    async close() {
      proxy.rules = {};
      const closed = once(server, 'close');
      server.close();
      proxy.cutAll();
      await closed;
    },
  };
  return proxy;
}

interface Pair {
  client: Socket;
  upstream: Socket;
  proxy: PostgresProxy;
  connection: number;
  isSwallowed: () => boolean;
  cut: () => void;
}

/** Types of frames: https://www.postgresql.org/docs/current/protocol-message-formats.html */
const [PARSE, BIND, QUERY, SYNC, READY, TERMINATE] = ['P', 'B', 'Q', 'S', 'Z', 'X'];

function relay({ client, upstream, proxy, connection, isSwallowed, cut }: Pair): void {
  const sent: Message[] = [];
  // A statement with a name is sent once; later messages have the name only.
  const named = new Map<string, string>();
  let application = '';
  // Frames of one direction are handled one after another, however long a rule holds one of them.
  const fromClient = frames(true, async (group) => {
    const start = group[0];
    if (start?.type === '') application = /application_name\0([^\0]*)/.exec(start.bytes.toString('latin1'))?.[1] ?? '';
    const bytes = Buffer.concat(group.map((frame) => frame.bytes));
    const last = group.at(-1)?.type;
    if (last === QUERY || last === SYNC) {
      const message: Message = {
        sql: sqlOf(group, named),
        application,
        connection,
        has: (text) => bytes.includes(text),
        cut,
      };
      await proxy.rules.before?.(message);
      sent.push(message);
    }
    if (!isSwallowed()) upstream.write(bytes);
  });
  const fromServer = frames(false, async (group) => {
    const message = group.at(-1)?.type === READY ? sent.shift() : undefined;
    if (message) await proxy.rules.after?.(message);
    if (!isSwallowed()) client.write(Buffer.concat(group.map((frame) => frame.bytes)));
  });
  client.on('data', (chunk: Buffer) => fromClient.push(chunk));
  upstream.on('data', (chunk: Buffer) => fromServer.push(chunk));
  client.on('error', cut).on('close', cut);
  upstream.on('error', cut).on('end', () => void fromServer.end().then(() => client.end()));
}

interface Frame {
  /** One letter; empty for the frame that opens a connection. */
  type: string;
  bytes: Buffer;
}

function sqlOf(group: Frame[], named: Map<string, string>): string {
  let sql = '';
  for (const { type, bytes } of group) {
    const [first = '', second = ''] = bytes.toString('utf8', 5).split('\0', 2);
    if (type === QUERY) sql = first;
    if (type === PARSE) named.set(first, second);
    // The portal's name, then the statement's.
    if (type === BIND) sql = named.get(second) ?? '';
  }
  return sql;
}

/** Cuts a stream of bytes into groups of frames that belong together and gives them to `take` one after another. */
function frames(isClient: boolean, take: (group: Frame[]) => Promise<void>) {
  let buffered = Buffer.alloc(0);
  let isOpened = !isClient;
  let group: Frame[] = [];
  let taken = Promise.resolve();
  const give = () => {
    const whole = group;
    group = [];
    if (whole.length > 0) taken = taken.then(() => take(whole));
  };
  return {
    push(chunk: Buffer) {
      buffered = Buffer.concat([buffered, chunk]);
      for (;;) {
        const header = isOpened ? 1 : 0;
        if (buffered.length < header + 4) return;
        const length = header + buffered.readUInt32BE(header);
        if (buffered.length < length) return;
        const type = isOpened ? buffered.toString('latin1', 0, 1) : '';
        group.push({ type, bytes: buffered.subarray(0, length) });
        buffered = buffered.subarray(length);
        isOpened = true;
        if (isClient ? isEndOfRequest(type) : isEndOfReply(type)) give();
      }
    },
    /** Gives what is left and waits until all is taken. */
    async end() {
      give();
      await taken;
    },
  };
}

/** Parse, Bind, Describe and Execute wait for their Sync; all else goes at once. */
const isEndOfRequest = (type: string) => !['P', 'B', 'D', 'E', 'C', 'H'].includes(type) || type === TERMINATE;
/** Rows and notices wait for ReadyForQuery; what belongs to a log-in, and a notification, goes at once. */
const isEndOfReply = (type: string) => [READY, 'R', 'A', 'S', 'K', 'N'].includes(type);
