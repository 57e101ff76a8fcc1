import { expect, test } from 'vitest';
import { toNetwork } from '../../../../src/platform/net/network.ts';

test.each([
  ['192.0.2.1', '192.0.2.1'],
  ['::ffff:192.0.2.1', '192.0.2.1'],
  ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::'],
  // Some proxies put the port of the client into X-Forwarded-For.
  ['192.0.2.1:4711', '192.0.2.1'],
  ['[2001:db8:1:2:3:4:5:6]:4711', '2001:db8:1:2::'],
  ['[2001:db8:1:2:3:4:5:6]', '2001:db8:1:2::'],
])('%s counts as %s', (address, network) => {
  expect(toNetwork(address)).toBe(network);
});

test.each([undefined, '', 'unknown', '_hidden', '192.0.2.1:x', '192.0.2.1:4711:1', '[192.0.2.1', 'x'.repeat(5_000)])(
  'what is no address counts with all others that are none: %s',
  (address) => {
    expect(toNetwork(address)).toBe('');
  },
);
