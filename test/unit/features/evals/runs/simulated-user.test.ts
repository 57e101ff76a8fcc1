import { expect, test } from 'vitest';
import {
  type Exchange,
  nextMessage,
  readSimulatedUser,
} from '../../../../../src/features/evals/runs/simulated-user.ts';
import { checkAll, vectorsOf } from '../vectors.ts';

interface Vector {
  answers: (string | null)[];
  maxAllowedInvocations: number;
  messages: ({ status: string; text?: string } | { error: string })[];
  modelCalls: number;
}
const vectors = vectorsOf('userSimulator') as Vector[];
const scenario = { startingPrompt: 'Start', conversationPlan: 'Ask for S-1.' };

test('a simulated user speaks until the signal, the limit, or silence', () =>
  checkAll('userSimulator', vectors, async ({ answers, maxAllowedInvocations, messages, modelCalls }) => {
    const config = readSimulatedUser({ maxAllowedInvocations });
    const dialogue: Exchange[] = [];
    let calls = 0;
    const model = async () => {
      calls += 1;
      return answers[calls - 1] ?? '';
    };
    for (const message of messages) {
      const next = nextMessage(config, scenario, dialogue, model);
      if ('error' in message) await expect(next).rejects.toThrow('The simulated user said nothing.');
      else expect(await next).toEqual(message);
      dialogue.push({ user: 'text' in message ? (message.text ?? '') : '', agent: 'ok' });
    }
    expect(calls).toBe(modelCalls);
  }));

test('a limit of 0 allows no turn', async () => {
  const none = nextMessage(readSimulatedUser({ max_allowed_invocations: 0 }), scenario, [], async () => 'x');
  expect(await none).toEqual({ status: 'turn_limit_reached' });
});

const promptOf = async (sent: unknown) => {
  let prompt = '';
  const dialogue = [{ user: 'U-1', agent: 'A-1', calls: [{ name: 'price', args: {} }] }];
  await nextMessage(readSimulatedUser(sent), scenario, dialogue, async (given) => {
    prompt = given;
    return 'next';
  });
  return prompt;
};

test('the model sees plan and dialogue, and calls only where the settings say so', async () => {
  const prompt = await promptOf({});
  for (const text of ['Ask for S-1.', 'U-1', 'A-1', '</finished>']) expect(prompt).toContain(text);
  expect(prompt).not.toContain('price');
  expect(await promptOf({ includeFunctionCalls: true })).toContain('price');
});

test("instructions of one's own name three placeholders; other braces stay", async () => {
  const customInstructions = '{conversation_plan}|{{ stop_signal }}|{other}|{"a": 1}|{conversation_history}';
  const prompt = await promptOf({ customInstructions });
  expect(prompt.startsWith('Ask for S-1.|</finished>|{other}|{"a": 1}|[')).toBe(true);
  expect(prompt).toContain('"user": "U-1"');
});
