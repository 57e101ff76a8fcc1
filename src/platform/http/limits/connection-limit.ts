import type { Socket } from 'node:net';
import ipaddr from 'ipaddr.js';
import { toNetwork } from '../../net/network.ts';
import { CallerCounts } from '../../work/fair-semaphore.ts';

/** The part of Node's server class that announces new connections. */
interface Connecting {
  on(event: 'connection', listener: (socket: Socket) => void): unknown;
}

/**
 * Closes an address's connections beyond `max`. An IPv6 /64 network counts as one address, because a client usually has
 * a whole one. Trusted proxies are exempt, because they forward many clients.
 * @param proxies addresses and networks (CIDR)
 */
export function limitConnections(server: Connecting, max: number, proxies: string[]): void {
  const open = new CallerCounts(max);
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
    const leave = open.take(toNetwork(address));
    if (leave) socket.once('close', leave);
    else if (!isProxy(address)) socket.destroy();
  });
}

const countBits = (address: string) => (ipaddr.parse(address).kind() === 'ipv6' ? 128 : 32);
