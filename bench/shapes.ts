import { closedLoop, LoadClient, median, quantile } from './load.ts';
import type { Extent } from './measure.ts';
import { memoryOf } from './processes.ts';
import { seedEmpty, seedSessions, sessionsPath } from './seed.ts';
import { IN_FLIGHT, startProgram, type Target } from './targets.ts';
import { runRequest } from './works.ts';

/** What is measured of one target beside the rows: start, memory, a session that grows, one that is wanted by all. */
export interface Shape {
  startMs?: number;
  startCpuMs?: number;
  /** Before the first request, and after all rows. MB. */
  idleMemory?: number;
  loadedMemory?: number;
  /** p50 of the first and of the last invocations of a growing session, ms, and its events at the end. */
  growth?: { events: number; first: number; last: number };
  /** p50 of invocations of one session, ms: one at a time, and with 16 in flight. */
  alone?: number;
  together?: number;
}

/** What only the runtime promises. */
export interface Large {
  /** p99 of pages of 50 sessions, ms, and of how many sessions. */
  pageP99: number;
  sessions: number;
  /** Growth of its memory while 16 clients read 3,000 events, MB. */
  readMemory: number;
}

const PROMPT = 'What is the weather?';
/** Invocations whose median is compared: the first and the last so many. */
const COMPARED = 50;

/** The start of each program on its own, with its database there. */
export async function measureStart(target: Target, starts: number): Promise<Shape> {
  if (target.name === 'database') return {};
  const [times, cpu, memory]: [number[], number[], number[]] = [[], [], []];
  for (let n = 0; n < starts; n++) {
    const server = await startProgram(target.name, target.databaseUrl);
    times.push(server.startMs);
    cpu.push(server.startCpuMs);
    memory.push(memoryOf(server.pid));
    await server.stop();
  }
  return { startMs: median(times), startCpuMs: median(cpu), idleMemory: median(memory) };
}

/** One session from no event on, two events an invocation. */
export async function measureGrowth(target: Target, extent: Extent): Promise<Pick<Shape, 'growth'>> {
  const isPeer = target.name === 'peer';
  const events = isPeer ? extent.grownEventsOfPeer : extent.grownEvents;
  if (!target.client || events === 0) return {};
  await seedEmpty(target.databaseUrl, `grown-${target.name}`, 0, 1, isPeer);
  const times: number[] = [];
  for (let n = 0; n < events / 2; n++) {
    const sentAt = performance.now();
    await target.client.send(runRequest(`grown-${target.name}`, 's0', PROMPT));
    times.push(performance.now() - sentAt);
  }
  return { growth: { events, first: median(times.slice(0, COMPARED)), last: median(times.slice(-COMPARED)) } };
}

/** One session that 16 want at once, each again as soon as it is answered. */
export async function measureHotSession(target: Target, limit: number): Promise<Pick<Shape, 'alone' | 'together'>> {
  const { client } = target;
  if (!client || target.name === 'express') return {};
  await seedEmpty(target.databaseUrl, 'hot', 0, 2, target.name === 'peer');
  const run = async (session: string, width: number) => {
    const send = () => client.send(runRequest('hot', session, PROMPT));
    return quantile((await closedLoop(send, { width, ms: 60_000, limit })).latencies, 0.5);
  };
  return { alone: await run('s0', 1), together: await run('s1', IN_FLIGHT) };
}

/** Pages of a long list, and memory while many read a long session. */
export async function measureLarge(ours: Target, extent: Extent): Promise<Large | undefined> {
  const { client, server } = ours;
  if (!client || !server) return undefined;
  await seedSessions(client, 'paged', extent.pagedSessions);
  const path = `${sessionsPath('paged')}?limit=50`;
  await closedLoop(() => client.send({ method: 'GET', path }), { width: 1, ms: 60_000, limit: 50 });
  const pages = await closedLoop(() => client.send({ method: 'GET', path }), { width: 1, ms: 60_000, limit: 500 });
  const reader = new LoadClient(server.url, IN_FLIGHT);
  const before = memoryOf(server.pid);
  let highest = before;
  const watch = setInterval(() => (highest = Math.max(highest, memoryOf(server.pid))), 50);
  const read = () => reader.send({ method: 'GET', path: `${sessionsPath('e3000')}/s` });
  await closedLoop(read, { width: IN_FLIGHT, ms: extent.readMs });
  clearInterval(watch);
  await reader.close();
  return { pageP99: quantile(pages.latencies, 0.99), sessions: extent.pagedSessions, readMemory: highest - before };
}

/** Memory after all rows; of a program that was started for the load. */
export const loadedMemory = ({ server }: Target): number | undefined => server && memoryOf(server.pid);
