import { expect, test } from 'vitest';
import type { LiveConnection, LiveInput, LiveMessage } from '../../../../src/agent/definition/model.ts';
import { LiveAudio } from '../../../../src/agent/loop/live-audio.ts';
import { runLiveTurn } from '../../../../src/agent/loop/live-turn.ts';
import { AgentError } from '../../../../src/core/errors.ts';
import type { NewEvent } from '../../../../src/core/event.ts';
import { WaitingQueue } from '../../../../src/platform/work/waiting-queue.ts';
import { agent, runInput, tool } from '../../../support/agent-fixtures.ts';

/** A scripted connection: messages come as the test pushes them, and what is sent is kept. */
function scriptedConnection(...messages: LiveMessage[]) {
  const queue = new WaitingQueue<LiveMessage>();
  for (const message of messages) queue.push(message);
  const taken = new AbortController();
  const sent: LiveInput[] = [];
  const connection: LiveConnection = {
    send: (input) => void sent.push(input),
    ready: () => queue.ready(),
    peek: () => queue.peek(),
    shift: () => queue.shift(),
    cancelled: () => taken.signal,
    close: () => undefined,
  };
  const takeBack = () => taken.abort(new AgentError('interrupted', 'taken back'));
  return { connection, sent, push: (message: LiveMessage) => queue.push(message), takeBack };
}

async function run(input: ReturnType<typeof runInput>, connection: LiveConnection, audio?: LiveAudio) {
  const steps = runLiveTurn(input, { connection, content: undefined, inputTranscript: '', audio });
  const events: NewEvent[] = [];
  for (;;) {
    const { done, value } = await steps.next();
    if (done) return { events, end: value };
    events.push(value);
  }
}
const textsOf = (events: NewEvent[]) =>
  events.map(({ content, partial }) => [partial, content?.parts?.map(({ text }) => text).join('')]);
const complete: LiveMessage = { turnComplete: true };

test('a call that the model takes back is stopped and answered for the history; the turn goes on', async () => {
  const started = Promise.withResolvers<void>();
  const slow = tool('slow', (_args, { signal }) => {
    started.resolve();
    return new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error)));
  });
  const live = scriptedConnection({ calls: [{ id: 'c', name: 'slow', args: {} }] });
  const running = run(runInput({ agent: agent({ tools: [slow] }) }), live.connection);
  await started.promise;
  live.takeBack();
  live.push({ parts: [{ text: 'never mind' }] });
  live.push(complete);
  const { events, end } = await running;
  expect(events[1]?.content?.parts).toEqual([
    { functionResponse: { id: 'c', name: 'slow', response: { error: 'interrupted' } } },
  ]);
  expect(events.map(({ errorCode }) => errorCode)).toEqual(events.map(() => undefined));
  expect(live.sent).toEqual([]);
  expect(end).toMatchObject({ error: undefined, output: 'never mind', llmCalls: 1 });
});

test('an abort answers the calls and keeps what was said', async () => {
  const stop = new AbortController();
  const slow = tool('slow', (_args, { signal }) => {
    stop.abort(new AgentError('cancelled', 'The invocation was cancelled.'));
    return new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error)));
  });
  const live = scriptedConnection({ outputTranscription: { text: 'wait', finished: false } });
  live.push({ calls: [{ name: 'slow', args: {} }] });
  const { events, end } = await run(
    runInput({ agent: agent({ tools: [slow] }), signal: stop.signal }),
    live.connection,
  );
  const [, call, response, said] = events;
  expect(call?.content?.parts?.[0]?.functionCall?.id).toBe(response?.content?.parts?.[0]?.functionResponse?.id);
  expect(said?.outputTranscription).toEqual({ text: 'wait', finished: true });
  expect(end.error).toEqual({ code: 'cancelled', message: 'The invocation was cancelled.' });
  expect(end.lastEvent).toMatchObject({ errorCode: 'cancelled', nodeInfo: { path: '' } });
});

test('thoughts and text are events of their own', async () => {
  const live = scriptedConnection(
    { parts: [{ text: 'hm', thought: true }] },
    { parts: [{ text: 'a' }, { text: 'b' }] },
    { ...complete, groundingMetadata: { webSearchQueries: ['q'] } },
  );
  const { events, end } = await run(runInput(), live.connection);
  expect(textsOf(events)).toEqual([
    [true, 'hm'],
    [false, 'hm'],
    [true, 'a'],
    [true, 'b'],
    [false, 'ab'],
  ]);
  expect(events[1]?.content?.parts).toEqual([{ text: 'hm', thought: true }]);
  expect(events[4]?.groundingMetadata).toEqual({ webSearchQueries: ['q'] });
  expect([end.output, end.lastEvent?.turnComplete]).toEqual(['ab', true]);
});

test('a transcription that says that it is finished is whole, and each of several', async () => {
  const heard = (text: string, finished: boolean) => ({ inputTranscription: { text, finished } });
  const live = scriptedConnection(heard('one', true), heard('t', false), heard('wo', true), complete);
  const { events } = await run(runInput(), live.connection);
  expect(events.map(({ author, partial, inputTranscription }) => [author, partial, inputTranscription?.text])).toEqual([
    ['user', true, 'one'],
    ['user', false, 'one'],
    ['user', true, 't'],
    ['user', true, 'wo'],
    ['user', false, 'two'],
  ]);
});

test('saved sound is the end of what was said where it is more than ten megabytes', async () => {
  const saved: number[] = [];
  const audio = new LiveAudio();
  const second = Buffer.alloc(1024 * 1024).toString('base64');
  for (let n = 0; n < 12; n += 1) audio.addInput({ mimeType: 'audio/pcm', data: second });
  audio.addInput({ mimeType: 'image/jpeg', data: second });
  const input = runInput();
  const services = {
    ...input.services,
    saveArtifact: async (_name: string, part: { inlineData?: { data?: string | null } | null }) =>
      saved.push(Buffer.from(part.inlineData?.data ?? '', 'base64').byteLength) - 1,
  };
  await run({ ...input, services }, scriptedConnection(complete).connection, audio);
  expect(saved).toEqual([10 * 1024 * 1024]);
});
