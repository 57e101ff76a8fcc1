import { setPriority } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { Agent, fetch, type RequestInit } from 'undici';
import { type Attack, ATTACKS, type Order } from './attacks.ts';

/**
 * A user in a process of its own who does one kind of thing, or all at once, as often as it is let. What it is answered
 * is counted by status. The process has the lowest priority and reads as much as a fast line carries: what its own
 * work costs on these cores is not what it does to the service.
 */
setPriority(19);

/** 100 Mbit/s. */
const BYTES_PER_MS = 12_500;
let line = performance.now();
/** An address of its own: what the service keeps of one must not be the other's. */
const dispatcher = new Agent({ localAddress: '127.0.0.2' });
const stop = new AbortController();
const counts: Record<string, number> = {};
let hasBegun = false;

/** Waits until the line has carried so many bytes. */
async function carry(bytes: number): Promise<void> {
  line = Math.max(line, performance.now()) + bytes / BYTES_PER_MS;
  const ms = line - performance.now();
  if (ms > 1) await sleep(ms);
}

async function ask(path: string, options: RequestInit = {}): Promise<void> {
  try {
    if (typeof options.body === 'string') await carry(options.body.length);
    const response = await fetch(path, { dispatcher, signal: stop.signal, ...options });
    // Not by the counts: connections beyond the limit of an address may fail before there is an answer.
    if (!hasBegun) process.send?.('begun');
    hasBegun = true;
    counts[response.status] = (counts[response.status] ?? 0) + 1;
    for await (const chunk of response.body ?? []) await carry((chunk as Uint8Array).length);
  } catch {
    if (!stop.signal.aborted) counts['failed'] = (counts['failed'] ?? 0) + 1;
  }
}

async function attack({ url, headers, user, kinds }: Order): Promise<void> {
  const json = { ...headers, 'content-type': 'application/json' };
  const sessions = `${url}/apps/harness_agent/users/${user}/sessions`;
  const world = { url, user, sessions };
  const again = async ({ method = 'GET', path, body, headers: own }: Attack) => {
    const text = typeof body === 'object' ? JSON.stringify(body) : body;
    const options = { method, headers: own ?? (text === undefined ? headers : json), body: text ?? null };
    while (!stop.signal.aborted) await ask(path, options);
  };
  for (const kind of kinds) {
    for (const each of ATTACKS[kind](world)) for (let count = 0; count < each.times; count += 1) void again(each);
  }
}

process.on('message', (message: Order | 'stop') => {
  if (message !== 'stop') void attack(message);
  else {
    stop.abort();
    process.send?.(counts, () => process.exit());
  }
});
process.send?.('ready');
