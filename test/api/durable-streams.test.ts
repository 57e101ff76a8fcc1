import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { beforeAll, beforeEach, expect, test } from 'vitest';
import { tool } from '../support/agent-fixtures.ts';
import { hostAgent } from '../support/agents.ts';
import type { Event } from '../../src/core/event.ts';
import { startApp, startOn } from '../support/app.ts';
import { startWriter } from '../support/durable-writer.ts';
import { LEFT_OUT, SELECTED } from '../support/durable-suite.ts';
import { loadFrontEnd, resolveFrontEnd } from '../support/front-ends.ts';
import { callPart } from '../support/scripted-model.ts';
import { SpokenModel } from '../support/spoken-model.ts';
import { readFrames } from '../support/text-reader.ts';
import { staged, stagedSql } from '../support/staged.ts';
import { MINUTE } from '../support/patience.ts';

/** The door for readers of durable streams: their client, and the reading half of their suite. */

interface StreamResponse {
  subscribeJson(take: (batch: { items: Message[]; offset: string }) => Promise<void> | void): () => void;
  cancel(): void;
}
type Message = {
  event?: { id: string; content?: { parts: { text?: string }[] } };
  piece?: { eventId: string; text: string };
};
type Stream = (options: object) => Promise<StreamResponse>;
type Json = Record<string, unknown>;

const model = new SpokenModel();
const agents = hostAgent(model, [tool('ask', async () => undefined, { longRunning: true })]);
let stream: Stream;
beforeAll(async () => {
  ({ stream } = (await loadFrontEnd('@durable-streams/client')) as { stream: Stream });
});
const app = staged(() => startApp({}, { agents, sweepIntervalMs: 50 }));
const other = staged(() => startOn(app.databaseUrl, {}, { agents }));
const sql = stagedSql(app);
beforeEach(() => void (model.calls.length = 0));

const SESSIONS = '/apps/harness_agent/users/user/sessions';
const DOOR = '/durable-streams/harness_agent/sessions';
const begin = async (sessionId: string): Promise<string> => {
  await app.post(SESSIONS, { sessionId });
  const newMessage = { role: 'user', parts: [{ text: 'Speak.' }] };
  const started = await app.post(`${SESSIONS}/${sessionId}/invocations`, { newMessage, streaming: true });
  return (started.body as { id: string }).id;
};
const urlOf = (at: string, sessionId: string, id?: string) =>
  `${at}${DOOR}/${sessionId}${id === undefined ? '' : `/invocations/${id}`}`;

test.each(['sse', 'long-poll'] as const)(
  'a reader over %s goes on inside an answer, on another replica',
  async (live) => {
    const id = await begin(live);
    const call = await model.called(1);
    const messages: Message[] = [];
    let offset = '-1';
    const read = async (at: string, isEnough: () => boolean) => {
      const response = await stream({ url: urlOf(at, live, id), offset, live, json: true });
      await new Promise<void>((resolve) => {
        const unsubscribe = response.subscribeJson((batch) => {
          messages.push(...batch.items);
          ({ offset } = batch);
          if (!isEnough()) return;
          unsubscribe();
          resolve();
        });
      });
      response.cancel();
    };
    const said = () => messages.map(({ piece }) => piece?.text ?? '').join('');
    await call.say('Once upon a time there was a king ');
    await read(app.url, () => said().startsWith('Once upon a time '));
    await call.say('who had three daughters.');
    call.end();
    await read(other.url, () => messages.filter(({ event }) => event).length === 2);
    const whole = 'Once upon a time there was a king who had three daughters.';
    expect(said()).toBe(whole);
    expect(messages.at(-1)?.event?.content?.parts).toEqual([{ text: whole }]);
    // What is read again is the same, and then closed.
    await expect.poll(async () => (await app.get(urlOf('', live, id))).headers.get('stream-closed')).toBe('true');
    const again = await app.get(urlOf('', live, id));
    expect(again.body).toEqual(messages);
    expect((await app.get(urlOf('', live, id), { 'if-none-match': again.headers.get('etag') ?? '' })).status).toBe(304);
    const rest = await app.get(`${urlOf('', live, id)}?offset=${offset}&live=${live}`);
    if (live === 'sse') expect(rest.text).toContain('"streamClosed":true');
    else expect([rest.status, rest.headers.get('stream-closed')]).toEqual([204, 'true']);
  },
);

test('where text is taken back a chat is told, and the offsets of a stream do not go back', async () => {
  const id = await begin('again');
  const leave = new AbortController();
  const open = async (path: string) => {
    const frames: string[] = [];
    const response = await fetch(other.url + path, { signal: leave.signal });
    const reading = (async () => {
      for await (const frame of readFrames(response)) frames.push(frame);
    })();
    return { frames, ended: reading.catch(() => undefined) };
  };
  const chat = await open('/ai-sdk/harness_agent/chat/again/stream?version=7');
  const pieces = await open(`${urlOf('', 'again', id)}?offset=-1&live=sse`);
  await (await model.called(1)).say('The first try is long enough to be cut into several pieces ');
  for (const { frames } of [chat, pieces]) await expect.poll(() => frames.join('')).toContain('cut into several ');
  await sql.query(`update invocations set lease_expire_time = now() - interval '1 second' where session_id = 'again'`);
  const second = await model.called(2);
  await second.say('The second try is another text, and is longer than the first one was, by a few words.');
  second.end();
  await Promise.all([chat.ended, pieces.ended]);
  const chunks = chat.frames.flatMap((frame) =>
    frame.startsWith('data: {') ? [JSON.parse(frame.slice(6)) as Json] : [],
  );
  const back = chunks.findIndex(({ type }) => type === 'reset-step');
  const textOf = (some: Json[]) => some.map(({ delta = '' }) => delta as string).join('');
  expect(textOf(chunks.slice(0, back))).toBe('The first try is long enough to be cut into several ');
  expect(textOf(chunks.slice(back))).toMatch(/^The second try .* words\.$/);
  const offsets = pieces.frames.flatMap((frame) => /"streamNextOffset":"([^"]+)"/.exec(frame)?.[1] ?? []);
  expect(offsets.length).toBeGreaterThan(2);
  expect(offsets).toEqual(offsets.toSorted());
});

test.each(['sse', 'long-poll'] as const)('a reader over %s waits while a person is asked', async (live) => {
  const id = await begin(`paused-${live}`);
  (await model.called(1)).end([callPart('ask')]);
  const session = `${SESSIONS}/paused-${live}`;
  await expect
    .poll(async () => (await app.get(`${session}/invocations/${id}`)).body)
    .toMatchObject({ status: 'paused' });
  const asked = await app.get(urlOf('', `paused-${live}`, id));
  const offset = asked.headers.get('stream-next-offset');
  const reading = app.get(`${urlOf('', `paused-${live}`, id)}?offset=${offset}&live=${live}`);
  const events = (asked.body as { event?: Event }[]).flatMap(({ event }) => (event ? [event] : []));
  const call = events.at(-1)?.content?.parts?.[0]?.functionCall;
  const functionResponse = { id: call?.id, name: 'ask', response: { so: 'be it' } };
  let isAnswered = false;
  void reading.then(() => (isAnswered = true));
  for (let n = 0; n < 50; n += 1) await app.get(session);
  expect(isAnswered).toBe(false);
  const newMessage = { role: 'user', parts: [{ functionResponse }] };
  const key = { appName: 'harness_agent', userId: 'user', sessionId: `paused-${live}` };
  const answering = app.post('/run', { ...key, invocationId: id, newMessage });
  (await model.called(2)).end([{ text: 'So be it.' }]);
  await answering;
  const { status, text } = await reading;
  expect([status, text]).toEqual([200, expect.stringContaining('be it')]);
  if (live === 'sse') expect(text).toContain('"streamClosed":true');
});

test('the events of a session are a stream that stays open, and nobody writes', async () => {
  await begin('whole');
  (await model.called(1)).end([{ text: 'Hello.' }]);
  await expect.poll(async () => ((await app.get(urlOf('', 'whole'))).body as unknown[]).length).toBe(2);
  const { body, headers } = await app.get(urlOf('', 'whole'));
  expect(body).toEqual(((await app.get(`${SESSIONS}/whole`)).body as { events: unknown[] }).events);
  expect([headers.get('stream-next-offset'), headers.get('stream-closed')]).toEqual(['0000000002_0000000000', null]);
  expect((await app.get(`${urlOf('', 'whole')}?offset=now`)).body).toEqual([]);
  for (const method of ['POST', 'PUT', 'DELETE']) {
    const refused = await app.send(method, urlOf('', 'whole'));
    expect([refused.status, refused.headers.get('allow')]).toEqual([405, 'GET, HEAD, OPTIONS']);
  }
  for (const offset of ['', 'a', '1_1', '9999999999_0000000000', '0000000001_0000000000,'])
    expect((await app.get(`${urlOf('', 'whole')}?offset=${offset}`)).status).toBe(400);
  for (const path of [urlOf('', 'none'), urlOf('', 'whole', 'none'), `${urlOf('', 'whole')}?user_id=bob`])
    expect((await app.get(path)).status).toBe(404);
});

test('the suite of the protocol: reading and closing', { timeout: 10 * MINUTE }, async () => {
  const writer = await startWriter(app, sql);
  const directory = mkdtempSync(join(tmpdir(), 'agent-runtime-suite-'));
  const report = join(directory, 'report.json');
  const vitest = join(dirname(resolveFrontEnd('vitest/package.json')), 'vitest.mjs');
  const options = [
    'run',
    'durable-streams.suite.js',
    '--reporter=json',
    '--sequence.concurrent',
    `--outputFile=${report}`,
  ];
  const child = spawn(process.execPath, [vitest, ...options, '-t', SELECTED.join('|')], {
    env: { ...process.env, CONFORMANCE_TEST_URL: writer.url },
    cwd: dirname(resolveFrontEnd('./package.json')),
    stdio: 'ignore',
  });
  await new Promise((resolve) => child.once('close', resolve));
  await writer.close();
  const { testResults } = JSON.parse(readFileSync(report, 'utf8')) as {
    testResults: { assertionResults: { fullName: string; status: string; failureMessages: string[] }[] }[];
  };
  rmSync(directory, { recursive: true });
  const results = testResults.flatMap((each) => each.assertionResults);
  const of = (status: string) => results.filter((each) => each.status === status);
  console.log(`suite: ${of('passed').length} passed, ${of('failed').length} left out, ${results.length} in all`);
  const failed = Object.fromEntries(
    of('failed').map((each) => [each.fullName, each.failureMessages[0]?.slice(0, 200)]),
  );
  expect(
    Object.keys(failed)
      .filter((name) => !(name in LEFT_OUT))
      .map((name) => [name, failed[name]]),
  ).toEqual([]);
  expect(Object.keys(LEFT_OUT).filter((name) => !(name in failed))).toEqual([]);
  expect(of('passed').length).toBeGreaterThan(100);
});
