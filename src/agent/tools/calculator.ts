import { type Tool, toParameters } from '../definition/tool.ts';
import type { evaluate as Evaluate } from './arithmetic.ts';

const MAX_EXPRESSION_CHARACTERS = 1_000;

let loading: Promise<{ evaluate: typeof Evaluate }> | undefined;
/** Loaded with the first call, and once: an import that is made again is resolved again. */
const loadArithmetic = () => (loading ??= import('./arithmetic.ts'));

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
  run: async (args) => ({ result: (await loadArithmetic()).evaluate(String(args['expression'])) }),
};
