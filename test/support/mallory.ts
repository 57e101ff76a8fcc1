// oxlint-disable unicorn/require-post-message-target-origin -- ports of a thread, not windows
import { parentPort, workerData } from 'node:worker_threads';

/**
 * A user in a thread of its own who does all at once, as often as it is let: large reads, runs, writes, huge bodies,
 * streams, wrong credentials. What it is answered is counted by status.
 */
const { url, headers } = workerData as { url: string; headers: Record<string, string> };
const sessions = `${url}/apps/harness_agent/users/mallory/sessions`;
const stop = new AbortController();
const counts: Record<string, number> = {};
const json = { ...headers, 'content-type': 'application/json' };

async function ask(path: string, options: RequestInit = {}): Promise<void> {
  try {
    const response = await fetch(path, { headers, signal: stop.signal, ...options });
    counts[response.status] = (counts[response.status] ?? 0) + 1;
    for await (const chunk of response.body ?? []) void chunk;
  } catch {
    if (!stop.signal.aborted) counts['failed'] = (counts['failed'] ?? 0) + 1;
  }
}

const again = async (work: () => Promise<void>) => {
  while (!stop.signal.aborted) await work();
};
const times = (count: number, work: () => Promise<void>) => Array.from({ length: count }, () => again(work));
const post = (path: string, body: object | string) =>
  ask(path, { method: 'POST', headers: json, body: typeof body === 'string' ? body : JSON.stringify(body) });

const event = { author: 'user', content: { role: 'user', parts: [{ text: 'x'.repeat(900_000) }] } };
await post(sessions, { sessionId: 'large' });
for (let count = 0; count < 30; count += 1) await post(`${sessions}/large/events`, event);

const keys = `{"stateDelta":{${Array.from({ length: 600_000 }, (_, index) => `"k${index}":1`).join()}}}`;
const run = () => ({
  appName: 'harness_agent',
  userId: 'mallory',
  sessionId: 'large',
  newMessage: { role: 'user', parts: [{ text: 'go' }] },
});
const attacks = () => [
  ...times(16, () => ask(`${sessions}/large`)),
  ...times(8, () => ask(sessions)),
  ...times(60, () => post(`${url}/run`, run())),
  ...times(16, () => post(sessions, {})),
  ...times(2, () => ask(`${sessions}/large`, { method: 'PATCH', headers: json, body: keys })),
  ...times(200, () => ask(`${sessions}/large/events/stream?afterSequence=30`)),
  ...times(8, () => ask(`${url}/list-apps`, { headers: { authorization: 'Bearer wrong' } })),
];

parentPort?.on('message', (message: 'attack' | 'stop') => {
  if (message === 'attack') void Promise.all(attacks());
  else {
    stop.abort();
    parentPort?.postMessage(counts);
  }
});
parentPort?.postMessage('ready');
