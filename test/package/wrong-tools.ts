import { createRuntime, defineAgent, defineMask, defineMetric, defineTool, z } from 'agent-runtime';
import { scriptedModel } from 'agent-runtime/testing';

// Compiled in an installed project only: each line below a `@ts-expect-error` is what an editor must mark.

const city = z.object({ city: z.string(), days: z.number().optional() });

export const right = defineTool({
  name: 'right',
  description: 'Has the types of its arguments.',
  parameters: city,
  run: async (args, { state, actions }) => {
    const days: number | undefined = args.days;
    actions.stateDelta = { last: args.city.toUpperCase() };
    return { days, before: state['last'] };
  },
});

defineTool({
  name: 'wrong_argument',
  description: 'Reads an argument that there is not.',
  parameters: city,
  // @ts-expect-error -- `town` is no argument
  run: async ({ town }) => town,
});

// @ts-expect-error -- a tool has a description
defineTool({ name: 'silent', parameters: city, run: async () => 1 });

// @ts-expect-error -- the tool's own member is `run`
defineTool({ name: 'handler', description: '', parameters: city, execute: async () => 1 });

// @ts-expect-error -- `tool` is no member of an agent
export const agent = defineAgent({ instruction: '', tool: [right] });

export const metric = defineMetric({
  description: 'Has the types of a turn.',
  score: async ({ answer, toolCalls }, expected) => {
    const [call] = toolCalls;
    return expected ? Number(answer === expected.answer && call?.args['city'] === 'Rome') : null;
  },
});

// @ts-expect-error -- a metric has a description
defineMetric({ score: () => 1 });

// @ts-expect-error -- a score is a number
defineMetric({ description: '', score: ({ answer }) => answer });

// @ts-expect-error -- `text` is no member of a turn
defineMetric({ description: '', score: ({ text }) => text.length });

export const mask = defineMask(({ conversation, ...evalCase }) => ({ ...evalCase, conversation: conversation ?? [] }));

// @ts-expect-error -- a mask gives the case back
defineMask(() => undefined);

export const runtime = await createRuntime({ agents: { right: { tools: [right] } }, model: scriptedModel([]) });
runtime.handler satisfies (...args: never[]) => void;
