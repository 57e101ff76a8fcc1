import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Event } from '../../src/core/event.ts';
import { newTextReader, readText, type TextReader } from '../support/text-reader.ts';
import { newChatReader, newStreamReader, newThreadReader, readDoor } from './support/door-readers.ts';
import { eventually, listPath, modelSettings, report, sessionPath, stage } from './support/faults.ts';
import { either, random } from './support/seed.ts';
import { type ServerProcess, startServer } from './support/server-process.ts';

/**
 * Readers of an answer under way, each cut at random bytes and back on any replica, while replicas are killed: in the
 * end each has the text that is stored, and no piece of it twice.
 */

const READERS = either(50, 1_000);
/** Readers through each door. */
const DOOR_READERS = either(10, 300);
/** Kills of the process that runs it. */
const KILLS = either(2, 4);
const LEASE_MS = 3_000;
/** So many that the answer is not over before all is killed. */
const WORDS = either(1_000, 6_000);
const MAX_BYTES = 40_000;

/** A model that speaks for some seconds, each time in other words, so that two tries cannot be taken for one. */
function startSpeaker() {
  let requests = 0;
  const server = createServer((request, response) => {
    request.resume();
    const name = ++requests;
    const chunk = (delta: object, reason: string | null) => {
      const choices = [{ index: 0, delta, finish_reason: reason }];
      const said = { id: 'c', object: 'chat.completion.chunk', created: 1, model: 'speaker', choices };
      return `data: ${JSON.stringify(said)}\n\n`;
    };
    void (async () => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      for (let word = 0; word < WORDS && !response.destroyed; word++) {
        response.write(chunk({ role: 'assistant', content: `${name}-${word} ` }, null));
        await sleep(20);
      }
      response.end(`${chunk({}, 'stop')}data: [DONE]\n\n`);
    })();
  });
  return { server, requests: () => requests };
}

const here = stage();
const speaker = startSpeaker();
let servers: ServerProcess[] = [];
const start = () =>
  startServer(here.servingUrl, {
    ...modelSettings(`http://127.0.0.1:${(speaker.server.address() as AddressInfo).port}/v1`),
    TOOLS: '',
    SESSION_LEASE_MS: String(LEASE_MS),
    SWEEP_INTERVAL_MS: '500',
    INVOCATION_ATTEMPTS: '10',
  });
beforeAll(async () => {
  await new Promise<void>((resolve) => speaker.server.listen(0, '127.0.0.1', resolve));
  servers = await Promise.all([start(), start()]);
});
afterAll(async () => {
  await Promise.all(servers.map((server) => server.kill()));
  speaker.server.closeAllConnections();
  speaker.server.close();
});

const path = sessionPath('u', 's');
const { pick, whole: wholeNumber } = random('readers of text');

/** Reads until the answer is there, over one connection after another. @returns how many */
async function follow(reader: TextReader, isOver: () => boolean): Promise<number> {
  let connections = 0;
  while (!isOver()) {
    connections += 1;
    const headers = reader.place === undefined ? {} : { 'last-event-id': reader.place };
    const leave = new AbortController();
    await fetch(`${pick(servers).url}${path}/events/stream?deltas=true`, { headers, signal: leave.signal })
      .then((response) => readText(reader, response, isOver, wholeNumber(1, MAX_BYTES)))
      .catch(() => sleep(50)); // the replica is gone: another one goes on
    leave.abort();
  }
  return connections;
}

test('each reader has the stored text, whatever was cut and killed', async () => {
  await servers[0]?.post(listPath('u'), { sessionId: 's' });
  const newMessage = { role: 'user', parts: [{ text: 'Speak.' }] };
  const begun = await servers[0]?.post(`${path}/invocations`, { newMessage, streaming: true });
  expect(begun?.status).toBe(200);
  const readers = Array.from({ length: READERS }, () => newTextReader());
  const invocationId = (begun?.body as { id: string } | undefined)?.id ?? '';
  const app = 'harness_agent';
  const doors = Array.from({ length: DOOR_READERS }, () => [
    newChatReader(app, 'u', 's'),
    newThreadReader(app, 'u', 's'),
    newStreamReader(app, 'u', 's', invocationId),
  ]).flat();
  const pickUrl = () => pick(servers).url;
  const throughDoors = Promise.all(
    doors.map((reader) => readDoor(reader, pickUrl, () => wholeNumber(1, 3 * MAX_BYTES))),
  );
  const followed = Promise.all(readers.map((reader) => follow(reader, () => reader.whole.size === 2)));
  let kills = 0;
  while (speaker.requests() <= KILLS) {
    const before = speaker.requests();
    const reading = () => readers.filter(({ open }) => open.size > 0).length;
    await eventually('most readers have text', 120_000, async () => reading() > READERS / 2);
    const victim = kills++ % 2;
    await servers[victim]?.kill();
    const other = servers[1 - victim] as ServerProcess;
    // Until then readers meet a replica that is not there; the other one may have run it, and goes on.
    servers[victim] = await start();
    const running = async () => ((await other.get(`${path}/invocations`)).text.includes('"running"') ? 1 : 0);
    await eventually('it runs', 120_000, async () => speaker.requests() > before || (await running()) === 1);
  }
  const connections = (await followed).reduce((sum, each) => sum + each, 0);
  const doorConnections = (await throughDoors).reduce((sum, each) => sum + each, 0);
  const session = (await servers[0]?.get(path))?.body as { events: Event[] };
  const texts = session.events.map(({ content }) => content?.parts?.map(({ text }) => text).join(''));
  for (const { whole, faults } of readers) expect([[...whole.values()], faults]).toEqual([texts, []]);
  for (const { text, faults } of doors) expect([text, faults]).toEqual([texts[1], []]);
  expect((await here.sql.query('select count(*)::int as n from event_deltas')).rows).toEqual([{ n: 0 }]);
  const voids = readers.reduce((sum, each) => sum + each.voids, 0);
  const deltas = readers.reduce((sum, each) => sum + each.deltas, 0);
  report(
    `${READERS} readers, and ${DOOR_READERS} through each door, cut at random bytes`,
    `${connections} and ${doorConnections} connections, ${deltas} pieces, text taken back ${voids} times, ` +
      `${kills} kills, ` +
      `${speaker.requests()} calls of the model, ${texts[1]?.length} characters; all equal`,
  );
});
