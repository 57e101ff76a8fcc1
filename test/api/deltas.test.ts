import { beforeEach, expect, test } from 'vitest';
import type { Event } from '../../src/core/event.ts';
import { hostAgent } from '../support/agents.ts';
import { startApp, startOn } from '../support/app.ts';
import { SpokenModel } from '../support/spoken-model.ts';
import { statementsOf } from '../support/store.ts';
import { newTextReader, readText, type TextReader } from '../support/text-reader.ts';
import { staged, stagedSql } from '../support/staged.ts';

/** The text of an answer is stored as it comes: a reader comes and goes, on any replica, and has each piece once. */

const user = '/apps/harness_agent/users/u/sessions';

const model = new SpokenModel();
const agents = hostAgent(model);
const app = staged(() => startApp({}, { agents, sweepIntervalMs: 50 }));
const other = staged(() => startOn(app.databaseUrl, {}, { agents }));
const sql = stagedSql(app);
beforeEach(() => void (model.calls.length = 0));

const newMessage = { role: 'user', parts: [{ text: 'Speak.' }] };
const begin = async (sessionId: string, body = {}) => {
  await app.post(user, { sessionId });
  const answer = await app.post(`${user}/${sessionId}/invocations`, { newMessage, streaming: true, ...body });
  expect(answer.status).toBe(200);
  return model.called(1);
};
const stored = async (sessionId: string): Promise<string[]> =>
  (
    await sql.query<{ payload: string }>('select payload from event_deltas where session_id = $1 order by number', [
      sessionId,
    ])
  ).rows.map(({ payload }) => (JSON.parse(payload) as Event).content?.parts?.[0]?.text ?? '');
/** Says some text and waits until it is stored. */
const say = async (sessionId: string, call: SpokenModel['calls'][number], text: string) => {
  await call.say(text);
  await expect.poll(async () => (await stored(sessionId)).join('')).toMatch(new RegExp(`${text}$`));
};
const read = async (reader: TextReader, sessionId: string, isEnough: () => boolean, at = other.url) => {
  const leave = new AbortController();
  const headers = reader.place === undefined ? {} : { 'last-event-id': reader.place };
  const url = `${at}${user}/${sessionId}/events/stream?deltas=true`;
  await readText(reader, await fetch(url, { headers, signal: leave.signal }), isEnough);
  leave.abort();
};
const count = async () => (await sql.query('select count(*)::int as n from event_deltas')).rows;

test('a reader of another replica has each piece once, and the rest from the event when it is whole', async () => {
  const call = await begin('cut');
  const early = newTextReader();
  for (const text of ['Once ', 'upon ', 'a ']) await say('cut', call, text);
  const late = newTextReader();
  await read(late, 'cut', () => late.open.get('harness_agent') === 'Once upon a ');
  expect([late.whole.get(1), late.place]).toEqual(['Speak.', expect.stringMatching(/^1\.\d{16}$/)]);
  await read(early, 'cut', () => early.deltas === 1);
  await read(early, 'cut', () => early.deltas === 2, app.url);
  expect(early.open.get('harness_agent')).toBe('Once upon ');
  await say('cut', call, 'time');
  await read(early, 'cut', () => early.deltas === 4);
  expect([early.open.get('harness_agent'), early.voids]).toEqual(['Once upon a time', 0]);
  call.end();
  // This one reads on and gets the event; that one comes back when the pieces are gone.
  await read(early, 'cut', () => early.whole.size === 2);
  await read(late, 'cut', () => late.whole.size === 2);
  for (const reader of [early, late]) {
    expect([reader.whole.get(2), reader.place, reader.faults]).toEqual(['Once upon a time', '2', []]);
  }
  expect(await count()).toEqual([{ n: 0 }]);
});

test('a call that is made again takes the text of the first one back', async () => {
  const call = await begin('again');
  await say('again', call, 'First try');
  const [open, back] = [newTextReader(), newTextReader()];
  await read(back, 'again', () => back.deltas === 1);
  const reading = read(open, 'again', () => open.whole.size === 2);
  await expect.poll(() => open.deltas).toBe(1);
  await sql.query(`update invocations set lease_expire_time = now() - interval '1 second' where session_id = 'again'`);
  const second = await model.called(2);
  await second.say('Second');
  await expect.poll(() => open.open.get('harness_agent')).toBe('Second');
  expect(open.voids).toBe(1);
  await read(back, 'again', () => back.open.get('harness_agent') === 'Second');
  expect([back.voids, back.deltas]).toEqual([1, 2]);
  // The process that lost its lease writes no more.
  await call.say(' goes on');
  second.end();
  await reading;
  await read(back, 'again', () => back.whole.size === 2);
  for (const reader of [open, back]) expect([reader.whole.get(2), reader.faults]).toEqual(['Second', []]);
  expect(await count()).toEqual([{ n: 0 }]);
});

test('a repeated /run_sse goes on behind its last piece, on another replica', async () => {
  await app.post(user, { sessionId: 'sse' });
  const body = { appName: 'harness_agent', userId: 'u', sessionId: 'sse', newMessage, streaming: true };
  const reader = newTextReader();
  const ask = async (at: string, isEnough: () => boolean) => {
    const leave = new AbortController();
    const place = reader.place === undefined ? {} : { 'last-event-id': reader.place };
    const headers = { 'content-type': 'application/json', 'idempotency-key': 'sse', ...place };
    const init = { method: 'POST', body: JSON.stringify(body), headers, signal: leave.signal };
    await readText(reader, await fetch(`${at}/run_sse?eventIds=true`, init), isEnough);
    leave.abort();
  };
  const first = ask(app.url, () => reader.deltas === 1);
  const call = await model.called(1);
  await say('sse', call, 'It was ');
  await first;
  await say('sse', call, 'a dark ');
  await ask(other.url, () => reader.deltas === 2);
  await say('sse', call, 'night');
  await ask(other.url, () => reader.deltas === 3);
  expect(reader.open.get('harness_agent')).toBe('It was a dark night');
  call.end();
  await ask(other.url, () => reader.whole.size === 1);
  expect([reader.whole, reader.voids, reader.faults]).toEqual([new Map([[2, 'It was a dark night']]), 1, []]);
});

test('who does not ask for text gets events only, and what does not stream stores none', async () => {
  const call = await begin('plain', { streaming: false });
  const sent = await statementsOf(async () => {
    await call.say('Not for readers.');
    call.end();
    await expect.poll(async () => (await app.get(`${user}/plain/invocations`)).text).toContain('succeeded');
  });
  expect(sent.filter((text) => text.includes('append_deltas'))).toEqual([]);
  model.calls.length = 0;
  const streamed = await begin('events');
  await say('events', streamed, 'Piece');
  streamed.end();
  const reader = newTextReader();
  const response = await fetch(`${app.url}${user}/events/events/stream`);
  await readText(reader, response, () => reader.whole.size === 2);
  expect([reader.deltas, reader.place]).toEqual([0, '2']);
});
