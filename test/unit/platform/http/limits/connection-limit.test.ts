import { EventEmitter } from 'node:events';
import { Socket } from 'node:net';
import { expect, test } from 'vitest';
import { limitConnections } from '../../../../../src/platform/http/limits/connection-limit.ts';

/** A machine has one address of its own in IPv6, so connections of others are made here as their server gets them. */
const from = (address: string) => Object.defineProperty(new Socket(), 'remoteAddress', { value: address });

function connecting(addresses: string[], proxies: string[] = []) {
  const server = new EventEmitter<{ connection: [Socket] }>();
  limitConnections(server, 2, proxies);
  const sockets = addresses.map(from);
  for (const socket of sockets) server.emit('connection', socket);
  return { server, sockets, closed: sockets.map(({ destroyed }) => destroyed) };
}

test('an IPv6 network of one client counts as one address, another one for itself', () => {
  const { closed } = connecting(['2001:db8::1', '2001:db8::2', '2001:db8::ffff:1', '2001:db8:0:1::1']);
  expect(closed).toEqual([false, false, true, false]);
});

test('an IPv4 address is one, also where it came over IPv6', () => {
  const { closed } = connecting(['192.0.2.1', '::ffff:192.0.2.1', '192.0.2.1', '192.0.2.2']);
  expect(closed).toEqual([false, false, true, false]);
});

test('a connection that has ended gives its place back, and proxies have as many as they like', async () => {
  const { server, sockets } = connecting(['192.0.2.1', '192.0.2.1']);
  await new Promise((resolve) => sockets[0]?.once('close', resolve).destroy());
  const next = from('192.0.2.1');
  server.emit('connection', next);
  expect(next.destroyed).toBe(false);
  expect(connecting(Array(4).fill('192.0.2.1'), ['192.0.2.0/24']).closed).toEqual(Array(4).fill(false));
});
