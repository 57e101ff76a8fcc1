import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { readFrames } from '../support/text-reader.ts';
import { APP, listPath, modelSettings, report, stage } from './support/faults.ts';
import { promptFor } from './support/model-server.ts';
import { paced } from './support/pace.ts';
import { type ServerProcess, startServer } from './support/server-process.ts';
import { startSpeaker } from './support/speaker.ts';
import { holdAt, type Point, startVictim, stopAt } from './support/stops.ts';

/**
 * A door reads the events of its invocation from the memory of the process that runs it. That process is killed before,
 * and after, each message to PostgreSQL: no reader has got an event or an end that is not stored. Only text that is
 * marked as not final may be lost.
 */

/** Points of a call, each in a session of its own; one kill ends all. */
const POINTS = 36;
/** Far longer than memory takes to reach a client: a reader that is told too early has got it by then. */
const REST_MS = paced(500);

const here = stage();
const speaker = await startSpeaker(6, 50);
let survivor: ServerProcess;
beforeAll(async () => {
  survivor = await startServer(here.servingUrl, here.environment());
});
afterAll(async () => {
  await survivor.kill();
  speaker.close();
});

/** What a reader was told. */
interface Told {
  /** Sequences or ids of events. */
  events: (number | string)[];
  /** Pieces of text that are not final. */
  pieces: number;
  hasEnded: boolean;
}

type Frame = Record<string, { [name: string]: unknown } | undefined>;

/** Sends a call and reads until the connection breaks. */
async function read(url: string, headers: object, body: object, take: (frame: Frame) => void): Promise<void> {
  const init = { method: 'POST', headers: { 'content-type': 'application/json', ...headers } };
  try {
    const response = await fetch(url, { ...init, body: JSON.stringify({ jsonrpc: '2.0', id: 1, ...body }) });
    for await (const frame of readFrames(response)) {
      const data = /^data: (.*)$/m.exec(frame)?.[1];
      if (data !== undefined) take(JSON.parse(data) as Frame);
    }
  } catch (error) {
    if (!(error instanceof TypeError)) throw error; // the process is gone
  }
}

/** A tool of MCP: its progress is the sequence of each event. */
function callTool(url: string, { userId, sessionId, id }: Point, told: Told): Promise<void> {
  const input = { prompt: promptFor({ id, calls: 2 }), session: sessionId };
  const params = { name: APP, arguments: input, _meta: { progressToken: 1 } };
  const headers = { accept: 'application/json, text/event-stream' };
  return read(`${url}/mcp?user_id=${userId}`, headers, { method: 'tools/call', params }, ({ params: sent, result }) => {
    if (sent) told.events.push(sent['progress'] as number);
    told.hasEnded ||= (result?.['structuredContent'] as { status?: string } | undefined)?.status === 'succeeded';
  });
}

interface Update {
  artifactUpdate?: { artifact: { artifactId: string }; lastChunk: boolean };
  statusUpdate?: { status: { state: string } };
}

/** A stream of A2A: an artifact is an event, and final with its last chunk. */
function sendMessage(url: string, { userId, sessionId, id }: Point, told: Told): Promise<void> {
  const message = { messageId: `m-${id}`, contextId: sessionId, role: 'ROLE_USER', parts: [{ text: 'Speak.' }] };
  const body = { method: 'SendStreamingMessage', params: { message } };
  return read(`${url}/a2a/${APP}?user_id=${userId}`, { 'a2a-version': '1.0' }, body, ({ result }) => {
    const { artifactUpdate, statusUpdate }: Update = result ?? {};
    if (artifactUpdate?.lastChunk === true) told.events.push(artifactUpdate.artifact.artifactId);
    else if (artifactUpdate) told.pieces += 1;
    told.hasEnded ||= statusUpdate?.status.state === 'TASK_STATE_COMPLETED';
  });
}

test.each([
  { name: 'a call with tools', send: callTool, settings: () => here.environment() },
  { name: 'a spoken answer', send: sendMessage, settings: () => ({ ...modelSettings(speaker.baseUrl), TOOLS: '' }) },
])('$name: nobody was told what is not stored', async ({ name, send, settings }) => {
  const victim = await startVictim(here.servingUrl, {
    ...settings(),
    DOORS: 'mcp,a2a',
    DATABASE_POOL_SIZE: '128',
    DATABASE_STATEMENT_TIMEOUT_MS: '600000',
  });
  const stops = Array.from({ length: POINTS }, (_, place) => stopAt(place + 1));
  await Promise.all(stops.map(({ point: { userId, sessionId } }) => survivor.post(listPath(userId), { sessionId })));
  victim.proxy.rules = holdAt(stops);
  const told = stops.map((): Told => ({ events: [], pieces: 0, hasEnded: false }));
  const follow = ({ point }: (typeof stops)[number], place: number) => send(victim.url, point, told[place] as Told);
  // Those with late stops first, until one has ended: one statement stores the text of all, so an early stop holds all.
  const late = stops.slice(POINTS / 2).map((stop, place) => follow(stop, POINTS / 2 + place));
  await expect.poll(() => told.some(({ hasEnded }) => hasEnded)).toBe(true);
  const readings = [...stops.slice(0, POINTS / 2).map(follow), ...late];
  const reached = await Promise.all(
    stops.map((stop, place) => Promise.race([stop.reached.promise, readings[place]?.then(() => 'ended' as const)])),
  );
  await sleep(REST_MS);
  await victim.kill();
  await Promise.all(readings);
  const violations: string[] = [];
  for (const [place, { point, when, message }] of stops.entries()) {
    const { rows: events } = await here.sql.query<{ sequence: number; id: string }>(
      'select sequence, id from events where user_id = $1',
      [point.userId],
    );
    const { rows: ends } = await here.sql.query(`select from invocations where user_id = $1 and status = 'succeeded'`, [
      point.userId,
    ]);
    const stored = new Set<number | string>(events.flatMap(({ sequence, id }) => [sequence, id]));
    const { events: seen, hasEnded } = told[place] as Told;
    const early = seen.filter((event) => !stored.has(event));
    if (early.length > 0) violations.push(`${when} message ${message}: told of ${early.join(', ')}`);
    if (hasEnded && ends.length === 0) violations.push(`${when} message ${message}: told of an end`);
  }
  const sum = (of: (each: Told) => number) => told.reduce((total, each) => total + of(each), 0);
  const held = reached.filter((how) => how === 'reached').length;
  report(
    `readers in memory, ${name}`,
    `${held} points, ${sum(({ events }) => events.length)} events and ${sum(({ pieces }) => pieces)} pieces of text told`,
  );
  expect(violations).toEqual([]);
  expect(held).toBeGreaterThan(POINTS / 4);
  expect(sum(({ events }) => events.length)).toBeGreaterThan(0);
  expect(sum(({ hasEnded }) => Number(hasEnded))).toBeGreaterThan(0);
});
