import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Event } from '../../src/core/event.ts';
import { newTextReader, takeFrame } from '../support/text-reader.ts';
import {
  type DoorReader,
  newChatReader,
  newResponseReader,
  newStreamReader,
  newThreadReader,
  readDoor,
} from './support/door-readers.ts';
import { eventually, listPath, modelSettings, report, sessionPath, stage } from './support/faults.ts';
import { paced } from './support/pace.ts';
import { either, isLong, random } from './support/seed.ts';
import { type ServerProcess, startServer } from './support/server-process.ts';
import { startSpeaker } from './support/speaker.ts';
import { MINUTE, SECOND } from '../support/patience.ts';

/**
 * Readers of an answer under way, each cut at random bytes and back on any replica, while replicas are killed: in the
 * end each has the text that is stored, and no piece of it twice.
 */

type Kind = keyof typeof OPEN;
/** Readers of one answer by their door; in the long set 1,000 each in turn: at once they are too many to read. */
const SETS: Partial<Record<Kind, number>>[] = isLong
  ? [{ own: 1_000 }, { chat: 1_000 }, { thread: 1_000 }, { stream: 1_000 }, { response: 1_000 }]
  : [{ own: 50, chat: 10, thread: 10, stream: 10, response: 10 }];
/** Kills of the process that runs it. */
const KILLS = either(2, 3);
/** Longer than a machine with 1,000 readers is late: a lease that is missed is a death, and pauses grow with those. */
const LEASE_MS = paced(either(3_000, 10_000));
/** So many that the answer is not over before all is killed. */
const WORDS = either(1_000, 1_500);
const WORD_MS = either(20, 60);
/** Bytes of a connection at most; some begin at the beginning each time, and must get to the end. */
const MAX_BYTES = {
  own: 40_000,
  stream: 40_000,
  response: 40_000,
  chat: either(MINUTE, 200 * SECOND),
  thread: either(MINUTE, 200 * SECOND),
};

const here = stage();
const speaker = await startSpeaker(WORDS, WORD_MS);
let servers: ServerProcess[] = [];
const start = () =>
  startServer(here.servingUrl, {
    ...modelSettings(speaker.baseUrl),
    TOOLS: '',
    SESSION_LEASE_MS: String(LEASE_MS),
    INVOCATION_ATTEMPTS: '10',
  });
beforeAll(async () => {
  servers = await Promise.all([start(), start()]);
});
afterAll(async () => {
  await Promise.all(servers.map((server) => server.kill()));
  speaker.close();
});

const APP = 'harness_agent';
const { pick, whole: wholeNumber } = random('readers of text');

/** A reader of our own stream, as one of a door: it goes on behind the last `id`. */
function newOwnReader(sessionId: string): DoorReader {
  const reader = newTextReader();
  const path = `${sessionPath('u', sessionId)}/events/stream?deltas=true`;
  return {
    faults: reader.faults,
    next: () => ({ path, headers: reader.place === undefined ? {} : { 'last-event-id': reader.place } }),
    begin: () => undefined,
    takeFrame: (frame) => takeFrame(reader, frame),
    get text() {
      return [...[...reader.whole.values()].slice(1), ...reader.open.values()].join('');
    },
    get isOver() {
      return reader.whole.size === 2;
    },
  };
}

const OPEN = {
  own: newOwnReader,
  chat: (sessionId: string) => newChatReader(APP, 'u', sessionId),
  thread: (sessionId: string) => newThreadReader(APP, 'u', sessionId),
  stream: (sessionId: string, invocationId: string) => newStreamReader(APP, 'u', sessionId, invocationId),
  response: (sessionId: string, invocationId: string) => newResponseReader(APP, 'u', sessionId, invocationId),
} as const;

test.each(SETS)('each reader has the stored text, whatever was cut and killed: %o', async (set) => {
  const sessionId = Object.keys(set).join('-');
  const path = sessionPath('u', sessionId);
  const first = speaker.requests();
  await servers[0]?.post(listPath('u'), { sessionId });
  const newMessage = { role: 'user', parts: [{ text: 'Speak.' }] };
  const begun = await servers[0]?.post(`${path}/invocations`, { newMessage, streaming: true });
  expect(begun?.status).toBe(200);
  const { id = '' } = (begun?.body ?? {}) as { id?: string };
  const readers = (Object.entries(set) as [Kind, number][]).flatMap(([kind, count]) =>
    Array.from({ length: count }, () => ({ reader: OPEN[kind](sessionId, id), maxBytes: MAX_BYTES[kind] })),
  );
  const pickUrl = () => pick(servers).url;
  const reading = Promise.all(
    readers.map(({ reader, maxBytes }) => readDoor(reader, pickUrl, () => wholeNumber(1, maxBytes))),
  );
  let kills = 0;
  while (speaker.requests() - first <= KILLS) {
    const haveText = () => readers.filter(({ reader: { text } }) => text.includes(`${speaker.requests()}-`)).length;
    await eventually('most readers have text', 5 * MINUTE, async () => haveText() > readers.length / 2);
    const before = speaker.requests();
    const victim = kills++ % 2;
    await servers[victim]?.kill();
    const other = servers[1 - victim] as ServerProcess;
    // Until then readers meet a replica that is not there; the other one may have run it, and goes on.
    servers[victim] = await start();
    const running = async () => ((await other.get(`${path}/invocations`)).text.includes('"running"') ? 1 : 0);
    await eventually('it runs', 2 * MINUTE, async () => speaker.requests() > before || (await running()) === 1);
  }
  const connections = (await reading).reduce((sum, each) => sum + each, 0);
  const session = (await servers[0]?.get(path))?.body as { events: Event[] };
  const said = session.events[1]?.content?.parts?.map(({ text }) => text).join('');
  for (const { reader } of readers) expect([reader.text, reader.faults]).toEqual([said, []]);
  expect((await here.sql.query('select count(*)::int as n from event_deltas')).rows).toEqual([{ n: 0 }]);
  report(
    `${readers.length} readers (${Object.entries(set).join(', ')}), cut at random bytes`,
    `${connections} connections, ${kills} kills, ${speaker.requests() - first} calls of the model, ` +
      `${said?.length} characters; all equal`,
  );
});
