type Value = number | boolean;

/** Numbers that differ by errors of rounding only are equal: `0.1 + 0.2 == 0.3`. */
const isSame = (a: number, b: number) =>
  a === b || (Number.isFinite(a - b) && Math.abs(a - b) <= Math.max(1e-12 * Math.max(Math.abs(a), Math.abs(b)), 1e-15));

/** @throws {Error} for a number with a fraction */
function whole(value: number): number {
  if (Number.isInteger(value)) return value;
  throw new Error(`${value} is not a whole number.`);
}

/** The remainder has the sign of the divisor. */
const mod = (a: number, b: number) => (b === 0 ? a : a - b * Math.floor(a / b));

const CONSTANTS = new Map<string, Value>([
  ['pi', Math.PI],
  ['PI', Math.PI],
  ['e', Math.E],
  ['E', Math.E],
  ['tau', 2 * Math.PI],
  ['phi', (1 + Math.sqrt(5)) / 2],
  ['true', true],
  ['false', false],
]);

const sum = (...values: number[]) => values.reduce((total, value) => total + value, 0);
const product = (...values: number[]) => values.reduce((total, value) => total * value, 1);
const mean = (...values: number[]) => sum(...values) / values.length;

function median(...values: number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const [low = Number.NaN, high = low] = sorted.slice((sorted.length - 1) >> 1, (sorted.length >> 1) + 1);
  return mean(low, high);
}

/** Of a sample: the squares are divided by one less than their number. */
function variance(...values: number[]): number {
  const middle = mean(...values);
  return sum(...values.map((value) => (value - middle) ** 2)) / Math.max(values.length - 1, 1);
}

function greatestDivisor(a: number, b: number): number {
  let [larger, smaller] = [Math.abs(whole(a)), Math.abs(whole(b))];
  while (smaller !== 0) [larger, smaller] = [smaller, larger % smaller];
  return larger;
}
const leastMultiple = (a: number, b: number) => (a === 0 || b === 0 ? 0 : Math.abs(a * b) / greatestDivisor(a, b));

/** @throws {Error} for what is negative or no whole number */
function factorial(value: number): number {
  if (whole(value) < 0) throw new Error('A factorial takes no negative number.');
  // 171! is larger than every number.
  return value > 170 ? Infinity : product(...Array.from({ length: value }, (_, index) => index + 1));
}

function root(value: number, degree = 2): number {
  if (value < 0 && Math.abs(degree) % 2 !== 1) throw new Error('A root of a negative number has an odd degree.');
  return Math.sign(value) * Math.abs(value) ** (1 / degree);
}

/** Moves the decimal point by the text of the number, because 1.005 * 100 is 100.49999999999999. */
function movePoint(value: number, places: number): number {
  const [digits, exponent = '0'] = String(value).split('e');
  return Number(`${digits}e${Number(exponent) + places}`);
}

/** Lets a way to round take a number of decimals. */
const toDecimals =
  (round: (value: number) => number) =>
  (value: number, decimals = 0): number => {
    if (whole(decimals) < 0 || decimals > 15) throw new Error('The number of decimals is between 0 and 15.');
    return Number.isFinite(value) ? movePoint(round(movePoint(value, decimals)), -decimals) : value;
  };
const toNearest = (value: number) => Math.sign(value) * Math.round(Math.abs(value));
/** What is a whole number but for errors of rounding is not rounded down or up to the next one. */
const unlessWhole = (round: (value: number) => number) => (value: number) =>
  isSame(value, toNearest(value)) ? toNearest(value) : round(value);

type NumberFunction = (...values: number[]) => number;
const FROM_MATH = [
  ...(['abs', 'acos', 'acosh', 'asin', 'asinh', 'atan', 'atanh', 'cbrt', 'cos', 'cosh', 'exp'] as const),
  ...(['log10', 'log1p', 'log2', 'sign', 'sin', 'sinh', 'sqrt', 'tan', 'tanh'] as const),
];
const OF_ONE: Record<string, (value: number) => number> = {
  ...Object.fromEntries(FROM_MATH.map((name) => [name, Math[name]])),
  cot: (value) => 1 / Math.tan(value),
  csc: (value) => 1 / Math.sin(value),
  cube: (value) => value ** 3,
  factorial,
  sec: (value) => 1 / Math.cos(value),
  square: (value) => value ** 2,
};
const OF_ONE_OR_TWO: Record<string, (value: number, other?: number) => number> = {
  ceil: toDecimals(unlessWhole(Math.ceil)),
  fix: toDecimals(unlessWhole(Math.trunc)),
  floor: toDecimals(unlessWhole(Math.floor)),
  log: (value, base) => Math.log(value) / (base === undefined ? 1 : Math.log(base)),
  nthRoot: root,
  round: toDecimals(toNearest),
};
const OF_TWO: Record<string, (one: number, other: number) => number> = {
  atan2: Math.atan2,
  divide: (a, b) => a / b,
  mod,
  pow: (a, b) => a ** b,
  subtract: (a, b) => a - b,
};
const OF_ALL: Record<string, NumberFunction> = {
  hypot: Math.hypot,
  max: Math.max,
  mean,
  median,
  min: Math.min,
  std: (...values) => Math.sqrt(variance(...values)),
  sum,
  variance,
};
const OF_MANY: Record<string, NumberFunction> = {
  add: sum,
  gcd: (...values) => values.reduce(greatestDivisor),
  lcm: (...values) => values.reduce(leastMultiple),
  multiply: product,
};
/** Functions by name, each with how many arguments it takes. */
const FUNCTIONS = new Map<string, { least: number; most: number; apply: NumberFunction }>(
  (
    [
      [OF_ONE, 1, 1],
      [OF_ONE_OR_TWO, 1, 2],
      [OF_TWO, 2, 2],
      [OF_ALL, 1, Infinity],
      [OF_MANY, 2, Infinity],
    ] as [Record<string, NumberFunction>, number, number][]
  ).flatMap(([functions, least, most]) =>
    Object.entries(functions).map(([name, apply]) => [name, { least, most, apply }]),
  ),
);

/** Maximum number of numbers, names, operators and parentheses. Evaluation is linear in it, and reading nests as deep. */
const MAX_PARTS = 500;

/** A part of an expression. Its kind decides what may stand beside it without an operator. */
interface Part {
  kind: 'number' | 'percentage' | 'operation' | 'closed';
  value: () => Value;
}

const toNumber = (part: Part) => Number(part.value());

/** Operators that take two operands, weakest first. Between `&` and `<<` stand the comparisons. */
const LEVELS: Record<string, (a: number, b: number) => Value>[] = [
  { or: (a, b) => Boolean(a) || Boolean(b) },
  { xor: (a, b) => Boolean(a) !== Boolean(b) },
  { and: (a, b) => Boolean(a) && Boolean(b) },
  { '|': (a, b) => whole(a) | whole(b) },
  { '^|': (a, b) => whole(a) ^ whole(b) },
  { '&': (a, b) => whole(a) & whole(b) },
  {},
  {
    '<<': (a, b) => whole(a) << whole(b),
    '>>': (a, b) => whole(a) >> whole(b),
    '>>>': (a, b) => whole(a) >>> whole(b),
  },
  { '+': (a, b) => a + b, '-': (a, b) => a - b },
  { '*': (a, b) => a * b, '/': (a, b) => a / b, '%': mod, mod },
];
const OPERATORS = new Map(
  LEVELS.flatMap((operators, level) => Object.entries(operators).map(([name, apply]) => [name, { level, apply }])),
);
const COMPARISON_LEVEL = 6;
const COMPARISONS = new Map<string, (a: number, b: number) => boolean>([
  ['==', isSame],
  ['!=', (a, b) => !isSame(a, b)],
  ['<', (a, b) => a < b && !isSame(a, b)],
  ['>', (a, b) => a > b && !isSame(a, b)],
  ['<=', (a, b) => a <= b || isSame(a, b)],
  ['>=', (a, b) => a >= b || isSame(a, b)],
]);
const SIGNS = new Map<string, (a: number) => Value>([
  ['-', (a) => -a],
  ['+', (a) => a],
  ['~', (a) => ~whole(a)],
  ['not', (a) => !a],
]);

const NUMBER = String.raw`0[xX][\da-fA-F]+|0[bB][01]+|0[oO][0-7]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?`;
const NAME = String.raw`[\p{L}_$][\p{L}\d_$]*`;
const SIGN = String.raw`>>>|<<|>>|[<>=!]=|\^\||[-+*/%^!<>()?:,|&~]`;
const TOKEN = new RegExp(String.raw`\s*(?:(${NUMBER})|(${NAME})|(${SIGN}))`, 'uy');
const WORDS = new Set(['and', 'mod', 'not', 'or', 'xor']);

interface Token {
  kind: 'number' | 'name' | 'sign' | 'end';
  text: string;
}

function toTokens(expression: string): Token[] {
  const text = expression.trimEnd();
  const tokens: Token[] = [];
  TOKEN.lastIndex = 0;
  for (let at = 0; at < text.length; at = TOKEN.lastIndex) {
    const [, number, name, sign = name] = TOKEN.exec(text) ?? [];
    if (number !== undefined) tokens.push({ kind: 'number', text: number });
    else if (sign === undefined) throw new Error(`unexpected \`${text.slice(at).trimStart().charAt(0)}\``);
    else tokens.push({ kind: name === undefined || WORDS.has(name) ? 'sign' : 'name', text: sign });
  }
  return tokens;
}

/** Reads an expression by the rules of precedence, from the weakest operator to what stands in parentheses. */
class Reader {
  readonly #tokens: Token[];
  #at = 0;
  #parts = 0;

  constructor(expression: string) {
    this.#tokens = toTokens(expression);
  }

  read(): Part {
    const all = this.#choice();
    if (this.#token().kind !== 'end') this.#refuse();
    return all;
  }

  #token(ahead = 0): Token {
    return this.#tokens[this.#at + ahead] ?? { kind: 'end', text: '' };
  }

  #isNext(sign: string, ahead = 0): boolean {
    const { kind, text } = this.#token(ahead);
    return kind === 'sign' && text === sign;
  }

  #takeIf(sign: string): boolean {
    const isNext = this.#isNext(sign);
    if (isNext) this.#at += 1;
    return isNext;
  }

  #take(sign: string): void {
    if (!this.#takeIf(sign)) this.#refuse();
  }

  #refuse(): never {
    const { kind, text } = this.#token();
    throw new Error(kind === 'end' ? 'unexpected end' : `unexpected \`${text}\``);
  }

  #part(kind: Part['kind'], value: () => Value): Part {
    this.#parts += 1;
    if (this.#parts > MAX_PARTS) throw new Error(`more than ${MAX_PARTS} parts`);
    return { kind, value };
  }

  /** `condition ? one : other` */
  #choice(): Part {
    const condition = this.#operation(0);
    if (!this.#takeIf('?')) return condition;
    const one = this.#choice();
    this.#take(':');
    const other = this.#choice();
    return this.#part('operation', () => (toNumber(condition) ? one : other).value());
  }

  /** Operators of this level and stronger ones, from left to right. */
  #operation(level: number): Part {
    let left = this.#product();
    for (;;) {
      const { text } = this.#token();
      const operator = this.#token().kind === 'sign' ? OPERATORS.get(text) : undefined;
      if (level <= COMPARISON_LEVEL && COMPARISONS.has(text)) left = this.#comparison(left);
      else if (operator === undefined || operator.level < level) return left;
      else {
        this.#at += 1;
        left = this.#apply(operator.apply, left, this.#operation(operator.level + 1), text);
      }
    }
  }

  #apply(apply: (a: number, b: number) => Value, left: Part, right: Part, name: string): Part {
    // 200 + 10 % is 220.
    const isShare = right.kind === 'percentage' && (name === '+' || name === '-');
    return this.#part('operation', () => {
      const value = toNumber(left);
      return apply(value, toNumber(right) * (isShare ? value : 1));
    });
  }

  /** `a < b <= c` holds where each pair does. */
  #comparison(first: Part): Part {
    const operands = [first];
    const comparisons: ((a: number, b: number) => boolean)[] = [];
    for (;;) {
      const comparison = COMPARISONS.get(this.#token().text);
      if (comparison === undefined) break;
      this.#at += 1;
      comparisons.push(comparison);
      operands.push(this.#operation(COMPARISON_LEVEL + 1));
    }
    return this.#part('operation', () => {
      const values = operands.map(toNumber);
      return comparisons.every((holds, index) => holds(Number(values[index]), Number(values[index + 1])));
    });
  }

  /** Factors without an operator, which are multiplied before others are divided: `1 / 2 a` is half of `a`, `b / 2 a` not. */
  #product(): Part {
    let left = this.#fraction();
    let last = left;
    for (;;) {
      const { kind } = this.#token();
      const isFactor = kind === 'name' || this.#isNext('(') || (kind === 'number' && last.kind === 'closed');
      if (!isFactor) return left;
      const [factor, right] = [left, (last = this.#fraction())];
      left = this.#part('operation', () => toNumber(factor) * toNumber(right));
    }
  }

  /** `1 / 2` in front of a factor. */
  #fraction(): Part {
    let left = this.#percentage();
    let last = left;
    for (;;) {
      const isFraction = last.kind === 'number' && this.#isNext('/') && this.#token(1).kind === 'number';
      if (!isFraction || !(this.#token(2).kind === 'name' || this.#isNext('(', 2))) return left;
      this.#at += 1;
      const [numerator, divisor] = [left, (last = this.#percentage())];
      left = this.#part('operation', () => toNumber(numerator) / toNumber(divisor));
    }
  }

  /** `10 %`, unless an operand follows: then it is the operator of the remainder. */
  #percentage(): Part {
    const hundredths = this.#signed();
    if (!this.#isNext('%')) return hundredths;
    const { kind, text } = this.#token(1);
    if (kind === 'number' || kind === 'name' || text === '(' || SIGNS.has(text)) return hundredths;
    this.#at += 1;
    return this.#part('percentage', () => toNumber(hundredths) / 100);
  }

  #signed(): Part {
    const { kind, text } = this.#token();
    const apply = kind === 'sign' ? SIGNS.get(text) : undefined;
    if (apply === undefined) return this.#power();
    this.#at += 1;
    const operand = this.#signed();
    const isNumber = text === '-' && operand.kind === 'number';
    return this.#part(isNumber ? 'number' : 'operation', () => apply(toNumber(operand)));
  }

  /** `-2 ^ 2` is -4, and `2 ^ -1` a half. */
  #power(): Part {
    let base = this.#operand();
    while (this.#takeIf('!')) {
      const operand = base;
      base = this.#part('closed', () => factorial(toNumber(operand)));
    }
    if (!this.#takeIf('^')) return base;
    const [operand, exponent] = [base, this.#signed()];
    return this.#part('operation', () => toNumber(operand) ** toNumber(exponent));
  }

  #operand(): Part {
    const { kind, text } = this.#token();
    if (kind === 'number') {
      this.#at += 1;
      return this.#part('number', () => Number(text));
    }
    // `mod(7, 3)`
    if (kind === 'name' || text === 'mod') return this.#named(text);
    this.#take('(');
    const inner = this.#choice();
    this.#take(')');
    return this.#part('closed', inner.value);
  }

  #named(name: string): Part {
    this.#at += 1;
    if (this.#takeIf('(')) return this.#call(name);
    const constant = CONSTANTS.get(name);
    if (constant === undefined) throw new Error(`\`${name}\` is not known here`);
    return this.#part('closed', () => constant);
  }

  #call(name: string): Part {
    const called = FUNCTIONS.get(name);
    if (called === undefined) throw new Error(`\`${name}\` is not known here`);
    const args: Part[] = [];
    if (!this.#isNext(')'))
      do args.push(this.#choice());
      while (this.#takeIf(','));
    this.#take(')');
    if (args.length < called.least || args.length > called.most)
      throw new Error(`\`${name}\` takes another number of arguments than ${args.length}`);
    return this.#part('closed', () => called.apply(...args.map(toNumber)));
  }
}

/**
 * Evaluates an arithmetic expression: numbers, operators, parentheses, constants and functions of numbers.
 * @returns a truth value, or a number rounded to 15 significant digits, so that 0.1 + 0.2 is 0.3
 * @throws {Error} for what is no such expression, or has no finite result
 */
export function evaluate(expression: string): number | boolean {
  const value = read(expression).value();
  if (typeof value === 'boolean') return value;
  if (!Number.isFinite(value)) throw new Error('The result is not a finite number.');
  return Number(value.toPrecision(15));
}

function read(expression: string): Part {
  try {
    return new Reader(expression).read();
  } catch (error) {
    throw new Error(`This is not an arithmetic expression: ${(error as Error).message}.`, { cause: error });
  }
}
