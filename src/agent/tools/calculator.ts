import { type Tool, toParameters } from '../definition/tool.ts';
import { evaluate } from './arithmetic.ts';

const MAX_EXPRESSION_CHARACTERS = 1_000;

export const calculator: Tool = {
  name: 'calculator',
  description:
    'Works out an arithmetic expression exactly, for example "17 * 23", "sqrt(2) ^ 3", ' +
    '"15 % of 80" is written "0.15 * 80".',
  parameters: toParameters(
    { expression: { type: 'string', minLength: 1, maxLength: MAX_EXPRESSION_CHARACTERS } },
    'expression',
  ),
  needsConfirmation: false,
  effect: 'none',
  run: async (args) => ({ result: evaluate(String(args['expression'])) }),
};
