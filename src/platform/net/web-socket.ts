import { WebSocket } from 'ws';
import { checkedLookup, checkUrl, type EgressPolicy } from './egress.ts';

/** How a WebSocket is opened. */
interface SocketOptions {
  headers: Record<string, string>;
  /** Maximum size of one message that comes. */
  maxBytes: number;
  /** Maximum time until it is open. */
  timeoutMs: number;
}

/**
 * Opens a WebSocket at a `ws:` or `wss:` address under a policy, which judges them as http and https. It follows no
 * redirect, and it connects only to an address that was checked.
 * @throws {AgentError} `egress_denied` at once for the address, or as the socket's `error` for what its name means
 */
export function openWebSocket(policy: EgressPolicy, address: URL, options: SocketOptions): WebSocket {
  checkUrl(new URL(address.href.replace(/^ws/, 'http')), policy);
  return new WebSocket(address, {
    headers: options.headers,
    maxPayload: options.maxBytes,
    handshakeTimeout: options.timeoutMs,
    perMessageDeflate: false,
    followRedirects: false,
    lookup: checkedLookup(policy),
  });
}
