import { expect, test } from 'vitest';
import type { Effect, ToolLimits } from '../../../../src/agent/definition/tool.ts';
import { limitTool } from '../../../../src/agent/tools/limit-tool.ts';
import { getFunctionResponses } from '../../../../src/core/content.ts';
import { AgentError } from '../../../../src/core/errors.ts';
import { agent, runInput, runToEnd, tool } from '../../../support/agent-fixtures.ts';
import { callPart, scriptedModel } from '../../../support/scripted-model.ts';

type Work = Parameters<typeof tool>[1];

/** Calls a limited tool in one run of an agent. @returns the responses that the model sees */
async function call(limits: ToolLimits, effect: Effect, work: Work, calls = 1, input: object = {}) {
  const parts = Array.from({ length: calls }, (_, index) => callPart('work', { index }, `c${index}`));
  const tools = [limitTool(tool('work', work, { effect }), limits)];
  const node = agent({ model: scriptedModel([parts, [{ text: 'done' }]]), tools });
  const { events } = await runToEnd(runInput({ agent: node, ...input }));
  return events.flatMap(({ content, actions }) =>
    getFunctionResponses(content).map(({ response, parts: media = [] }) => ({ response, media, actions })),
  );
}

test.each(['none', 'idempotent'] as const)(
  'effect %s: a call that failed is made again, from the start',
  async (effect) => {
    let tries = 0;
    const [answer] = await call({ retries: 2 }, effect, async (_args, { actions, attachments }) => {
      tries += 1;
      attachments.push({ text: `try ${tries}` });
      actions.stateDelta = { [`of-${tries}`]: true };
      if (tries < 3) throw new Error('not now');
      return { tries };
    });
    expect(answer?.response).toEqual({ tries: 3 });
    expect(answer?.media).toEqual([{ text: 'try 3' }]);
    expect({ ...answer?.actions?.stateDelta }).toEqual({ 'of-3': true });
  },
);

test('what is denied is not tried again, and the last failure is the answer', async () => {
  let tries = 0;
  const deny = async () => {
    tries += 1;
    throw new AgentError('egress_denied', 'Not there.');
  };
  expect(await call({ retries: 3 }, 'none', deny)).toMatchObject([{ response: { error: 'Not there.' } }]);
  expect(tries).toBe(1);
});

test('retries of a tool that acts once, or in a transaction, are refused', () => {
  const work = async () => ({});
  expect(() => limitTool(tool('pay', work), { retries: 1 })).toThrow('`pay` has retries');
  expect(() => limitTool(tool('pay', work, { transactional: true, effect: 'none' }), { retries: 1 })).toThrow(
    'retries',
  );
});

test('a call that takes too long is told to the model, whatever the tool goes on to do', async () => {
  let seen: AbortSignal | undefined;
  const hang: Work = (_args, { signal }) => {
    seen = signal;
    return new Promise(() => {});
  };
  const text = 'The tool took longer than 5 ms.';
  expect(await call({ timeoutMs: 5 }, 'none', hang)).toMatchObject([{ response: { error: text } }]);
  expect(seen?.aborted).toBe(true);
  // It may have acted: the model is told that, too.
  const [once] = await call({ timeoutMs: 5 }, 'once', hang);
  expect(String(once?.response?.['error'])).not.toBe('');
});

test('so many calls at once and no more; all are answered', async () => {
  let [running, most] = [0, 0];
  const answers = await call(
    { concurrency: 2 },
    'none',
    async ({ index }) => {
      running += 1;
      most = Math.max(most, running);
      await new Promise(setImmediate);
      running -= 1;
      return { index };
    },
    5,
  );
  expect(answers.map(({ response }) => response)).toEqual([0, 1, 2, 3, 4].map((index) => ({ index })));
  expect(most).toBe(2);
});

test('a result that is too large is an error that says so', async () => {
  const [answer] = await call({ maxResultCharacters: 10 }, 'none', async () => 'x'.repeat(20));
  expect(answer?.response).toEqual({ error: "The tool's result is larger than 10 characters. Ask for less." });
});
