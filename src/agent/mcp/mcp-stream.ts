import type { Egress } from '../../platform/net/egress.ts';

/** As the code of an error that no server sent: the SDK's own codes are below -32000 and HTTP's above 0. */
const STREAM_ENDED = -1;

/**
 * The same `fetch`, but a stream that answers a JSON-RPC request ends with an error for that request. The SDK's
 * transport only notes a stream that breaks or ends too early (1.32.2, `_handleSseStream`), and the request would wait
 * for its time limit; to a request that was answered the error is nothing.
 */
export const withEndOfStream =
  (fetch: Egress['fetch']): Egress['fetch'] =>
  async (url, init) => {
    const response = await fetch(url, init);
    const id = requestIdIn(init?.body);
    const isStream = response.headers.get('content-type')?.includes('text/event-stream');
    if (id === undefined || !isStream || !response.body) return response;
    const { status, statusText, headers } = response;
    return new Response(ReadableStream.from(untilEnd(response.body, id)), { status, statusText, headers });
  };

async function* untilEnd(body: AsyncIterable<Uint8Array>, id: unknown): AsyncGenerator<Uint8Array, void, void> {
  try {
    yield* body;
  } catch {
    // The error below says so.
  }
  const error = { jsonrpc: '2.0', id, error: { code: STREAM_ENDED, message: 'The stream ended.' } };
  yield new TextEncoder().encode(`\n\ndata: ${JSON.stringify(error)}\n\n`);
}

/** The id in the body of a JSON-RPC request; `undefined` for anything else. */
function requestIdIn(body: RequestInit['body']): unknown {
  if (typeof body !== 'string') return undefined;
  const { id } = JSON.parse(body) as { id?: unknown };
  return id;
}
