import { describe, expect, test } from 'vitest';
import { listAllOperations } from '../../src/process/app.ts';
import type { Operation } from '../../src/platform/http/operation/operation.ts';
import { ABSENT } from '../security/support/fixture.ts';
import { toRequest } from '../security/support/requests.ts';
import { testApp } from '../support/app.ts';

/** What JSON can say and a store may lose: it comes back as it was sent, or is refused with its place. */

const app = testApp({ CRONJOBS: 'true', WEBHOOKS: 'true', EVALS: 'true' });
const USER = '/apps/harness_agent/users/u';
const SESSIONS = `${USER}/sessions`;
const MARK = '\ue000';

const NEGATIVE_ZERO = 'Value error, a negative zero is not kept: send 0';
const TOO_LARGE = 'Value error, the number is too large for a 64-bit float';
const TOO_SMALL = 'Value error, the number is too small for a 64-bit float';
const TWICE = 'Value error, the member is there twice';

const refusal = (loc: (string | number)[], msg: string) => [
  422,
  { detail: [{ type: 'value_error', loc, msg, ctx: { error: {} } }] },
];

describe('what would change is refused with its place', () => {
  const cases: [json: string, path: (string | number)[], msg: string][] = [
    ['-0', [], NEGATIVE_ZERO],
    ['-0.0', [], NEGATIVE_ZERO],
    ['[1,-0e5]', [1], NEGATIVE_ZERO],
    ['1e400', [], TOO_LARGE],
    [`{"a":[${'9'.repeat(1_001)}]}`, ['a', 0], TOO_LARGE],
    ['[{"b":-1e400}]', [0, 'b'], TOO_LARGE],
    ['1e-400', [], TOO_SMALL],
    [`0.${'0'.repeat(400)}1`, [], TOO_SMALL],
    ['{"a":1,"a":1}', ['a'], TWICE],
    ['{"a":1,"b":{"c":[{"d\\u0065":1,"de":2}]}}', ['b', 'c', 0, 'de'], TWICE],
    ['{"__proto__":1,"__proto__":2}', ['__proto__'], TWICE],
    ['["{\\"a\\":1,\\"a\\":1}",{"\\\\":1,"\\"":[],"\\\\":2}]', [1, '\\'], TWICE],
  ];

  test.each(cases)('%s', async (json, path, msg) => {
    const [status, body] = refusal(['body', 'state', 'k', ...path], msg);
    const { status: got, body: answer } = await app.post(SESSIONS, `{"sessionId":"refused","state":{"k":${json}}}`);
    expect([got, answer]).toEqual([status, body]);
    expect((await app.get(`${SESSIONS}/refused`)).status).toBe(404);
  });

  test('of several the first in the text is named', async () => {
    const { body } = await app.post(SESSIONS, '{"state":{"a":{"x":1,"x":-0},"b":-0}}');
    expect(body).toEqual(refusal(['body', 'state', 'a', 'x'], TWICE)[1]);
  });

  test('in the text of a legacy prompt, which may be JSON', async () => {
    const { status, body } = await app.post('/invoke', '{"prompt":"one","pr\\u006fmpt":"two"}');
    expect([status, body]).toEqual(refusal(['body', 'prompt'], TWICE));
  });

  const all = listAllOperations();
  const withJson = (all as Operation<unknown>[]).filter(({ body, method }) => body && !body.isText && method !== 'get');

  test.each(withJson.map((operation) => [operation.operationId, operation] as const))('%s', async (_id, operation) => {
    const request = toRequest(operation, operation.path, { ...ABSENT, userId: 'u' });
    const text = `{"odd":-0,${request.body?.startsWith('{"') ? request.body.slice(1) : '"even":0}'}`;
    const { status, body } = await app.send(request.method, request.url, text, request.headers);
    const [plain, said] = refusal(['body', 'odd'], NEGATIVE_ZERO);
    const own = operation.toRefusal?.({ status: 422, ...(said as { detail: [] }) }, undefined, {
      method: request.method,
      path: request.url,
    });
    expect([status, body]).toEqual(own ? [own.status, own.body] : [plain, said]);
  });
});

/** JSON that doubles and the store hold; and texts that the store escapes. */
const KEPT = `{
  "zero":0, "largest":9007199254740991, "next":9007199254740992, "even":9007199254740994,
  "power":1000000000000000000000, "printed":123456789012345680000, "fraction":0.1, "long":0.30000000000000004,
  "float":1.5e300, "small":5e-324, "negative":-9007199254740991, "empty":{}, "list":[[],[null,true,false]], "":"",
  "__proto__":{"a":1}, "constructor":2, "10":1, "2":2, "text":"\\u0000 \\ud800 \\udc00\\ud800 \\\\u0000 \\ud83d\\ude00",
  "marks":"${MARK} ${MARK}0041 ${MARK}e000 ${MARK}d800", "${MARK}":1, "${MARK}0041":2, "A":3, "\\u0000":4,
  "\\\\u0000":5, "${MARK}0000":6, "\\ud800":7, "${MARK}d800":8, "${MARK}e000":9, "${MARK}${MARK}0041":10
}`;
const kept = JSON.parse(KEPT) as Record<string, unknown>;

describe('what is kept comes back as it was sent', () => {
  test('in state, of a creation and of a change', async () => {
    await app.post(SESSIONS, `{"sessionId":"state","state":{"made":${KEPT}}}`);
    await app.send('PATCH', `${SESSIONS}/state`, `{"stateDelta":{"changed":${KEPT}}}`);
    await app.send('PATCH', `${SESSIONS}/state`, `{"stateDelta":{"user:k":${KEPT},"app:k":${KEPT}}}`);
    await app.send('PATCH', `${SESSIONS}/state`, `{"stateDelta":${KEPT}}`);
    const { body } = await app.get(`${SESSIONS}/state`);
    const { state, events } = body as { state: object; events: { actions: object }[] };
    expect(state).toEqual({ made: kept, changed: kept, 'user:k': kept, 'app:k': kept, ...kept });
    expect(events.at(-1)?.actions).toMatchObject({ stateDelta: kept });
  });

  test('in events, appended and imported, also in their ids', async () => {
    await app.post(SESSIONS, { sessionId: 'events' });
    const parts = `[{"functionCall":{"id":"${MARK}0041","name":"f${MARK}0041","args":${KEPT}}}]`;
    const ids = `"id":"e${MARK}0041","invocationId":"i${MARK}0041"`;
    const sent = `{${ids},"author":"user","content":{"role":"user","parts":${parts}}}`;
    const event = JSON.parse(sent) as Record<string, unknown>;
    expect((await app.post(`${SESSIONS}/events/events`, sent)).body).toMatchObject(event);
    expect((await app.get(`${SESSIONS}/events`)).body).toMatchObject({ events: [event] });
    expect((await app.get(`${SESSIONS}/events/events`)).body).toMatchObject([event]);
    expect((await app.post(SESSIONS, `{"sessionId":"copied","events":[${sent}]}`)).status).toBe(200);
    expect((await app.get(`${SESSIONS}/copied`)).body).toMatchObject({ events: [event] });
  });

  test('in artifacts', async () => {
    await app.post(SESSIONS, { sessionId: 'artifacts' });
    const artifact = `{"text":"\\u0000${MARK}0041","partMetadata":${KEPT}}`;
    const saved = await app.post(
      `${SESSIONS}/artifacts/artifacts`,
      `{"filename":"a","artifact":${artifact},"customMetadata":${KEPT}}`,
    );
    expect(saved.body).toMatchObject({ customMetadata: kept });
    expect((await app.get(`${SESSIONS}/artifacts/artifacts/a`)).body).toEqual(JSON.parse(artifact));
    const data = Buffer.from('data').toString('base64');
    const inline = { inlineData: { mimeType: `a/${MARK}0041`, data, displayName: `n${MARK}0041` } };
    await app.post(`${SESSIONS}/artifacts/artifacts`, { filename: 'i', artifact: inline });
    expect((await app.get(`${SESSIONS}/artifacts/artifacts/i`)).body).toEqual(inline);
  });

  test('in evaluation cases', async () => {
    const content = `{"role":"user","parts":[{"text":"${MARK}0041"}]}`;
    const data = `{"toolUses":[{"name":"add","args":${KEPT}}]}`;
    const conversation = `[{"invocationId":"i${MARK}0041","userContent":${content},"intermediateData":${data}}]`;
    const input = `{"appName":"harness_agent","userId":"u","state":${KEPT}}`;
    const one = `{"evalId":"case","conversation":${conversation},"sessionInput":${input}}`;
    const set = '/dev/apps/harness_agent/eval-sets';
    expect((await app.post(set, `{"evalSet":{"eval_set_id":"exact","eval_cases":[${one}]}}`)).status).toBe(200);
    const { body } = await app.get(`${set}/exact/eval-cases/case`);
    const toolUses = [{ name: 'add', args: kept }];
    const turn = { invocationId: `i${MARK}0041`, userContent: JSON.parse(content), intermediateData: { toolUses } };
    expect(body).toMatchObject({ sessionInput: { state: kept }, conversation: [turn] });
  });
});

describe("an identifier with the store's escape mark is refused", () => {
  const id = `a${MARK}0041`;
  const inPath = encodeURIComponent(id);
  const message = { role: 'user', parts: [{ text: 'Hello' }] };
  test.each<[name: string, method: string, path: string, body: object | undefined, loc: string[]]>([
    ['session in a body', 'POST', SESSIONS, { sessionId: id }, ['body', 'sessionId']],
    ['session in a path', 'POST', `${SESSIONS}/${inPath}`, {}, ['path', 'session_id']],
    ['user in a path', 'GET', `/apps/harness_agent/users/${inPath}/sessions`, undefined, ['path', 'user_id']],
    [
      'user in a body',
      'POST',
      '/run',
      { appName: 'harness_agent', userId: id, sessionId: 's', newMessage: message },
      ['body', 'userId'],
    ],
    ['artifact', 'POST', `${SESSIONS}/s/artifacts`, { filename: id, artifact: { text: '' } }, ['body', 'filename']],
    [
      'case',
      'POST',
      '/dev/apps/harness_agent/eval-sets/e/add-session',
      { evalId: id, sessionId: 's', userId: 'u' },
      ['body', 'evalId'],
    ],
  ])('%s', async (_name, method, path, body, loc) => {
    const answer = await app.send(method, path, body);
    expect(answer.status).toBe(422);
    expect(answer.body).toMatchObject({
      detail: [{ loc, msg: 'Value error, the character U+E000 is not allowed' }],
    });
  });
});
