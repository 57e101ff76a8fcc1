import type { AddressInfo, Server } from 'node:net';
import ipaddr from 'ipaddr.js';
import { ConfigError } from '../../core/errors.ts';
import { BoundedCache } from '../work/bounded-cache.ts';

const PREFIX_BYTES = 8;

/** Maximum length of a cached address, in characters; addresses with a zone name may be longer. */
const MAX_ADDRESS_LENGTH = 45;
/** Address → its network, cached because parsing an address takes 5 µs. */
const networks = new BoundedCache<string>();

/** Returns the network that counts as one client: an IPv4 address, or the /64 network of an IPv6 address. */
export function toNetwork(address: string | undefined): string {
  if (address === undefined) return '';
  const cached = networks.get(address);
  if (cached !== undefined) return cached;
  const network = readNetwork(address);
  if (address.length <= MAX_ADDRESS_LENGTH) networks.set(address, network);
  return network;
}

function readNetwork(text: string): string {
  // Some proxies add the client's port to X-Forwarded-For, and brackets to IPv6 addresses.
  const address = /^(?:(\d+(?:\.\d+){3})|\[([\da-f:.]+)\])(?::\d+)?$/i.exec(text)?.slice(1).join('') ?? text;
  if (!ipaddr.isValid(address)) return '';
  const parsed = ipaddr.process(address);
  if (parsed.kind() === 'ipv4') return parsed.toString();
  const bytes = parsed.toByteArray().map((byte, index) => (index < PREFIX_BYTES ? byte : 0));
  return ipaddr.fromByteArray(bytes).toString();
}

/** @returns the URL, e.g. `http://127.0.0.1:8000` @throws {ConfigError} with the text of `toReason` */
export async function listenAt(
  server: Server,
  host: string,
  port: number,
  toReason: (error: NodeJS.ErrnoException, host: string, port: number) => string,
): Promise<string> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error) => reject(new ConfigError(toReason(error, host, port))));
    server.listen(port, host, resolve);
  });
  const { address, family, port: boundPort } = server.address() as AddressInfo;
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${boundPort}`;
}
