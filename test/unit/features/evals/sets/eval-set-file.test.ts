import { expect, test } from 'vitest';
import { InvalidError } from '../../../../../src/core/errors.ts';
import { collect } from '../../../../../src/platform/json-stream.ts';
import { readEvalSet, writeEvalSet } from '../../../../../src/features/evals/sets/eval-set-file.ts';
import type { EvalSetDocument } from '../../../../../src/features/evals/sets/eval-set.ts';
import { checkAll, vectorsOf } from '../vectors.ts';

interface SetVector {
  name: string;
  wire: unknown;
  accepted: boolean;
  http?: EvalSetDocument;
  file?: string;
  in_2_2_0?: { accepted: boolean };
}
const files = vectorsOf('files') as { sets: SetVector[]; old: { name: string; old: unknown; set: EvalSetDocument }[] };
const NOW = 1_800_000_000.5;
const defaults = () => {
  let count = 0;
  const newId = () => {
    count += 1;
    return `id-${count}`;
  };
  return { evalSetId: 'setid', now: NOW, newId };
};
const read = (json: unknown) => readEvalSet(json, defaults());
/** The text of a set's file without what it says of itself, and that. */
const write = async ({ eval_cases: cases, ...set }: EvalSetDocument) => {
  const text = await collect(await writeEvalSet(set, [cases.map((one) => JSON.stringify(one))]));
  const { dropped = [], ...file } = JSON.parse(text) as { dropped?: string[] };
  if (dropped.length === 0) expect(text).toBe(JSON.stringify(file, null, 2));
  return { file, dropped };
};
const written = new Map<EvalSetDocument | undefined, Awaited<ReturnType<typeof write>>>();
for (const { http } of files.sets) if (http) written.set(http, await write(http));

test('a set of either version and spelling is read as answers show it', () =>
  checkAll(
    'files.sets, read',
    files.sets,
    ({ wire, accepted, http }) => {
      if (accepted) expect(read(wire)).toEqual({ set: http, dropped: [] });
      else expect(() => read(wire)).toThrow(InvalidError);
    },
    [
      {
        reason: 'what 2.2.0 refuses in events is dropped and named',
        holds: ({ wire, accepted, in_2_2_0: older }) =>
          accepted && older?.accepted === false && read(wire).dropped.length > 0,
      },
      {
        reason: 'members that a record does not have are dropped and named instead of refusing the set',
        holds: ({ wire, accepted }) => !accepted && read(wire).dropped.length > 0,
      },
    ],
  ));

test('a set is written as ADK writes it', () =>
  checkAll(
    'files.sets, written',
    files.sets.filter(({ accepted }) => accepted),
    ({ http, file = '' }) => expect(written.get(http)).toEqual({ file: JSON.parse(file), dropped: [] }),
    [
      {
        reason: 'what 2.2.0 refuses is dropped and named',
        holds: ({ http, in_2_2_0: older }) => older?.accepted === false && (written.get(http)?.dropped.length ?? 0) > 0,
      },
    ],
  ));

/** Replaces what differs from run to run, as the vectors do. */
const masked = (set: EvalSetDocument) =>
  JSON.parse(
    JSON.stringify(set, (key, value: unknown) => {
      if (key === 'invocationId') return '<uuid>';
      return /^creation_?[tT]imestamp$/.test(key) && value === NOW ? '<now>' : value;
    }),
  ) as unknown;

test('members of a set that a file cannot have, or that a set does not have, are named', async () => {
  const modes = { model_execution_mode: 'replay', tool_execution_mode: 'live' } as const;
  const set = { eval_set_id: 's', eval_cases: [], ...modes };
  expect((await write(set)).dropped).toEqual(['model_execution_mode']);
  expect(read({ ...set, mine: 1 })).toEqual({
    set: { eval_set_id: 's', eval_cases: [], creation_timestamp: 0 },
    dropped: ['model_execution_mode', 'tool_execution_mode', 'mine'],
  });
});

test('a file of ADK 1.x becomes a set', () =>
  checkAll('files.old', files.old, ({ old, set }) => expect(masked(read(old).set)).toEqual(set)));

const evalCase = (turn: Record<string, unknown>, more: Record<string, unknown> = {}) => ({
  eval_set_id: 's',
  eval_cases: [{ evalId: 'c', conversation: [{ userContent: { parts: [] }, ...turn }], ...more }],
});

test('members that some version refuses are left out of a file, and named', async () => {
  const content = { parts: [{ text: 'x', mine: 1 }], role: 'model' };
  const turn = {
    duration: 1.5,
    intermediateData: { invocationEvents: [{ author: 'a' }, { author: 'a', content, modelVersion: 'm' }] },
  };
  const sessionInput = { appName: 'a', userId: 'u', state: { keyOne: null }, sessionId: 's-1' };
  expect(await write(evalCase(turn, { sessionInput, mine: 2 }) as EvalSetDocument)).toEqual({
    file: {
      eval_set_id: 's',
      eval_cases: [
        {
          eval_id: 'c',
          conversation: [
            {
              user_content: { parts: [] },
              intermediate_data: {
                invocation_events: [{ author: 'a', content: { parts: [{ text: 'x' }], role: 'model' } }],
              },
            },
          ],
          session_input: { app_name: 'a', user_id: 'u', state: { keyOne: null } },
        },
      ],
    },
    dropped: [
      'eval_cases[0].conversation[0].intermediate_data.invocation_events[0]',
      'eval_cases[0].conversation[0].intermediate_data.invocation_events[0].content.parts[0].mine',
      'eval_cases[0].conversation[0].intermediate_data.invocation_events[0].model_version',
      'eval_cases[0].conversation[0].duration',
      'eval_cases[0].session_input.session_id',
      'eval_cases[0].mine',
    ],
  });
});

test('a file never holds both kinds of intermediate data', async () => {
  const call = { name: 'f', args: { a: 1 } };
  const invocationEvents = [{ author: 'a', content: { parts: [{ functionCall: call }] } }];
  const set = evalCase({ intermediateData: { invocationEvents, toolUses: [call] } }) as EvalSetDocument;
  const { file, dropped } = await write(set);
  expect([file, dropped]).toEqual([
    {
      eval_set_id: 's',
      eval_cases: [
        {
          eval_id: 'c',
          conversation: [
            {
              user_content: { parts: [] },
              intermediate_data: {
                invocation_events: [{ author: 'a', content: { parts: [{ function_call: call }] } }],
              },
            },
          ],
        },
      ],
    },
    ['eval_cases[0].conversation[0].intermediate_data.tool_uses'],
  ]);
});

test('bytes are written in the alphabet for URLs; what a tool was given stays', async () => {
  const parts = [
    { inlineData: { data: '+/+=', mimeType: 'image/png' }, thoughtSignature: 'a+b/' },
    { functionCall: { name: 'f', args: { data: '+/', innerKey: 1 } } },
  ];
  expect(await write(evalCase({ finalResponse: { parts } }) as EvalSetDocument)).toMatchObject({
    file: {
      eval_cases: [
        {
          conversation: [
            {
              final_response: {
                parts: [
                  { inline_data: { data: '-_-=', mime_type: 'image/png' }, thought_signature: 'a-b_' },
                  { function_call: { name: 'f', args: { data: '+/', innerKey: 1 } } },
                ],
              },
            },
          ],
        },
      ],
    },
  });
});

test('a written set is read back as it was', () => {
  const sets = files.sets.filter(({ accepted, in_2_2_0: older }) => accepted && older?.accepted !== false);
  for (const { http } of sets) {
    expect(read(written.get(http)?.file)).toEqual({ set: http, dropped: [] });
  }
});

test('a file that is no set is refused by what is wrong', () => {
  expect(() => read({ eval_set_id: 's' })).toThrow('The file is no eval set: `eval_cases` is missing.');
  expect(() => read({ eval_set_id: 's', eval_cases: [{ eval_id: 'c' }] })).toThrow(
    'eval_cases[0] needs exactly one of conversation and conversation_scenario.',
  );
  expect(() => read({ eval_set_id: 's', eval_cases: [{ eval_id: 1, conversation: [] }] })).toThrow(
    'eval_cases[0] is no eval case: evalId: Invalid input: expected string, received number',
  );
  for (const broken of [{ eval_cases: [null] }, { eval_cases: [{ evalId: 'c', conversation: [7] }] }]) {
    expect(() => read({ eval_set_id: 's', ...broken })).toThrow('eval_cases[0] is no eval case');
  }
  expect(() => read([{ name: 'x' }])).toThrow('The file is no list of sessions of ADK 1.x: 0.data');
  expect(() => read(null)).toThrow('The file is no eval set: `eval_set_id` is missing.');
});

test('the mock outputs of an old file are dropped and named', () => {
  const uses = [{ tool_name: 'f', tool_input: {}, mock_tool_output: 'x' }, { tool_name: 'g' }];
  expect(read([{ name: 'c', data: [{ query: 'q', expected_tool_use: uses }] }]).dropped).toEqual([
    '[0].data[0].expected_tool_use[0].mock_tool_output',
  ]);
});
