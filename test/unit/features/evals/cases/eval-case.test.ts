import { expect, test } from 'vitest';
import { type Event, isFinalResponse, withoutRewound } from '../../../../../src/core/event.ts';
import { withPlaceholders } from '../../../../../src/features/evals/cases/eval-case.ts';
import { type EvalInvocation, toEvalInvocations } from '../../../../../src/features/evals/cases/turns.ts';
import { checkAll, vectorsOf } from '../vectors.ts';

interface SessionVector {
  name: string;
  events: Event[];
  isFinalResponse: boolean[];
  conversation_2_2_0: EvalInvocation[] | { raised: string };
}
interface StateVector {
  instruction?: string;
  instructionTree?: Record<string, string | null>;
  state: Record<string, unknown>;
}
const vectors = vectorsOf('conversion') as { sessions: SessionVector[]; emptyState: StateVector[] };

const groupsOf = (events: Event[]) => [...Map.groupBy(events, (event) => event.invocationId ?? '').values()];
const deviations = [
  {
    reason: 'a group in which nothing was said is no turn',
    holds: ({ events }: SessionVector) => groupsOf(events).some((group) => group.every(({ content }) => !content)),
  },
  {
    reason: 'a rewound invocation is no turn',
    holds: ({ events }: SessionVector) => withoutRewound(events).length < events.length,
  },
  {
    reason: 'the user who speaks again behind an answer begins a turn: ADK loses the first question',
    holds: ({ name }: SessionVector) => name === 'user content after the answer, same invocation',
  },
  {
    reason: 'the calls of a long-running final event stay',
    holds: ({ events }: SessionVector) =>
      events.some(
        (event) => event.longRunningToolIds?.length && event.content?.parts?.some((part) => part.functionCall),
      ),
  },
];

test('a session becomes the turns that ADK 2.2.0 makes of it', () =>
  checkAll(
    'conversion.sessions',
    vectors.sessions,
    ({ events, conversation_2_2_0: turns }) => expect(toEvalInvocations(events)).toEqual(turns),
    deviations,
  ));

test('final events are those of ADK, whose later rule for errors is not in 2.2.0', () =>
  checkAll(
    'conversion.isFinalResponse',
    vectors.sessions,
    ({ events, isFinalResponse: final }) => expect(events.map(isFinalResponse)).toEqual(final),
    [
      {
        reason: '2.13.0 only: an event with an error code is final',
        holds: ({ events }: SessionVector) => events.some(({ errorCode }) => errorCode),
      },
    ],
  ));

test('every plain placeholder of the instructions has a value', () =>
  checkAll('conversion.emptyState', vectors.emptyState, ({ instruction, instructionTree, state }) => {
    const instructions = instructionTree
      ? Object.values(instructionTree).filter((text) => text !== null)
      : [instruction ?? ''];
    expect(withPlaceholders({}, instructions)).toEqual(state);
  }));

test("a placeholder keeps the session's own value", () => {
  expect(withPlaceholders({ a: 1, z: 2 }, ['{a} {b}'])).toEqual({ a: 1, b: '', z: 2 });
});

const text = (author: string, invocationId: string, said: string): Event => ({
  author,
  invocationId,
  content: { parts: [{ text: said }] },
});

test('a rewound invocation, the rewind itself, and a change of state are no turns', () => {
  const events = [
    text('user', 'e-1', 'one'),
    text('user', 'e-2', 'two'),
    { author: 'user', invocationId: 'e-3', actions: { rewindBeforeInvocationId: 'e-2' } },
    { author: 'user', invocationId: 'e-4', actions: { stateDelta: { a: 1 } } },
    text('user', 'e-5', 'five'),
  ];
  expect(toEvalInvocations(events).map(({ invocationId }) => invocationId)).toEqual(['e-1', 'e-5']);
});

test.each(['e', undefined])('no question is lost of events that share an invocation: %s', (invocationId) => {
  const say = (author: string, words: string) => ({ author, invocationId, content: { parts: [{ text: words }] } });
  const answered = {
    author: 'user',
    invocationId,
    content: { parts: [{ functionResponse: { id: 'c', name: 'ask', response: {} } }] },
  };
  const events = [
    say('user', 'one'),
    say('user', 'and'),
    say('a', 'first'),
    say('user', 'two'),
    say('a', 'asks'),
    answered,
    say('a', 'second'),
  ];
  expect(
    toEvalInvocations(events).map(({ userContent, finalResponse }) => [
      userContent.parts?.map((part) => part.text),
      finalResponse?.parts?.map((part) => part.text),
    ]),
  ).toEqual([
    [['one', 'and'], ['first']],
    [['two'], ['second']],
  ]);
});

test('the calls of a long-running final event stay in the trajectory', () => {
  const parts = [{ functionCall: { name: 'job', args: {} } }];
  const events = [{ author: 'a', invocationId: 'e', longRunningToolIds: ['j'], content: { parts } }];
  expect(toEvalInvocations(events)).toEqual([
    {
      invocationId: 'e',
      userContent: { parts: [] },
      finalResponse: { parts },
      intermediateData: { invocationEvents: [{ author: 'a', content: { parts } }] },
      creationTimestamp: 0,
    },
  ]);
});
