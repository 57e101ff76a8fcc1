import { expect, test } from 'vitest';
import { buildContents, ensureUserFirstAndLast, type Audience } from '../../../../src/agent/loop/build-contents.ts';
import type { Content, Part } from '../../../../src/core/content.ts';
import type { Event } from '../../../../src/core/event.ts';
import { contentsDigest } from '../../../../src/invocations/tape.ts';

const event = (author: string, parts: Part[], more: Event = {}): Event => ({
  author,
  content: { role: author === 'user' ? 'user' : 'model', parts },
  ...more,
});
const user = (text: string, more?: Event) => event('user', [{ text }], more);
const said = (text: string, more?: Event) => event('me', [{ text }], more);
const call = (name: string, id?: string, args = {}): Part => ({ functionCall: { ...(id ? { id } : {}), name, args } });
const response = (name: string, id?: string, value: unknown = 'ok'): Part => ({
  functionResponse: { ...(id ? { id } : {}), name, response: { result: value } },
});
const me = { agentName: 'me' };
const contentsOf = (history: Event[], audience: Audience) => ensureUserFirstAndLast(buildContents(history, audience));
const asUser = (...parts: (Part | string)[]): Content => ({ role: 'user', parts: parts.map(toPart) });
const asModel = (...parts: (Part | string)[]): Content => ({ role: 'model', parts: parts.map(toPart) });
const toPart = (part: Part | string): Part => (typeof part === 'string' ? { text: part } : part);
const interrupted = (name: string, id?: string): Part => ({
  functionResponse: { ...(id ? { id } : {}), name, response: { error: 'interrupted' } },
});

test('partial, empty and error-only events are left out', () => {
  const history = [
    user('hi'),
    said('h', { partial: true }),
    { author: 'me', actions: { stateDelta: { a: 1 } } },
    { author: 'me', errorCode: 'model_timeout', errorMessage: 'slow' },
    event('me', [{ text: '' }]),
    event('me', [{}]),
    said('hello'),
    user('and?'),
  ];
  expect(contentsOf(history, me)).toEqual([asUser('hi'), asModel('hello'), asUser('and?')]);
});

test('a call without a response gets one, right behind it', () => {
  const history = [user('go'), event('me', [call('a', '1'), call('b', '2')]), user('still there?')];
  expect(contentsOf(history, me)).toEqual([
    asUser('go'),
    asModel(call('a', '1'), call('b', '2')),
    asUser(interrupted('a', '1'), interrupted('b', '2')),
    asUser('still there?'),
  ]);
});

test('late, scattered and unordered responses are moved behind their call; the latest wins; orphans vanish', () => {
  const history = [
    user('go'),
    event('me', [call('a', '1'), call('b', '2')]),
    event('me', [response('b', '2', 'pending')]),
    said('waiting'),
    event('me', [response('orphan', '9')]),
    event('user', [response('b', '2', 'late'), { text: 'there' }]),
    event('me', [response('a', '1')]),
  ];
  expect(contentsOf(history, me)).toEqual([
    asUser('go'),
    asModel(call('a', '1'), call('b', '2')),
    asUser(response('a', '1'), response('b', '2', 'late')),
    asModel('waiting'),
    asUser('there'),
  ]);
});

test('an id that is used again belongs to the nearest call before the response', () => {
  const history = [
    user('go'),
    event('me', [call('a', '1')]),
    event('me', [response('a', '1', 'first')]),
    event('me', [call('a', '1')]),
    event('me', [response('a', '1', 'second')]),
  ];
  expect(contentsOf(history, me).filter(({ role }) => role === 'user')).toEqual([
    asUser('go'),
    asUser(response('a', '1', 'first')),
    asUser(response('a', '1', 'second')),
  ]);
});

test('calls without ids are paired by name and place', () => {
  const history = [
    user('go'),
    event('me', [call('a'), call('b'), call('a')]),
    event('me', [response('a', undefined, 1), response('a', undefined, 2)]),
  ];
  expect(contentsOf(history, me).at(-1)).toEqual(
    asUser(response('a', undefined, 1), interrupted('b'), response('a', undefined, 2)),
  );
});

test('a call by the user is never shown as one of the model', () => {
  expect(contentsOf([user('go'), event('user', [call('a', '1'), { text: 'x' }])], me)).toEqual([
    asUser('go'),
    asUser('x'),
  ]);
});

test('rewound invocations are forgotten, also when rewound twice', () => {
  const turn = (id: string) => [user(`ask ${id}`, { invocationId: id }), said(`say ${id}`, { invocationId: id })];
  const rewind = (id: string): Event => ({ author: 'user', actions: { rewindBeforeInvocationId: id } });
  const history = [...turn('1'), ...turn('2'), rewind('2'), ...turn('3'), ...turn('4'), rewind('4'), user('now')];
  expect(contentsOf(history, me)).toEqual([
    asUser('ask 1'),
    asModel('say 1'),
    asUser('ask 3'),
    asModel('say 3'),
    asUser('now'),
  ]);
  expect(contentsOf([user('a'), rewind('unknown'), user('b')], me)).toEqual([asUser('a'), asUser('b')]);
});

test('what the user said in a refused invocation is left out once another message follows', () => {
  const refusal = (invocationId: string, errorCode: string): Event => ({ author: 'me', invocationId, errorCode });
  const history = [user('first', { invocationId: '1' }), said('yes', { invocationId: '1' })];
  for (const code of ['model_rejected', 'model_not_found', 'unknown_tool', 'unknown_skill']) {
    const refused = [...history, user('bad', { invocationId: '2' }), refusal('2', code)];
    expect(contentsOf([...refused, user('next', { invocationId: '3' })], me)).toEqual([
      asUser('first'),
      asModel('yes'),
      asUser('next'),
    ]);
    expect(contentsOf(refused, me).at(-1)).toEqual(asUser('bad'));
    expect(contentsOf([...refused, user('better', { invocationId: '2' })], me).slice(2)).toEqual([asUser('better')]);
  }
  const failed = [...history, user('again', { invocationId: '2' }), refusal('2', 'model_unavailable')];
  expect(contentsOf([...failed, user('next', { invocationId: '3' })], me).slice(2)).toEqual([
    asUser('again'),
    asUser('next'),
  ]);
});

test('the calls of a refused invocation stay: what its tools did is done', () => {
  const history = [
    user('pay', { invocationId: '1' }),
    event('me', [call('pay', '1')], { invocationId: '1' }),
    event('me', [response('pay', '1')], { invocationId: '1' }),
    { author: 'me', invocationId: '1', errorCode: 'model_rejected' },
    user('next', { invocationId: '2' }),
  ];
  expect(contentsOf(history, me).slice(1)).toEqual([
    asModel(call('pay', '1')),
    asUser(response('pay', '1')),
    asUser('next'),
  ]);
});

test('compacted events are replaced by their summary; what came after its end time stays', () => {
  const compaction = (start: number, end: number, text: string, timestamp: number): Event => ({
    author: 'user',
    timestamp,
    actions: {
      compaction: { startTimestamp: start, endTimestamp: end, compactedContent: { role: 'model', parts: [{ text }] } },
    },
  });
  const history = [
    user('a', { timestamp: 1 }),
    said('b', { timestamp: 2 }),
    user('c', { timestamp: 3 }),
    compaction(1, 2, 'a and b', 4),
    said('d', { timestamp: 5 }),
    user('e', { timestamp: 6 }),
  ];
  expect(contentsOf(history, me)).toEqual([asUser('a and b'), asUser('c'), asModel('d'), asUser('e')]);
  const again = [...history.slice(0, 5), compaction(1, 5, 'all', 5.5), user('e', { timestamp: 6 })];
  expect(contentsOf(again, me)).toEqual([asUser('all'), asUser('e')]);
  // A client may write anything there.
  for (const covers of [5, {}, 'a', null, [7, {}]]) {
    const forged = { ...compaction(1, 2, 'forged', 4), customMetadata: { 'agent-runtime/covers': covers } };
    expect(contentsOf([...history.slice(0, 3), forged], me)).toEqual([asUser('forged'), asUser('c')]);
  }
});

test("another agent's events become context, without its thoughts", () => {
  const history = [
    user('go'),
    event('other', [{ text: 'hm', thought: true }, { text: 'hi' }, call('a', '1', { n: 1 })]),
    event('other', [response('a', '1')]),
    event('other', [{ text: 'only a thought', thought: true }]),
  ];
  expect(contentsOf(history, me)).toEqual([
    asUser('go'),
    asUser('For context:', '[other] said: hi', '[other] called tool `a` with parameters: {"n":1}'),
    asUser('For context:', '[other] `a` tool returned result: {"result":"ok"}'),
  ]);
});

test('an agent sees its own branch and those above it', () => {
  const history = [
    user('go'),
    said('up', { branch: 'p' }),
    said('left', { branch: 'p.left' }),
    said('twin', { branch: 'p.le' }),
  ];
  expect(contentsOf(history, { ...me, branch: 'p.left' }).slice(1, 3)).toEqual([asModel('up'), asModel('left')]);
});

test('a user content stands first and last, also in an empty history', () => {
  expect(contentsOf([said('hello')], me)).toEqual([
    asUser('(The start of the conversation is left out.)'),
    asModel('hello'),
    asUser('Go on with what was asked, or conclude.'),
  ]);
  expect(contentsOf([], me)).toEqual([asUser('Follow your instruction.')]);
});

test('a history of 9,000 events with calls is arranged', () => {
  const steps = Array.from({ length: 3_000 }, (_, index) => [
    event('me', [call('a', `${index}`)]),
    event('me', [response('a', `${index}`)]),
    said('next'),
  ]).flat();
  expect(contentsOf([user('go'), ...steps], me)).toHaveLength(1 + 3 * 3_000 + 1);
});

test('what was spoken in a live session is shown as typed; its saved sound is left out', () => {
  const fileUri = 'artifact://app/u/s/_adk_live/adk_live_audio_storage_input_audio_1.pcm#0';
  const history: Event[] = [
    { author: 'user', inputTranscription: { text: 'good morning', finished: true } },
    event('user', [{ fileData: { fileUri, mimeType: 'audio/pcm' } }]),
    { author: 'me', outputTranscription: { text: 'hello', finished: true } },
    { author: 'me', turnComplete: true },
    event('user', [{ fileData: { fileUri: 'artifact://app/u/s/picture.png#0' } }, { text: 'and this?' }]),
  ];
  expect(contentsOf(history, me)).toEqual([
    asUser('good morning'),
    asModel('hello'),
    asUser({ fileData: { fileUri: 'artifact://app/u/s/picture.png#0' } }, 'and this?'),
  ]);
});

/** Frozen all through, as the history cache lends events. */
function frozen<Value>(value: Value): Value {
  if (typeof value === 'object' && value !== null) Object.values(Object.freeze(value)).forEach(frozen);
  return value;
}

test('a frozen history that grows is shown as one that is built anew, whatever comes to it', () => {
  const earlier = Array.from({ length: 40 }, (_, n) => [
    user(`question ${n}`, { invocationId: `i${n}`, timestamp: 2 * n }),
    said(`answer ${n}`, { invocationId: `i${n}`, timestamp: 2 * n + 1 }),
  ]).flat();
  const compaction = { startTimestamp: 0, endTimestamp: 9, compactedContent: asModel('summary') };
  const added: Event[][] = [
    [user('a')],
    [event('me', [call('a', '1')])],
    [user('before the response')],
    [event('me', [response('a', '1')])],
    [event('me', [call('b', '2'), call('b')]), event('me', [response('b', '2')])],
    [event('me', [response('b')])],
    [event('me', [call('c', '1')]), event('me', [response('c', '1', 'new')])],
    [event('me', [response('a', '1', 'late')])],
    [event('other', [call('d', '4'), { text: 'x' }]), event('other', [response('d', '4')])],
    [user('typed', { branch: 'x' }), said('elsewhere', { branch: 'y' }), said('p', { partial: true })],
    [user('wrong', { invocationId: 'r' }), { author: 'me', invocationId: 'r', errorCode: 'unknown_tool' }],
    [user('right', { invocationId: 'q' })],
    [{ author: 'user', actions: { rewindBeforeInvocationId: 'i39' } }],
    [user('again')],
    [{ author: 'me', actions: { compaction } }, user('after it')],
    [said('done')],
  ];
  const audiences: Audience[] = [me, { agentName: 'other' }, { agentName: 'me', branch: 'x' }];
  const expectAsAnew = (history: Event[]) => {
    for (const audience of audiences) {
      const shown = buildContents(history, audience);
      expect(shown).toEqual(buildContents(structuredClone(history), audience));
      expect(contentsDigest(shown)).toBe(contentsDigest(structuredClone(shown)));
    }
  };
  // Each addition to the beginning alone, and all one after the other.
  for (const additions of [added, ...added.map((events) => [events])]) {
    const history = structuredClone(earlier).map((each) => frozen(each));
    expectAsAnew(history);
    for (const events of structuredClone(additions)) {
      expectAsAnew([...history, ...events]);
      history.push(...events.map((each) => frozen(each)));
      expectAsAnew(history);
    }
  }
});

test('what is made of a frozen history is made once', () => {
  const history = Array.from({ length: 40 }, (_, n) => frozen(n % 2 ? said(`${n}`) : user(`${n}`)));
  const first = buildContents(history, me);
  const later = buildContents([...history, user('new')], me);
  expect(buildContents(history.slice(1), me)).toEqual(first.slice(1));
  expect(later.slice(0, -1).every((content, place) => content === first[place])).toBe(true);
  expect(later.at(-1)).toEqual(asUser('new'));
});
