import { describe, expect, test } from 'vitest';
import { isThrough, toComparisonCode, toExitCode, toJunit, toTable } from '../../../src/cli/eval-report.ts';
import type { CaseSummary, RunComparison } from '../../../src/features/evals/runs/summary.ts';

const gate = { threshold: 1, allowNotEvaluated: false };
const summary = (evalId: string, more: Partial<CaseSummary> = {}): CaseSummary => ({
  evalId,
  trials: 2,
  passed: 2,
  notEvaluated: 0,
  errors: 0,
  unfinished: 0,
  passRate: (more.passed ?? 2) / (more.trials ?? 2),
  interval: [0.342, 1],
  passAll: 1,
  flaky: false,
  scores: { response_match_score: 0.75 },
  ...more,
});
const flaky = summary('sometimes', { passed: 1, flaky: true, reason: 'response_match_score: 0.5 is below 0.7.' });
const broken = summary('broken', {
  trials: 0,
  passed: 0,
  passRate: null,
  errors: 2,
  scores: {},
  reason: 'a < "b"\u0001',
});
const silent = summary('silent', { trials: 0, passed: 0, passRate: null, notEvaluated: 2, reason: 'nothing' });
const changed: RunComparison = {
  won: [],
  lost: ['sometimes'],
  worse: ['sometimes'],
  pTwoSided: 1,
  regression: true,
  compared: 3,
  missing: [],
  added: [],
  missingMetrics: [],
  differences: [{ evalId: 'sometimes', event: 1, path: '/texts/0', before: 'a', after: 'b' }],
};

describe('a case gets through', () => {
  test.each([
    ['all of its trials passed', summary('a'), gate, true],
    ['too few passed', flaky, gate, false],
    ['enough passed', flaky, { ...gate, threshold: 0.5 }, true],
    ['a trial broke off, although the others passed', summary('a', { errors: 1 }), gate, false],
    ['no metric says anything', silent, gate, false],
    ['no metric says anything, and that is allowed', silent, { ...gate, allowNotEvaluated: true }, true],
    ['a trial was cancelled, although the others passed', summary('a', { unfinished: 1 }), gate, false],
    ['it has no trials at all', summary('a', { trials: 0, passed: 0, passRate: null }), gate, false],
  ])('where %s: %#', (_, one, by, expected) => {
    expect(isThrough(one, by)).toBe(expected);
    expect(toExitCode([summary('other'), one], by)).toBe(expected ? 0 : 1);
  });

  test('no case at all is no pass', () => {
    expect(toExitCode([], gate)).toBe(1);
  });

  test.each([
    ['no case in common', { compared: 0 }, 'Nothing was compared: the runs have no case with a verdict in common.'],
    ['a case without a verdict now', { missing: ['b'] }, 'Not compared, as they have no verdict now: b.'],
    ['a metric without a verdict now', { missingMetrics: ['m'] }, 'Not compared, as they give no verdict now: m.'],
  ])('%s is exit code 3, and is named', (_, more, line) => {
    const comparison = { ...changed, regression: false, ...more };
    expect([toExitCode([summary('a')], gate, comparison), toComparisonCode(comparison)]).toEqual([3, 3]);
    expect([toExitCode([flaky], gate, comparison), toComparisonCode({ ...comparison, regression: true })]).toEqual([
      1, 1,
    ]);
    expect(toTable([summary('a')], gate, comparison)).toContain(line);
  });

  test('a regression fails a run whose cases all got through', () => {
    expect(toExitCode([summary('a')], gate, changed)).toBe(1);
    expect(toExitCode([summary('a')], gate, { ...changed, regression: false })).toBe(0);
  });
});

test('the table names each case, its reason, and what changed', () => {
  expect(toTable([summary('a'), flaky, broken], gate, changed)).toBe(
    [
      '    case               passed  95 %        response_match_score',
      'ok  a                  2/2     34 %–100 %  0.75',
      'NO  sometimes (flaky)  1/2     34 %–100 %  0.75',
      'NO  broken             0/2     34 %–100 %  –',
      '',
      'sometimes: response_match_score: 0.5 is below 0.7.',
      'broken: a < "b"\u0001',
      '',
      '1 of 3 cases passed.',
      'Against the baseline: won none; lost sometimes; worse sometimes; p = 1.000.',
      '  sometimes: event 1/texts/0: "a" became "b"',
      'This is a regression.',
    ].join('\n'),
  );
});

test('the JUnit report has a test for each case and is XML whatever a reason says', () => {
  expect(toJunit('set', [summary('a'), flaky, broken], gate)).toBe(
    [
      '<?xml version="1.0" encoding="UTF-8"?>',
      '<testsuite name="set" tests="3" failures="1" errors="1">',
      '  <testcase classname="set" name="a"/>',
      '  <testcase classname="set" name="sometimes">',
      '    <failure message="response_match_score: 0.5 is below 0.7."/>',
      '  </testcase>',
      '  <testcase classname="set" name="broken">',
      '    <error message="a &lt; &quot;b&quot;�"/>',
      '  </testcase>',
      '</testsuite>',
      '',
    ].join('\n'),
  );
});
