import type { Socket } from 'node:net';
import ipaddr from 'ipaddr.js';
import { toNetwork } from '../../net/network.ts';

/** The part of a server of Node that hands out its connections. */
interface Connecting {
  on(event: 'connection', listener: (socket: Socket) => void): unknown;
}

/**
 * Closes at once the connections of one address beyond its maximum; of IPv6 a whole /64 network counts as one, which a
 * client has for itself. Behind a trusted proxy there are many clients.
 * @param proxies addresses and networks (CIDR)
 */
export function limitConnections(server: Connecting, max: number, proxies: string[]): void {
  const open = new Map<string, number>();
  const networks = proxies.map((proxy) =>
    ipaddr.parseCIDR(proxy.includes('/') ? proxy : `${proxy}/${countBits(proxy)}`),
  );
  const isProxy = (address: string) => {
    if (!ipaddr.isValid(address)) return false;
    const parsed = ipaddr.process(address);
    return networks.some(([network, bits]) => network.kind() === parsed.kind() && parsed.match(network, bits));
  };
  server.on('connection', (socket) => {
    const address = socket.remoteAddress ?? '';
    const network = toNetwork(address);
    const count = open.get(network) ?? 0;
    if (count >= max && !isProxy(address)) {
      socket.destroy();
      return;
    }
    open.set(network, count + 1);
    socket.once('close', () => {
      const left = (open.get(network) ?? 1) - 1;
      if (left > 0) open.set(network, left);
      else open.delete(network);
    });
  });
}

const countBits = (address: string) => (ipaddr.parse(address).kind() === 'ipv6' ? 128 : 32);
