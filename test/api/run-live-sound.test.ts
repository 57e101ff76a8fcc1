import { describe, expect, onTestFinished, test } from 'vitest';
import type { Event } from '../../src/core/event.ts';
import { startApp } from '../support/app.ts';
import { type Frame, isEnd, openLive, say } from '../support/live-client.ts';
import { type LiveClientMessage, type LiveSide, startLiveServer } from '../support/live-server.ts';
import { staged } from '../support/staged.ts';

/** Live sessions with sound, over a server on loopback that speaks Google's live API. */

const KEY = 'key-of-the-provider';
const SOUND = Buffer.from('what the model says').toString('base64');
const sessions = '/apps/harness_agent/users/u/sessions';
const query = (session_id: string, more: Record<string, string> = {}) => ({ user_id: 'u', session_id, ...more });
const hear = (text: string, mime_type = 'audio/pcm') => ({
  blob: { mime_type, data: Buffer.from(text).toString('base64') },
});
const heard = ({ realtimeInput }: LiveClientMessage) =>
  Buffer.from(realtimeInput?.audio?.data ?? '', 'base64').toString();
const parts = (...some: object[]) => ({ serverContent: { modelTurn: { parts: some } } });
const sound = { inlineData: { mimeType: 'audio/pcm;rate=24000', data: SOUND } };
const typed = ({ clientContent }: LiveClientMessage) =>
  clientContent?.turns.at(-1)?.parts.map((part) => (part as { text: string }).text)[0];

/** What the model does when it hears a word, or reads one. */
const REPLIES: Record<string, (side: LiveSide, message: LiveClientMessage) => void> = {
  hello: (side) => {
    side.send({ serverContent: { inputTranscription: { text: 'hel' } } });
    side.send({ serverContent: { inputTranscription: { text: 'lo' } } });
    side.send(parts(sound));
    side.send({ serverContent: { outputTranscription: { text: 'good ' } } });
    side.send(parts(sound));
    side.send({ serverContent: { outputTranscription: { text: 'day' } } });
    side.send({ serverContent: { generationComplete: true } });
    side.send({
      serverContent: { turnComplete: true },
      usageMetadata: { promptTokenCount: 7, responseTokenCount: 5, totalTokenCount: 12 },
    });
  },
  count: (side) => {
    const functionCalls = [{ id: 'call-1', name: 'calculator', args: { expression: '1+1' } }];
    side.send({ toolCall: { functionCalls } });
  },
  choose: (side) => {
    side.send({
      toolCall: { functionCalls: [{ id: 'call-1', name: 'get_user_choice', args: { options: ['a', 'b'] } }] },
    });
    side.send({ serverContent: { turnComplete: true } });
  },
  enough: (side) => {
    side.send(parts({ text: 'a long ' }, { text: 'story' }));
    side.send({ serverContent: { interrupted: true } });
    side.send({ serverContent: { turnComplete: true } });
  },
  away: (side) => {
    side.send(parts({ text: 'I was' }));
    side.close(1011, 'internal: the prompt was "away"');
  },
  endless: (side) => side.send(parts({ text: 'and then' })),
};

/** Says what it has to; the response of a tool is read out. */
function script(message: LiveClientMessage, side: LiveSide): void {
  const [response] = message.toolResponse?.functionResponses ?? [];
  if (response) {
    side.send(parts({ text: `it is ${JSON.stringify(response.response)}` }));
    side.send({ serverContent: { turnComplete: true } });
  }
  const answered = message.clientContent?.turns.at(-1)?.parts.some((part) => 'functionResponse' in part);
  if (answered === true) {
    side.send(parts({ text: 'you chose' }));
    side.send({ serverContent: { turnComplete: true } });
  }
  const word = heard(message) || (message.clientContent?.turnComplete ? typed(message) : undefined);
  REPLIES[word ?? '']?.(side, message);
}

const environment = (more: Record<string, string> = {}) => ({
  MODEL_PROVIDER: 'google',
  MODEL_NAME: 'gemini',
  MODEL_API_KEY: KEY,
  MODEL_BASE_URL: `${server.baseUrl}/v1beta`,
  MODEL_LIVE_NAME: 'gemini-live',
  SYSTEM_PROMPT: 'Be brief.',
  TOOLS: 'calculator',
  ...more,
});
const server = staged(() => startLiveServer(script));
const app = staged(() => startApp(environment()));

async function stored(sessionId: string, to = app): Promise<Event[]> {
  return ((await to.get(`${sessions}/${sessionId}`)).body as { events: Event[] }).events;
}
const open = async (sessionId: string, more: Record<string, string> = {}, to = app) => {
  await to.post(sessions, { sessionId });
  return openLive(to, query(sessionId, more));
};
/** An event in the words of this file: what it says, and whether it is whole. */
const shape = ({ author, content, partial, inputTranscription, outputTranscription, turnComplete, ...rest }: Frame) => [
  author === 'user' ? 'user' : 'agent',
  partial,
  inputTranscription?.text ??
    outputTranscription?.text ??
    content?.parts?.map(({ text, ...other }) => text ?? Object.keys(other)[0]).join('') ??
    (turnComplete ? 'end' : rest.interrupted ? 'interrupted' : rest.errorCode),
];

describe('a call', () => {
  test('sound goes out, sound and transcriptions come back; stored are whole transcriptions and the end', async () => {
    const live = await open('call');
    live.send(hear('...'));
    live.send(hear('hello'));
    const frames = await live.until(isEnd);
    expect(frames.map(shape)).toEqual([
      ['user', true, 'hel'],
      ['user', true, 'lo'],
      ['agent', undefined, 'inlineData'],
      ['agent', true, 'good '],
      ['agent', undefined, 'inlineData'],
      ['agent', true, 'day'],
      ['user', false, 'hello'],
      ['agent', false, 'good day'],
      ['agent', undefined, 'end'],
    ]);
    expect(frames[2]?.content).toEqual({ role: 'model', parts: [sound] });
    expect(frames.at(-1)).toEqual({
      id: expect.any(String),
      invocationId: frames[0]?.invocationId,
      author: 'harness_agent',
      nodeInfo: { path: '' },
      actions: { stateDelta: {}, artifactDelta: {}, requestedAuthConfigs: {}, requestedToolConfirmations: {} },
      timestamp: expect.any(Number),
      turnComplete: true,
      usageMetadata: { promptTokenCount: 7, candidatesTokenCount: 5, totalTokenCount: 12 },
    });
    expect(frames.map(({ nodeInfo }) => nodeInfo?.path)).toEqual(frames.map(() => ''));
    expect(await stored('call')).toEqual(frames.slice(-3));
    const { body } = await app.get(`${sessions}/call/invocations`);
    expect(body).toMatchObject([
      { id: frames[0]?.invocationId, status: 'succeeded', llmCalls: 1, promptTokens: 7, outputTokens: 5 },
    ]);
  });

  test('the set-up: model, instruction, tools, sound; the key in a header and in no address', async () => {
    const live = await open('setup', { proactive_audio: 'true', enable_affective_dialog: 'true' });
    live.send(hear('hello'));
    await live.until(isEnd);
    const { setup } = await server.received((message) => message.setup?.['proactivity'] !== undefined);
    expect(setup).toEqual({
      model: 'models/gemini-live',
      generationConfig: { responseModalities: ['AUDIO'], enableAffectiveDialog: true },
      systemInstruction: { parts: [{ text: expect.stringContaining('Be brief.') }] },
      tools: [{ functionDeclarations: [expect.objectContaining({ name: 'calculator' })] }],
      proactivity: { proactiveAudio: true },
      inputAudioTranscription: {},
      outputAudioTranscription: {},
    });
    const [{ path, headers } = { path: '', headers: {} }] = server.handshakes;
    expect(path).toBe('/ws/google.ai.generativelanguage.v1alpha.GenerativeService.BidiGenerateContent');
    expect(headers['x-goog-api-key']).toBe(KEY);
  });

  test('a function call and its response are stored and sent; typed text is a turn too', async () => {
    const live = await open('tool', { modalities: 'AUDIO' });
    live.send(say('count'));
    const frames = await live.until(isEnd);
    expect(frames.map(shape)).toEqual([
      ['agent', undefined, 'functionCall'],
      ['agent', undefined, 'functionResponse'],
      ['agent', true, 'it is {"result":2}'],
      ['agent', false, 'it is {"result":2}'],
      ['agent', undefined, 'end'],
    ]);
    expect(frames[0]?.longRunningToolIds).toEqual([]);
    expect((await stored('tool')).map(shape)).toEqual([
      ['user', undefined, 'count'],
      ...frames.filter(({ partial }) => partial !== true).map(shape),
    ]);
    const { toolResponse } = await server.received((message) => message.toolResponse !== undefined);
    expect(toolResponse).toEqual({
      functionResponses: [{ id: 'call-1', name: 'calculator', response: { result: 2 } }],
    });
    const { body } = await app.get(`${sessions}/tool/invocations`);
    expect(body).toMatchObject([{ status: 'succeeded', llmCalls: 2, toolCalls: 1 }]);
  });

  test('a call that waits has a task, which an answer in the session closes once; others are refused', async () => {
    const choosing = await startApp(environment({ TOOLS: 'get_user_choice' }));
    onTestFinished(() => choosing.close());
    const live = await open('choice', {}, choosing);
    live.send(say('choose'));
    await live.until(isEnd);
    const { items } = (await choosing.get('/tasks?sessionId=choice')).body as {
      items: { callId: string; state: string }[];
    };
    expect(items).toMatchObject([{ state: 'open', form: { tool: 'get_user_choice' } }]);
    const answer = (id: string) => {
      const functionResponse = { id, name: 'get_user_choice', response: { chosen: 'a' } };
      return { content: { role: 'user', parts: [{ functionResponse }] } };
    };
    live.send(answer('another'));
    const isError = ({ error }: Frame) => error !== undefined;
    expect((await live.until(isError)).find(isError)?.error).toBe(
      'No call another of this session waits for an answer.',
    );
    live.send(answer(items[0]?.callId ?? ''));
    expect((await live.until(isEnd, 2)).map(shape)).toContainEqual(['agent', false, 'you chose']);
    live.send(answer(items[0]?.callId ?? ''));
    expect((await live.until(isError, 2)).findLast(isError)?.error).toContain('was answered before: by u, through run');
  });

  test('an answer that the user interrupts ends where it is', async () => {
    const live = await open('interrupted');
    live.send(hear('enough'));
    const frames = await live.until(isEnd);
    expect(frames.map(shape)).toEqual([
      ['agent', true, 'a long '],
      ['agent', true, 'story'],
      ['agent', false, 'a long story'],
      ['agent', undefined, 'interrupted'],
      ['agent', undefined, 'end'],
    ]);
    expect(frames[3]?.interrupted).toBe(true);
    expect(await stored('interrupted')).toEqual(frames.slice(2));
  });

  test('other requests have their turn between two answers, and the next live session knows of both', async () => {
    const live = await open('shared');
    live.send(hear('hello'));
    await live.until(isEnd);
    const events = [{ author: 'user', content: { role: 'user', parts: [{ text: 'typed elsewhere' }] } }];
    expect((await app.post(`${sessions}/shared/events`, events[0])).status).toBe(200);
    live.send(hear('hello'));
    await live.until(isEnd, 2);
    live.send({ close: true });
    expect(await live.closed).toEqual([1000, '']);
    server.messages.length = 0;
    await openLive(app, query('shared'));
    const { clientContent } = await server.received(({ clientContent: sent }) => sent !== undefined);
    expect(clientContent).toEqual({
      turns: [
        ['user', 'hello'],
        ['model', 'good day'],
        ['user', 'typed elsewhere'],
        ['user', 'hello'],
        ['model', 'good day'],
      ].map(([role, text]) => ({ role, parts: [{ text }] })),
      turnComplete: false,
    });
  });

  test('pictures go out as video, the bounds of an activity as such', async () => {
    const live = await open('video', { modalities: 'VIDEO' });
    for (const frame of [{ activity_start: {} }, hear('a picture', 'image/jpeg'), { activity_end: {} }])
      live.send(frame);
    const { realtimeInput } = await server.received((message) => message.realtimeInput?.video !== undefined);
    expect(realtimeInput).toEqual({ video: { mimeType: 'image/jpeg', data: hear('a picture').blob.data } });
    await server.received((message) => message.realtimeInput?.['activityStart'] !== undefined);
    await server.received((message) => message.realtimeInput?.['activityEnd'] !== undefined);
  });

  test('with modalities TEXT the usual model answers until sound comes, then the live one, in text', async () => {
    const live = await open('text', { modalities: 'TEXT' });
    server.messages.length = 0;
    live.send(hear('enough'));
    await live.until(isEnd);
    const { setup } = await server.received((message) => message.setup !== undefined);
    expect(setup).toMatchObject({ generationConfig: { responseModalities: ['TEXT'] } });
  });

  test('what is no base64 is an error frame, and the session goes on', async () => {
    const live = await open('base64');
    live.send({ blob: { mime_type: 'audio/pcm', data: '***' } });
    live.send(hear('hello'));
    await live.until(isEnd);
    expect(live.frames[0]).toEqual({ error: 'The frame is not valid at blob.data: not base64.' });
  });
});

describe('save_live_blob', () => {
  test('saves the sound of both sides as artifacts, and events refer to them', async () => {
    const live = await open('saved', { save_live_blob: 'true' });
    live.send(hear('one '));
    live.send(hear('hello'));
    await live.until(isEnd);
    const names = (await app.get(`${sessions}/saved/artifacts`)).body as string[];
    expect(names).toEqual([
      expect.stringMatching(/^adk_live_audio_storage_input_audio_\d{13}\.pcm$/),
      expect.stringMatching(/^adk_live_audio_storage_output_audio_\d{13}\.pcm$/),
    ]);
    const [input, output] = await Promise.all(
      names.map(async (name) => (await app.get(`${sessions}/saved/artifacts/${name}`)).body),
    );
    const bytes = (part: unknown) =>
      Buffer.from((part as { inlineData: { data: string } }).inlineData.data, 'base64').toString();
    expect([bytes(input), bytes(output)]).toEqual(['one hello', 'what the model sayswhat the model says']);
    const events = (await stored('saved')).filter(({ content }) => content);
    const uri = (name = '') => `artifact://harness_agent/u/saved/_adk_live/${name}#0`;
    expect(events.map(({ author, content }) => [author, content])).toEqual([
      [
        'harness_agent',
        { role: 'model', parts: [{ fileData: { fileUri: uri(names[1]), mimeType: 'audio/pcm;rate=24000' } }] },
      ],
      ['user', { role: 'user', parts: [{ fileData: { fileUri: uri(names[0]), mimeType: 'audio/pcm' } }] }],
    ]);
  });

  test('without it there are none', async () => {
    const live = await open('unsaved');
    live.send(hear('hello'));
    await live.until(isEnd);
    expect((await app.get(`${sessions}/unsaved/artifacts`)).body).toEqual([]);
  });
});

describe('what fails', () => {
  test('a provider that breaks off: what it said is kept, the reason is its code and none of its words', async () => {
    const live = await open('broken');
    live.send(hear('away'));
    const sentence =
      'The model `gemini-live` of google broke off in the middle of its answer. Try again. (closed with 1011)';
    expect(await live.closed).toEqual([1011, sentence]);
    expect(live.frames.at(-1)).toEqual({ error: sentence });
    expect((await stored('broken')).map(shape)).toEqual([
      ['agent', false, 'I was'],
      ['agent', undefined, 'model_stream_cut'],
    ]);
    expect((await app.get(`${sessions}/broken/invocations`)).body).toMatchObject([{ status: 'failed' }]);
  });

  test('a cancelled turn ends the live session, and the connection to the provider', async () => {
    const live = await open('cancelled');
    live.send(hear('endless'));
    const [frame] = await live.until(({ content }) => content !== undefined);
    const cancelled = await app.post(`${sessions}/cancelled/invocations/${frame?.invocationId}/cancel`, {});
    expect(cancelled.status).toBe(200);
    expect((await live.closed)[0]).toBe(1011);
    expect((await stored('cancelled')).map(shape)).toEqual([
      ['agent', false, 'and then'],
      ['agent', undefined, 'cancelled'],
    ]);
  });

  test('an invocation has its limits here too', async () => {
    const limited = await startApp(environment({ MAX_LLM_CALLS: '1' }));
    const live = await open('limit', {}, limited);
    live.send(say('count'));
    expect(await live.closed).toEqual([1011, 'Max number of llm calls limit of `1` exceeded']);
    expect((await stored('limit', limited)).map(shape).at(-1)).toEqual(['agent', undefined, 'llm_calls_limit']);
    await limited.close();
  });

  test.each([
    [1008, 'models/gemini-live is not found for API version v1alpha', 'does not know this model'],
    [1007, 'API key not valid. Please pass a valid API key.', 'refused the key'],
    [1007, 'Request contains an invalid argument.', 'refused the request'],
    [1011, 'RESOURCE_EXHAUSTED: quota', 'limits the rate of calls'],
  ])('a provider that refuses with %i %s', async (code, reason, expected) => {
    const refusing = await startLiveServer((_message, side) => side.close(code, reason));
    const refused = await startApp(environment({ MODEL_BASE_URL: refusing.baseUrl }));
    const live = await open('refused', {}, refused);
    const [closed, sentence] = await live.closed;
    expect([closed, sentence]).toEqual([1011, expect.stringContaining(expected)]);
    expect(await stored('refused', refused)).toEqual([]);
    await refused.close();
    await refusing.close();
  });
});

describe('bounds', () => {
  test('of frames, bytes and time of one live session; a new one goes on', async () => {
    const small = await startApp(environment(), {
      liveLimits: { idleMs: 300_000, totalMs: 3_600_000, frames: 3, bytes: 2_048 },
    });
    const sentence = (limit: string) =>
      `A live session may have ${limit}. Open another one: it goes on where this one ends.`;
    const many = await open('many', {}, small);
    for (let n = 0; n < 4; n += 1) many.send(hear('.'));
    expect(await many.closed).toEqual([1008, sentence('3 frames')]);
    const large = await open('large', {}, small);
    large.send(hear('x'.repeat(2_000)));
    expect(await large.closed).toEqual([1008, sentence('2048 bytes of frames')]);
    await small.close();
    const short = await startApp(environment(), {
      liveLimits: { idleMs: 300_000, totalMs: 500, frames: 1_000, bytes: 1_000_000 },
    });
    const long = await open('long', {}, short);
    expect(await long.closed).toEqual([1008, sentence('0.5 s')]);
    await short.close();
  });

  test('a client that goes ends the connection to the provider', async () => {
    const live = await open('gone');
    live.send(hear('hello'));
    await live.until(isEnd);
    const before = server.open();
    live.socket.terminate();
    await expect.poll(() => server.open()).toBeLessThan(before);
  });
});

test('a model of another provider is refused at the start', async () => {
  await expect(startApp({ MODEL_LIVE_NAME: 'gemini-live' })).rejects.toThrow(
    'MODEL_LIVE_NAME: offline has no live API that this runtime speaks, google has; unset it.',
  );
});
