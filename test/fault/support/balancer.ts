import { once } from 'node:events';
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/**
 * A proxy before several replicas, as operators put one there: by turns to those whose `/ready` answers 200, each
 * answer handed on as it comes, so that streams stream. It repeats nothing: what fails there, fails for its client.
 */
export interface Balancer {
  url: string;
  /** Requests that ended well so far, and those that did not: method, path, and what came. */
  answered: number;
  failed: string[];
  /** True once `/ready` of the replica answered 200 at the last look. */
  serves(url: string): boolean;
  close(): Promise<void>;
}

/** Time between two looks at `/ready`; a replica goes on taking requests for DRAIN_DELAY_MS, which has to be longer. */
const LOOK_MS = 100;

/** Starts one; `replicas` says where they are, each time. */
export async function startBalancer(replicas: () => string[]): Promise<Balancer> {
  const closing = new AbortController();
  let ready = new Set<string>();
  let turn = 0;
  const looking = (async () => {
    while (!closing.signal.aborted) {
      const states = await Promise.all(replicas().map(async (url) => ({ url, isReady: await isReady(url) })));
      ready = new Set(states.filter(({ isReady: is }) => is).map(({ url }) => url));
      await sleep(LOOK_MS);
    }
  })();
  const server = createServer((from, to) => {
    const serving = replicas().filter((url) => ready.has(url));
    const url = serving[turn++ % Math.max(1, serving.length)];
    const end = (problem?: string) => {
      if (problem === undefined) balancer.answered++;
      else balancer.failed.push(`${from.method} ${from.url}: ${problem}`);
    };
    if (url !== undefined) return handOn(from, to, url, end);
    end('no replica is ready');
    to.writeHead(502).end();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const balancer: Balancer = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    answered: 0,
    failed: [],
    serves: (url) => ready.has(url),
    async close() {
      closing.abort();
      await looking;
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return balancer;
}

const isReady = (url: string): Promise<boolean> =>
  fetch(`${url}/ready`, { signal: AbortSignal.timeout(5_000) }).then(
    async (response) => {
      await response.arrayBuffer();
      return response.status === 200;
    },
    () => false,
  );

/** Hands a request on; `end` hears once how it ended, with what went wrong. */
function handOn(from: IncomingMessage, to: ServerResponse, url: string, end: (problem?: string) => void): void {
  // A connection of its own for each request: none is reused at the moment in which its server ends it.
  const onward = request(`${url}${from.url}`, { method: from.method, headers: from.headers, agent: false });
  let hasLeft = false;
  const fail = (error: Error) => {
    if (hasLeft) return; // a client that leaves its stream
    end(error.message);
    if (to.headersSent) to.destroy();
    else to.writeHead(502).end();
  };
  onward.on('error', fail);
  onward.on('response', (answer) => {
    const { statusCode = 0, headers } = answer;
    to.writeHead(statusCode, headers).flushHeaders();
    let beginning = '';
    answer.on('data', (chunk: Buffer) => {
      beginning ||= chunk.toString().slice(0, 200);
      to.write(chunk);
    });
    answer.on('error', fail);
    answer.on('end', () => {
      to.end();
      end(statusCode < 400 ? undefined : `${statusCode} ${beginning}`);
    });
  });
  to.on('close', () => {
    hasLeft = !to.writableFinished;
    onward.destroy();
  });
  from.pipe(onward);
}
