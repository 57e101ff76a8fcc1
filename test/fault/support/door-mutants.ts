import { change, type Mutant } from './mutant.ts';

const CUTTER = ['text-cutter'];
const AG_UI = ['api/ag-ui'];
const AI_SDK = ['api/ai-sdk'];
const STREAMS = ['api/durable-streams'];

/** Breaks the doors: what their clients count on. */
export const DOOR_MUTANTS: Mutant[] = [
  {
    name: 'cuts text by how it came',
    changes: change('TextCutter', '?? (isComplete ? text.length : undefined)', '?? text.length'),
    tests: CUTTER,
  },
  {
    name: 'cuts a character in two',
    changes: change('findEnd', 'return isHalfPair ? limit - 1 : limit;', 'return limit;'),
    tests: CUTTER,
  },
  {
    name: 'gives all users the same chats',
    changes: change('toDoorKey', 'toDoorUser(principal, query.user_id)', 'LOCAL_USER'),
    tests: AI_SDK,
    only: 'as absent',
  },
  {
    name: 'goes on one chunk too late',
    changes: change('sendRun', 'index >= startIndex', 'index > startIndex'),
    tests: AI_SDK,
    only: 'WorkflowChatTransport',
  },
  {
    name: 'ends a run with open text',
    changes: change('Writer', '*close(): Generator<Frame> { yield* this.#endText();', '*close(): Generator<Frame> {'),
    tests: AG_UI,
    only: 'cancelled run',
  },
  {
    name: 'takes any answer of a front end for a yes',
    changes: change('ag-ui/toAnswer', 'approved === true ||', 'approved !== undefined ||'),
    tests: AG_UI,
    only: 'a confirmation is',
  },
  {
    name: 'closes a stream while a person is asked',
    changes: change('durable-streams/follow', ', throughPauses: true', ''),
    tests: STREAMS,
    only: 'waits while',
  },
  {
    name: 'does not tell that text is taken back',
    changes: change('readTurn', 'if (open) yield { kind, eventId: open.eventId, after: open.after };', ''),
    tests: STREAMS,
    only: 'taken back',
  },
  {
    name: 'goes back in a stream',
    changes: change('durable-streams/follow', '.filter((message) => message.offset > next)', ''),
    tests: STREAMS,
    only: 'taken back',
  },
  {
    name: 'restates a thread of any size in one frame',
    changes: change('toNewest', 'messages.slice(-MAX_MESSAGES)', '[...messages]'),
    tests: ['ag-ui-messages'],
  },
];
