import { type Dispatcher, Pool } from 'undici';

/** One request of a measured piece of work. */
export interface Sent {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  path: string;
  body?: unknown;
  headers?: Record<string, string>;
}

/** A client with connections of its own, as many as it has requests under way. */
export class LoadClient {
  readonly #pool: Pool;

  constructor(url: string, connections: number) {
    this.#pool = new Pool(url, { connections, pipelining: 1, bodyTimeout: 0, headersTimeout: 0 });
  }

  /** The text of an answer. @throws Error for any status but 200. */
  async text(sent: Sent): Promise<string> {
    const chunks: Buffer[] = [];
    await this.#send(sent, (chunk) => void chunks.push(chunk));
    return Buffer.concat(chunks).toString();
  }

  /** Sends and reads the answer to its end, without looking at it: the client shares the machine. */
  send(sent: Sent): Promise<void> {
    return this.#send(sent, () => undefined);
  }

  #send({ method, path, body, headers }: Sent, onData: (chunk: Buffer) => void): Promise<void> {
    const json = body === undefined ? {} : { body: JSON.stringify(body), headers: { ...JSON_HEADERS, ...headers } };
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    let status = 0;
    const handler: Dispatcher.DispatchHandler = {
      onRequestStart: () => undefined,
      onResponseStart: (_, statusCode) => void (status = statusCode),
      onResponseData: (_, chunk) => onData(chunk),
      onResponseEnd: () => (status === 200 ? resolve() : reject(new Error(`${method} ${path}: status ${status}`))),
      onResponseError: (_, error) => reject(error),
    };
    this.#pool.dispatch({ method, path, ...json }, handler);
    return promise;
  }

  close(): Promise<void> {
    return this.#pool.destroy();
  }
}

const JSON_HEADERS = { 'content-type': 'application/json' };

/** What a round of load gave. */
export interface Round {
  count: number;
  seconds: number;
  /** Milliseconds, ascending. */
  latencies: number[];
}

/** Runs `work` in a closed loop, `width` at a time, until the time or `limit` is used up. */
export async function closedLoop(
  work: (n: number) => Promise<void>,
  { width, ms, limit = Number.POSITIVE_INFINITY }: { width: number; ms: number; limit?: number },
): Promise<Round> {
  const latencies: number[] = [];
  const startedAt = performance.now();
  let next = 0;
  const worker = async () => {
    for (;;) {
      const n = next++;
      const sentAt = performance.now();
      if (n >= limit || sentAt - startedAt > ms) return;
      await work(n);
      latencies.push(performance.now() - sentAt);
    }
  };
  await Promise.all(Array.from({ length: width }, worker));
  const seconds = (performance.now() - startedAt) / 1000;
  return { count: latencies.length, seconds, latencies: latencies.toSorted((a, b) => a - b) };
}

/** The value below which a share of ascending ones lie. */
export const quantile = (sorted: number[], share: number): number =>
  sorted[Math.floor((sorted.length - 1) * share)] ?? 0;

export const median = (values: number[]): number =>
  quantile(
    values.toSorted((a, b) => a - b),
    0.5,
  );
