import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import type { Model } from '../../../../src/agent/definition/model.ts';
import type { Spend } from '../../../../src/conversation/budgets/reserve-call.ts';
import { judgeWith } from '../../../../src/features/evals/judges/judge-model.ts';
import { FINAL_RESPONSE_QUALITY, rubricsOfTurns } from '../../../../src/features/evals/judges/rubrics.ts';
import {
  finalResponseMatch,
  readFinalResponseVerdict,
  readValidity,
} from '../../../../src/features/evals/judges/verdicts.ts';
import { readCriterion } from '../../../../src/features/evals/metrics/criteria.ts';
import { toEfficiency } from '../../../../src/features/evals/metrics/efficiency.ts';
import { toStatus } from '../../../../src/features/evals/metrics/status.ts';
import type { Turn } from '../../../../src/features/evals/metrics/turn.ts';
import { nextMessage, readSimulatedUser } from '../../../../src/features/evals/runs/simulated-user.ts';
import { readEvalSet, writeEvalSet } from '../../../../src/features/evals/sets/eval-set-file.ts';
import { collect } from '../../../../src/platform/json-stream.ts';
import { scriptedJudge, turn } from './judges/judge-vectors.ts';
import { checkAll } from './vectors.ts';

/** Kinds in which readings of other vectors differed from ADK: each is equal, or differs for a reason named here. */

interface Kinds {
  bytes: { sent: string; data: string; thoughtSignature: string }[];
  setMembers: { sent: Record<string, unknown>; kept: object }[];
  samplesThatRaise: { answers: string[]; score: number | null; status: string }[];
  labels: { answer: string; simulator: string; finalAnswer: string; final: string }[];
  matchTypes: { sent: unknown; read: string | null }[];
  userParts: { parts: { text: string; thought?: boolean }[]; status: string; text: string | null }[];
  durations: { turns: Partial<Turn>[]; score: number | null; overall: object; perInvocation: object[] }[];
  rubricNulls: { answer: string; rubrics: string[]; score: number | null; rubricScores: [string, number | null][] }[];
}
const kinds = JSON.parse(
  readFileSync(new URL('../../../data/evaluation/kinds.json', import.meta.url), 'utf8'),
) as Kinds;

const file = { evalSetId: 's', now: 0, newId: () => 'i' };
const exported = async (sent: object) => {
  const { set, dropped } = readEvalSet(sent, file);
  const { eval_cases: cases, ...head } = set;
  const written = await collect(await writeEvalSet(head, [cases.map((one) => JSON.stringify(one))]));
  return { written: JSON.parse(written) as Record<string, unknown>, dropped };
};
const withSamples = (numSamples: number) => ({ threshold: 0.5, judgeModelOptions: { numSamples } });
const defaults = { judgeModel: 'j' };

test('bytes and thought signatures are written in the URL-safe alphabet', () =>
  checkAll('bytes', kinds.bytes, async ({ sent, data, thoughtSignature }) => {
    const parts = [{ inlineData: { mimeType: 'image/png', data: sent } }, { text: 't', thoughtSignature: sent }];
    const conversation = [{ userContent: { role: 'user', parts } }];
    const { written } = await exported({ eval_set_id: 's', eval_cases: [{ evalId: 'c', conversation }] });
    const said = { parts: [{ inline_data: { data } }, { thought_signature: thoughtSignature }] };
    expect(written).toMatchObject({ eval_cases: [{ conversation: [{ user_content: said }] }] });
  }));

test('a set keeps the members that ADK knows, and names the others', () =>
  checkAll('setMembers', kinds.setMembers, async ({ sent, kept }) => {
    const { written, dropped } = await exported(sent);
    expect(written).toEqual(kept);
    expect(dropped).toEqual(Object.keys(sent).filter((name) => !(name in kept)));
  }));

test('a sample that raises', () =>
  checkAll(
    'samplesThatRaise',
    kinds.samplesThatRaise,
    async ({ answers, score, status }) => {
      const said = answers.map((answer) => (answer === 'raise' ? '__error__' : answer));
      const criterion = readCriterion('judge', { metricName: 'm', criterion: withSamples(answers.length) }, defaults);
      const found = await finalResponseMatch(
        [{ actual: turn(), expected: turn() }],
        criterion,
        scriptedJudge(said).judge,
      );
      expect([found.score, toStatus(found.score, 0.5)]).toEqual([score, status]);
    },
    [
      {
        reason: 'one failed call voids no turn: the readable half of the samples decides',
        holds: ({ answers }) => answers.filter((answer) => answer !== 'raise').length * 2 >= answers.length,
      },
    ],
  ));

test('a label that only contains a word', () =>
  checkAll('labels', kinds.labels, ({ answer, simulator, finalAnswer, final }) => {
    const read = { VALID: 1, INVALID: 0 } as Record<string, number>;
    expect([readValidity(answer), readFinalResponseVerdict(finalAnswer)]).toEqual([read[simulator], read[final]]);
  }));

test('spellings of a match type', () =>
  checkAll(
    'matchTypes',
    kinds.matchTypes,
    ({ sent, read }) => {
      const criterion = () =>
        readCriterion('trajectory', { metricName: 'm', criterion: { threshold: 1, matchType: sent } }, defaults);
      if (read === null) expect(criterion).toThrow('matchType');
      else expect(criterion().matchType).toBe(read);
    },
    [{ reason: 'booleans are not numbers', holds: ({ sent }) => sent === true }],
  ));

test('an answer of a simulated user in several parts', () =>
  checkAll('userParts', kinds.userParts, async ({ parts, status, text }) => {
    const model: Model = {
      // oxlint-disable-next-line require-yield -- it streams nothing
      async *generate() {
        return { content: { role: 'model', parts } };
      },
    } as never;
    const spend: Spend = async (asked, request) => (await asked.generate(request).next()).value;
    const judge = judgeWith({ model, spend }, 'm', {}, AbortSignal.timeout(60_000), '');
    const scenario = { startingPrompt: 'Start', conversationPlan: 'p' };
    const next = await nextMessage(readSimulatedUser(undefined), scenario, [{ user: 'Start', agent: 'a' }], judge);
    expect([next.status, 'text' in next ? next.text : null]).toEqual([status, text]);
  }));

test('durations of which a side is absent', () =>
  checkAll('durations', kinds.durations, ({ turns, score, overall, perInvocation }) => {
    const timed = turns.map((one) => ({ userContent: { parts: [] }, ...one }));
    const found = toEfficiency(timed).invocationDuration;
    const each = timed.map((one) => toEfficiency([one]).invocationDuration);
    expect([found?.totalSeconds ?? null, found, each]).toEqual([score, overall, perInvocation]);
  }));

test('a rubric that is answered with no verdict', () =>
  checkAll('rubricNulls', kinds.rubricNulls, async ({ answer, rubrics, score, rubricScores }) => {
    const asked = rubrics.map((rubricId, place) => ({
      rubricId,
      rubricContent: { textProperty: `P${place}` },
      type: 'FINAL_RESPONSE_QUALITY',
    }));
    const criterion = { ...withSamples(1), rubrics: asked };
    const read = readCriterion('rubrics', { metricName: 'm', criterion }, defaults);
    const judge = scriptedJudge([answer]).judge;
    const found = await rubricsOfTurns(FINAL_RESPONSE_QUALITY)([{ actual: turn() }], read, judge);
    expect([found.score, found.rubricScores?.map((one) => [one.rubricId, one.score])]).toEqual([score, rubricScores]);
  }));
