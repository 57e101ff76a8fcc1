import type { FunctionCall } from '../../../core/content.ts';
import { isExactInteger } from '../../../core/exact-json.ts';

/** How the actual calls of a turn are held against the expected ones. */
export type MatchType = 'EXACT' | 'IN_ORDER' | 'ANY_ORDER';

/** One text for all equal JSON values: the order of keys does not matter, that of lists does; `true` is not 1. */
const toSortedText = (json: unknown): string =>
  JSON.stringify(json, (_key, value: unknown) =>
    typeof value === 'object' && value !== null && !Array.isArray(value) && !isExactInteger(value)
      ? Object.fromEntries(Object.entries(value).toSorted(([one], [other]) => (one < other ? -1 : 1)))
      : value,
  );

/** One text for the same tool with the same arguments; absent arguments are null, not `{}`. Ids are left out. */
const toCallText = ({ name, args }: FunctionCall, ignoreArgs = false): string =>
  toSortedText([name ?? null, ignoreArgs || (args ?? null)]);

/** For each expected call the place of the first actual one that is the same and not taken; takes those it gives. */
function takeCalls(actual: FunctionCall[], expected: FunctionCall[], taken: Set<number>, ignoreArgs = false) {
  const last = [...actual.entries()].filter(([index]) => !taken.has(index)).toReversed();
  const left = Map.groupBy(last, ([, made]) => toCallText(made, ignoreArgs));
  return expected.map((wanted) => {
    const place = left.get(toCallText(wanted, ignoreArgs))?.pop()?.[0];
    if (place !== undefined) taken.add(place);
    return place;
  });
}

/** How many expected calls have an equal actual one of their own, in any order. */
const countHits = (actual: FunctionCall[], expected: FunctionCall[], ignoreArgs = false): number =>
  takeCalls(actual, expected, new Set(), ignoreArgs).filter((place) => place !== undefined).length;

/** `tool_trajectory_avg_score` of one turn: 1 when the calls are those of the case, else 0. */
export function trajectoryMatch(
  actual: FunctionCall[],
  expected: FunctionCall[],
  { matchType, ignoreArgs }: { matchType: MatchType; ignoreArgs: boolean },
): 0 | 1 {
  if (matchType === 'ANY_ORDER') return countHits(actual, expected, ignoreArgs) === expected.length ? 1 : 0;
  const wanted = expected.map((call) => toCallText(call, ignoreArgs));
  let next = 0;
  for (const call of actual) {
    if (toCallText(call, ignoreArgs) === wanted[next]) next += 1;
    else if (matchType === 'EXACT') return 0;
  }
  return next === expected.length ? 1 : 0;
}

/** How near the calls of a turn are to the expected ones, where all or nothing says too little. Each from 0 to 1. */
interface TrajectoryDetails {
  /** F1 of the calls with their arguments in any order; 1 where none was expected and none made. */
  f1: number;
  /** The share of arguments that expected and actual calls of a tool have in common; null without any. */
  matchingArguments: number | null;
}

/** `tool_trajectory_f1` of one turn, and the share of matching arguments. */
export function trajectoryDetails(actual: FunctionCall[], expected: FunctionCall[]): TrajectoryDetails {
  const hits = countHits(actual, expected);
  const f1 = actual.length + expected.length === 0 ? 1 : (2 * hits) / (actual.length + expected.length);
  return { f1, matchingArguments: matchingArguments(actual, expected) };
}

function matchingArguments(actual: FunctionCall[], expected: FunctionCall[]): number | null {
  const taken = new Set<number>();
  // Equal calls are paired first: a call with other arguments must not take the place of one that is right.
  const exact = takeCalls(actual, expected, taken);
  const rest = expected.filter((_, index) => exact[index] === undefined);
  const near = takeCalls(actual, rest, taken, true);
  let [equal, all] = [0, 0];
  for (const [index, wanted] of expected.entries()) {
    const place = exact[index] ?? near.shift();
    const wantedArgs = Object.entries(wanted.args ?? {});
    const madeArgs = new Map(Object.entries((place === undefined ? undefined : actual[place]?.args) ?? {}));
    all += new Set([...wantedArgs.map(([key]) => key), ...madeArgs.keys()]).size;
    equal += wantedArgs.filter(
      ([key, value]) => madeArgs.has(key) && toSortedText(value) === toSortedText(madeArgs.get(key)),
    ).length;
  }
  return all === 0 ? null : equal / all;
}
