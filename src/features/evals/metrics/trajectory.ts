import type { FunctionCall } from '../../../core/content.ts';
import { isExactInteger } from '../../../core/exact-json.ts';

export type MatchType = 'EXACT' | 'IN_ORDER' | 'ANY_ORDER';

/** Canonical JSON for comparison: the order of keys is ignored, that of lists is not. */
const toSortedText = (json: unknown): string =>
  JSON.stringify(json, (_key, value: unknown) =>
    typeof value === 'object' && value !== null && !Array.isArray(value) && !isExactInteger(value)
      ? Object.fromEntries(Object.entries(value).toSorted(([one], [other]) => (one < other ? -1 : 1)))
      : value,
  );

/** A call's canonical text without its id. Absent arguments are null and therefore differ from `{}`. */
const toCallText = ({ name, args }: FunctionCall, ignoreArgs = false): string =>
  toSortedText([name ?? null, ignoreArgs || (args ?? null)]);

/** Finds each expected call's first equal actual call that is not in `takenIndexes`, and adds its index there. */
function takeCalls(actual: FunctionCall[], expected: FunctionCall[], takenIndexes: Set<number>, ignoreArgs = false) {
  const last = [...actual.entries()].filter(([index]) => !takenIndexes.has(index)).toReversed();
  const available = Map.groupBy(last, ([, call]) => toCallText(call, ignoreArgs));
  return expected.map((expectedCall) => {
    const place = available.get(toCallText(expectedCall, ignoreArgs))?.pop()?.[0];
    if (place !== undefined) takenIndexes.add(place);
    return place;
  });
}

/** Counts the expected calls that can be paired with equal actual calls, in any order. */
const countHits = (actual: FunctionCall[], expected: FunctionCall[], ignoreArgs = false): number =>
  takeCalls(actual, expected, new Set(), ignoreArgs).filter((place) => place !== undefined).length;

/** The metric `tool_trajectory_avg_score` of a turn: 1 if the turn's calls match the expected calls, otherwise 0. */
export function trajectoryMatch(
  actual: FunctionCall[],
  expected: FunctionCall[],
  { matchType, ignoreArgs }: { matchType: MatchType; ignoreArgs: boolean },
): 0 | 1 {
  if (matchType === 'ANY_ORDER') return countHits(actual, expected, ignoreArgs) === expected.length ? 1 : 0;
  const expectedTexts = expected.map((call) => toCallText(call, ignoreArgs));
  let next = 0;
  for (const call of actual) {
    if (toCallText(call, ignoreArgs) === expectedTexts[next]) next += 1;
    else if (matchType === 'EXACT') return 0;
  }
  return next === expected.length ? 1 : 0;
}

/** Measures of how similar a turn's calls are to the expected calls. Each value is from 0 to 1. */
interface TrajectoryDetails {
  /** F1 score of the calls with their arguments, in any order; 1 if there were none and none was expected. */
  f1: number;
  /** Share of equal arguments in expected and actual calls of the same tool; null without arguments. */
  matchingArguments: number | null;
}

export function trajectoryDetails(actual: FunctionCall[], expected: FunctionCall[]): TrajectoryDetails {
  const hits = countHits(actual, expected);
  const f1 = actual.length + expected.length === 0 ? 1 : (2 * hits) / (actual.length + expected.length);
  return { f1, matchingArguments: matchingArguments(actual, expected) };
}

function matchingArguments(actual: FunctionCall[], expected: FunctionCall[]): number | null {
  const takenIndexes = new Set<number>();
  // Equal calls first, because a call with other arguments could take the expected call that a later call matches.
  const exact = takeCalls(actual, expected, takenIndexes);
  const rest = expected.filter((_, index) => exact[index] === undefined);
  const near = takeCalls(actual, rest, takenIndexes, true);
  let equal = 0;
  let all = 0;
  for (const [index, expectedCall] of expected.entries()) {
    const place = exact[index] ?? near.shift();
    const expectedArgs = Object.entries(expectedCall.args ?? {});
    const actualArgs = new Map(Object.entries((place === undefined ? undefined : actual[place]?.args) ?? {}));
    all += new Set([...expectedArgs.map(([key]) => key), ...actualArgs.keys()]).size;
    equal += expectedArgs.filter(
      ([key, value]) => actualArgs.has(key) && toSortedText(value) === toSortedText(actualArgs.get(key)),
    ).length;
  }
  return all === 0 ? null : equal / all;
}
