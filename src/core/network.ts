import ipaddr from 'ipaddr.js';

const PREFIX_BYTES = 8;

/** Who counts as one by address: an IPv4 address, of IPv6 the /64 network that one client has whole. */
export function networkOf(address: string | undefined): string {
  if (address === undefined || !ipaddr.isValid(address)) return '';
  const parsed = ipaddr.process(address);
  if (parsed.kind() === 'ipv4') return parsed.toString();
  const bytes = parsed.toByteArray().map((byte, index) => (index < PREFIX_BYTES ? byte : 0));
  return ipaddr.fromByteArray(bytes).toString();
}
