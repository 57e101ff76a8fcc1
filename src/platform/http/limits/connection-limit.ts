import type { Socket } from 'node:net';
import ipaddr from 'ipaddr.js';
import { networkOf } from '../../net/network.ts';

/** What gives its connections away, as a server of Node does. */
interface Connecting {
  on(event: 'connection', listener: (socket: Socket) => void): unknown;
}

/**
 * Closes at once what one address opens beyond its share; of IPv6 a whole /64 network counts as one, which a client
 * has for itself. Behind a proxy that is trusted there are many clients.
 * @param proxies addresses and networks (CIDR)
 */
export function limitConnections(server: Connecting, max: number, proxies: string[]): void {
  const open = new Map<string, number>();
  const networks = proxies.map((proxy) => ipaddr.parseCIDR(proxy.includes('/') ? proxy : `${proxy}/${bitsOf(proxy)}`));
  const isProxy = (address: string) => {
    if (!ipaddr.isValid(address)) return false;
    const parsed = ipaddr.process(address);
    return networks.some(([network, bits]) => network.kind() === parsed.kind() && parsed.match(network, bits));
  };
  const isBeyond = (address: string) => (open.get(networkOf(address)) ?? 0) >= max && !isProxy(address);
  // Node 24 asks its `blockList` before it makes a socket, for half of the CPU time; that of an HTTP server can be set
  // in no other way.
  Object.assign(server, { blockList: { check: isBeyond } });
  server.on('connection', (socket) => {
    const address = socket.remoteAddress ?? '';
    if (isBeyond(address)) {
      socket.destroy();
      return;
    }
    const network = networkOf(address);
    open.set(network, (open.get(network) ?? 0) + 1);
    socket.once('close', () => {
      const left = (open.get(network) ?? 1) - 1;
      if (left > 0) open.set(network, left);
      else open.delete(network);
    });
  });
}

const bitsOf = (address: string) => (ipaddr.parse(address).kind() === 'ipv6' ? 128 : 32);
