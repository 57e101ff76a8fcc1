import { expect, test } from 'vitest';
import { readFinalResponseVerdict, readValidity } from '../../../../../src/features/evals/judges/verdicts.ts';
import { readLabels } from '../../../../../src/features/evals/judges/hallucinations.ts';
import { readJsonAnswer } from '../../../../../src/features/evals/judges/judge.ts';
import { readRubricAnswer } from '../../../../../src/features/evals/judges/rubrics.ts';

/** A judge can be talked into anything, also into an answer that its reader would take hours for. */
const long = (piece: string) => piece.repeat(Math.ceil(400_000 / piece.length));
const rubrics = [{ rubricId: 'a', rubricContent: { textProperty: 'polite' } }];

test('an answer of a judge is read in time that grows with its length, whatever stands in it', () => {
  expect(readJsonAnswer(`\`\`\`${long('\n')}`)).toBeUndefined();
  expect(readJsonAnswer(long('```\n'))).toBeUndefined();
  for (const piece of [' ', '"', '[', ' "', '"is_valid": '])
    for (const name of ['is_the_agent_response_valid', 'is_valid']) {
      expect(readFinalResponseVerdict(`"${name}":${long(piece)}x x`)).toBeUndefined();
      expect(readValidity(`"${name}":${long(piece)}x x`)).toBeUndefined();
    }
  for (const piece of ['<sentence>', 'sentence:', 'sentence:\nlabel:', 'sentence:\nlabel:\nrationale:'])
    expect(readLabels(long(piece))).toEqual([]);
  const verdict = `Property: a${long('-')}a\nRationale: r\nVerdict: yes`;
  expect(readRubricAnswer(verdict, rubrics)).toBeUndefined();
});
