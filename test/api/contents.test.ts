import { describe, expect, test } from 'vitest';
import { testApp } from '../support/app.ts';

/** Contents are closed and their bytes are base64 wherever they come in, with the words of ADK (google-genai 3.4). */
const app = testApp();
const user = '/apps/harness_agent/users/u';

/** Every place where a client sends a content or a part: the request around it, and where it stands in the body. */
const PLACES: [name: string, path: string, at: (string | number)[], body: (part: unknown) => unknown][] = [
  ['/run', '/run', ['newMessage', 'parts', 0], toRun],
  ['/run_sse', '/run_sse', ['newMessage', 'parts', 0], toRun],
  [
    'a start in the background',
    `${user}/sessions/s/invocations`,
    ['newMessage', 'parts', 0],
    (part) => ({ newMessage: { parts: [part] } }),
  ],
  [
    'an imported session',
    `${user}/sessions`,
    ['events', 0, 'content', 'parts', 0],
    (part) => ({ events: [{ author: 'user', content: { parts: [part] } }] }),
  ],
  [
    'an appended event',
    `${user}/sessions/s/events`,
    ['actions', 'compaction', 'compactedContent', 'parts', 0],
    (part) => ({
      actions: { compaction: { startTimestamp: 1, endTimestamp: 2, compactedContent: { parts: [part] } } },
    }),
  ],
  ['an artifact', `${user}/sessions/s/artifacts`, ['artifact'], (part) => ({ filename: 'f', artifact: part })],
  [
    'a new evaluation set',
    '/dev/apps/harness_agent/eval-sets',
    ['evalSet', 'eval_cases', 0, 'conversation', 0, 'userContent', 'parts', 0],
    (part) => ({
      evalSet: { eval_set_id: 'e', eval_cases: [{ evalId: 'c', conversation: [{ userContent: { parts: [part] } }] }] },
    }),
  ],
];

function toRun(part: unknown) {
  return { appName: 'harness_agent', userId: 'u', sessionId: 's', newMessage: { parts: [part] } };
}

const extra = (at: (string | number)[], name: string, input: unknown) => ({
  detail: [
    {
      type: 'extra_forbidden',
      loc: ['body', ...at, name],
      // Operations of this runtime add what was meant.
      msg: expect.stringMatching(
        /^Extra inputs are not permitted(?:: `txt` is not known here; did you mean `text`\?)?$/,
      ),
      input,
    },
  ],
});

const notBase64 = (at: (string | number)[], member: string[], input: string, error: string) => ({
  detail: [
    {
      type: 'bytes_invalid_encoding',
      loc: ['body', ...at, ...member],
      msg: `Data should be valid base64: ${error}`,
      input,
      ctx: { encoding: 'base64', encoding_error: error },
    },
  ],
});

describe.each(PLACES)('%s', (_name, path, at, toBody) => {
  test('a member that a part does not have is 422', async () => {
    const { status, body } = await app.post(path, toBody({ txt: 'typo' }));
    expect([status, body]).toEqual([422, extra(at, 'txt', 'typo')]);
  });

  test('so is one that a call inside it does not have, where it was sent', async () => {
    const { status, body } = await app.post(path, toBody({ function_call: { name: 'f', arguments: {} } }));
    expect([status, body]).toEqual([422, extra([...at, 'function_call'], 'arguments', {})]);
  });

  test.each([
    [{ inlineData: { data: '***', mimeType: 'image/png' } }, ['inlineData', 'data'], '***'],
    [{ text: 'x', thought_signature: '***' }, ['thought_signature'], '***'],
    [
      { functionResponse: { name: 'f', parts: [{ inlineData: { data: '***' } }] } },
      ['functionResponse', 'parts', 0, 'inlineData', 'data'],
      '***',
    ],
  ])('bytes that are not base64 are 422: %j', async (part, member, input) => {
    const { status, body } = await app.post(path, toBody(part));
    expect([status, body]).toEqual([422, notBase64(at, member as string[], input, 'Invalid symbol 42, offset 0.')]);
  });
});

test('a content has parts and a role, and nothing else', async () => {
  const { status, body } = await app.post('/run', { ...toRun({}), newMessage: { parts: [], text: 'typo' } });
  expect([status, body]).toEqual([422, extra(['newMessage'], 'text', 'typo')]);
});

/** All members of a part that google-genai 3.4 has, which ADK 2.13 takes with it. */
const WHOLE = {
  text: 't',
  thought: false,
  thoughtSignature: '-_8',
  inlineData: { data: '+/8=', displayName: 'd', mimeType: 'image/png' },
  fileData: { displayName: 'd', fileUri: 'gs://b/o', mimeType: 'image/png' },
  functionCall: {
    id: 'i',
    name: 'n',
    args: { any: { thing: null } },
    partialArgs: [
      {
        jsonPath: '$.a',
        boolValue: true,
        nullValue: 'NULL_VALUE',
        numberValue: 1,
        stringValue: 's',
        willContinue: true,
      },
    ],
    willContinue: false,
  },
  functionResponse: {
    id: 'i',
    name: 'n',
    response: { any: 1 },
    willContinue: false,
    scheduling: 'SILENT',
    parts: [
      {
        inlineData: { data: 'AA', displayName: 'd', mimeType: 'image/png' },
        fileData: { displayName: 'd', fileUri: 'gs://b/o', mimeType: 'image/png' },
        mediaProcessing: 'STATIC',
        mediaResolution: { level: 'MEDIA_RESOLUTION_LOW' },
        videoMetadata: { fps: 1 },
        documentMetadata: { startPage: 1 },
        spreadsheetMetadata: { sheetIndex: 1 },
        audioMetadata: { startOffset: '1s' },
      },
    ],
  },
  executableCode: { code: 'c', language: 'NEW_LANGUAGE', id: 'i' },
  codeExecutionResult: { outcome: 'OUTCOME_OK', output: 'o', id: 'i' },
  mediaResolution: { level: 'MEDIA_RESOLUTION_LOW', numTokens: 1 },
  videoMetadata: { startOffset: '1s', endOffset: '2s', fps: 0.5, contentLayers: ['FRAMES'] },
  toolCall: { id: 'i', toolType: 'NEW_TYPE', args: {} },
  toolResponse: { id: 'i', toolType: 'NEW_TYPE', response: {} },
  partMetadata: { any: ['thing'] },
  audioTranscription: {
    text: 't',
    finished: true,
    languageCode: 'de',
    speakerLabel: 'spk_1',
    words: [{ word: 'w', startOffset: '1s', endOffset: '2s' }],
    startOffset: '1s',
    endOffset: '2s',
  },
  mediaProcessing: 'AGENTIC',
  speechMetadata: { speaker: 's', style: 'calm' },
  documentMetadata: { startPage: 1, endPage: 2, contentLayers: ['PAGE_TEXT'] },
  spreadsheetMetadata: { visibleCells: 'A1:B2', sheetIndex: 1, contentLayers: ['DATA'] },
  audioMetadata: { startOffset: '1s', endOffset: '2s' },
};

test('every member that ADK takes is taken, kept and answered as it came', async () => {
  const events = [{ id: 'e', author: 'user', content: { role: 'user', parts: [WHOLE] } }];
  const { status, body } = await app.post(`${user}/sessions`, { sessionId: 'whole', events });
  expect(status).toBe(200);
  expect((body as { events: unknown[] }).events).toMatchObject(events);
  const again = await app.post(`${user}/sessions`, { ...(body as object), id: 'whole-again', sessionId: undefined });
  expect([again.status, (again.body as { events: unknown[] }).events]).toEqual([
    200,
    (body as { events: unknown[] }).events,
  ]);
});

describe('what makes a session unreadable for the clients of ADK is refused', () => {
  const missing = (at: string[], name: string) => ({ type: 'missing', loc: ['body', ...at, name] });
  test.each([
    [{ actions: { txt: 1 } }, { type: 'extra_forbidden', loc: ['body', 'actions', 'txt'] }],
    [{ usageMetadata: { tokens: 1 } }, { type: 'extra_forbidden', loc: ['body', 'usageMetadata', 'tokens'] }],
    [
      { groundingMetadata: { groundingChunks: [{ web: { link: 'x' } }] } },
      { type: 'extra_forbidden', loc: ['body', 'groundingMetadata', 'groundingChunks', 0, 'web', 'link'] },
    ],
    [{ inputTranscription: { txt: 'x' } }, { type: 'extra_forbidden', loc: ['body', 'inputTranscription', 'txt'] }],
    [{ cacheMetadata: { contents_count: 1 } }, missing(['cacheMetadata'], 'fingerprint')],
    [
      { actions: { compaction: { startTimestamp: 1, endTimestamp: 2 } } },
      missing(['actions', 'compaction'], 'compactedContent'),
    ],
  ])('%j', async (event, detail) => {
    await app.post(`${user}/sessions/readable`, {});
    const { status, body } = await app.post(`${user}/sessions/readable/events`, event);
    expect([status, body]).toMatchObject([422, { detail: [detail] }]);
    expect((await app.get(`${user}/sessions/readable`)).body).toMatchObject({ events: [] });
  });

  test('members of the event itself are kept: those clients leave them out', async () => {
    await app.post(`${user}/sessions/further`, {});
    const { status, body } = await app.post(`${user}/sessions/further/events`, { later: { a: 1 }, nodeInfo: { b: 1 } });
    expect([status, body]).toMatchObject([200, { later: { a: 1 }, nodeInfo: { b: 1 } }]);
  });
});
