import type { MathJsInstance, MathNode } from 'mathjs';
import { type Tool, toParameters } from '../definition/tool.ts';

const MAX_EXPRESSION_CHARACTERS = 1_000;
/** Maximum number of nodes of the syntax tree. Evaluation is linear in it: ranges and loops are forbidden. */
const MAX_NODES = 500;

// Allowed functions. Not `combinations` and `permutations`: mathjs loops over their arguments (1 s for 1e8).
const FUNCTIONS = new Set(
  (
    'abs acos acosh add asin asinh atan atan2 atanh cbrt ceil cos cosh cot csc cube divide exp factorial ' +
    'fix floor gcd hypot lcm log log10 log1p log2 max mean median min mod multiply nthRoot pow round sec ' +
    'sign sin sinh sqrt square std subtract sum tan tanh variance'
  ).split(' '),
);
const CONSTANTS = new Set('pi PI e E tau phi true false'.split(' '));
const NODES = new Set(
  'ConstantNode OperatorNode ParenthesisNode FunctionNode SymbolNode ConditionalNode RelationalNode'.split(' '),
);

let loading: Promise<MathJsInstance> | undefined;
/** mathjs is loaded with the first call, because it takes about 300 ms to load (its full build 600 ms). */
const loadMath = () => (loading ??= import('mathjs/number').then(({ all, create }) => create(all ?? {}, {})));

/** Allows numbers, operators and the listed functions only: definitions, imports and loops are impossible. */
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
  run: async (args) => ({ result: evaluate(await loadMath(), String(args['expression'])) }),
};

function evaluate(math: MathJsInstance, expression: string): number | boolean {
  if (expression.length > MAX_EXPRESSION_CHARACTERS)
    throw new Error(`The expression is longer than ${MAX_EXPRESSION_CHARACTERS} characters.`);
  const node = parse(math, expression);
  let nodes = 0;
  node.traverse((child, path, parent) => {
    nodes += 1;
    if (nodes > MAX_NODES) throw new Error(`The expression has more than ${MAX_NODES} parts.`);
    checkNode(child, path, parent);
  });
  return toPlain(math, node.compile().evaluate(new Map()));
}

function parse(math: MathJsInstance, expression: string): MathNode {
  try {
    return math.parse(expression);
  } catch (error) {
    throw new Error(`This is not an arithmetic expression: ${(error as Error).message}`, { cause: error });
  }
}

function checkNode(node: MathNode, path: string, parent: MathNode | null): void {
  if (!NODES.has(node.type)) throw new Error('Only numbers, operators, parentheses and functions are allowed.');
  const { name, value } = node as { name?: unknown; value?: unknown };
  if (typeof value === 'string') throw new Error('Text cannot be calculated with.');
  if (node.type !== 'SymbolNode') return;
  const isCalled = parent?.type === 'FunctionNode' && path === 'fn';
  const allowed = isCalled ? FUNCTIONS : CONSTANTS;
  if (!allowed.has(String(name))) throw new Error(`\`${String(name)}\` is not known here.`);
}

/** Returns a boolean, or a finite number rounded to 15 significant digits, so that 0.1 + 0.2 is 0.3. */
function toPlain(math: MathJsInstance, value: unknown): number | boolean {
  if (typeof value === 'boolean') return value;
  if (typeof value !== 'number' || !Number.isFinite(value)) throw new Error('The result is not a finite number.');
  return Number(math.format(value, { precision: 15 }));
}
