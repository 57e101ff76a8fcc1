import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { AgentError } from '../../core/errors.ts';
import { boundedResponse } from '../../platform/net/bounded-response.ts';
import type { Egress } from '../../platform/net/egress.ts';

/** The SDK parses and copies each message whole. Bytes are egress's. */
const BOUNDS = { bytes: Number.POSITIVE_INFINITY, values: 100_000, levels: 500, messages: 10_000 };
/** Maximum number of requests that a server makes of us on one connection: it has no reason for others than pings. */
const MAX_REQUESTS = 100;

/** The same `fetch`, but an answer fails as soon as it has too much to be parsed. */
export const withBounds =
  (fetch: Egress['fetch']): Egress['fetch'] =>
  async (url, init) =>
    boundedResponse(await fetch(url, init), BOUNDS, (excess) => new AgentError('mcp_failed', `It sent ${excess}.`));

/**
 * Ends a connection whose server makes too many requests: the SDK answers each with a POST of its own, all at once, and
 * 90,000 pings in one answer are more than a process has memory for (1.32.2). Call it before the client connects.
 */
export function limitRequests(transport: Transport): void {
  let requests = 0;
  // The client's own handler runs behind this one (`Protocol.connect`); what is thrown here keeps it from running.
  // oxlint-disable-next-line unicorn/prefer-add-event-listener -- the SDK's transport is no EventTarget
  transport.onmessage = (message) => {
    if (!('method' in message && 'id' in message)) return;
    requests += 1;
    if (requests <= MAX_REQUESTS) return;
    void transport.close();
    throw new AgentError('mcp_failed', `It made more than ${MAX_REQUESTS} requests.`);
  };
}
