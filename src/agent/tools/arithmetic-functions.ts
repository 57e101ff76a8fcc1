/** Constants and functions of numbers, for arithmetic expressions. */

export type Value = number | boolean;

/** Numbers that differ by errors of rounding only are equal: `0.1 + 0.2 == 0.3`. */
export const isSame = (a: number, b: number) =>
  a === b || (Number.isFinite(a - b) && Math.abs(a - b) <= Math.max(1e-12 * Math.max(Math.abs(a), Math.abs(b)), 1e-15));

/** @throws {Error} for a number with a fraction */
export function whole(value: number): number {
  if (Number.isInteger(value)) return value;
  throw new Error(`${value} is not a whole number.`);
}

/** The remainder has the sign of the divisor. */
export const mod = (a: number, b: number) => (b === 0 ? a : a - b * Math.floor(a / b));

export const CONSTANTS = new Map<string, Value>([
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
export function factorial(value: number): number {
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
export const FUNCTIONS = new Map<string, { least: number; most: number; apply: NumberFunction }>(
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
