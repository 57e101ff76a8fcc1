import type { RubricScore } from '../metrics/status.ts';
import type { Rubric } from '../metrics/turn.ts';
import { objectsOf, readJsonAnswer, wordOf } from './json-answer.ts';

/**
 * A judge's verdicts on rubrics: our JSON first, then ADK's blocks of lines. Rubrics that were not asked for are
 * dropped; `undefined` where nothing could be read.
 */
export function readRubricAnswer(answer: string, rubrics: Rubric[]): RubricScore[] | undefined {
  const json = objectsOf(readJsonAnswer(answer)?.['verdicts']);
  const scores = json ? fromJson(json, rubrics) : fromBlocks(answer, rubrics);
  return scores.length > 0 ? scores : undefined;
}

function fromJson(verdicts: Record<string, unknown>[], rubrics: Rubric[]): RubricScore[] {
  return verdicts.flatMap(({ id, verdict, reason }) => {
    const rubric = rubrics.find(({ rubricId }) => rubricId === id);
    if (!rubric) return [];
    const word = wordOf(verdict);
    const score = word === 'yes' || word === 'true' ? 1 : word === 'no' || word === 'false' ? 0 : null;
    return [{ rubricId: rubric.rubricId, score, ...(typeof reason === 'string' ? { rationale: reason } : {}) }];
  });
}

const PROPERTY = /^[^\S\n]*Property: ([^\n]*)/gm;
const ID = /^[^\S\n]*ID: ([^\n]*)/gm;
/** These two stand anywhere in a line, also inside another member: then the counts differ. */
const RATIONALE = /Rationale: ([^\n]*)/g;
const VERDICT = /Verdict: ([^\n]*)/g;

function fromBlocks(answer: string, rubrics: Rubric[]): RubricScore[] {
  const properties = [...answer.matchAll(PROPERTY)];
  const rationales = [...answer.matchAll(RATIONALE)].map(([, text = '']) => text.trim());
  const verdicts = [...answer.matchAll(VERDICT)].map(([, text = '']) => text.toLowerCase());
  if (rationales.length !== properties.length || verdicts.length !== properties.length) return [];
  const ids = [...answer.matchAll(ID)];
  return properties.flatMap(({ 1: property = '', index }, place) => {
    const previous = place === 0 ? -1 : (properties[place - 1]?.index ?? -1);
    const id = ids.findLast((found) => found.index > previous && found.index < index)?.[1]?.trim();
    const rubric =
      rubrics.find(({ rubricId }) => rubricId === id) ??
      rubrics.find(({ rubricContent }) => plain(rubricContent.textProperty ?? '') === plain(property));
    const verdict = verdicts[place] ?? '';
    const score = verdict.includes('yes') ? 1 : verdict.includes('no') ? 0 : null;
    return rubric ? [{ rubricId: rubric.rubricId, score, rationale: rationales[place] }] : [];
  });
}

const MARK = /[*_`#>\-•"' ]/;

/** Without marks at its ends. A pattern for those at the end takes quadratic time. */
function withoutMarks(text: string): string {
  let start = 0;
  let end = text.length;
  while (start < end && MARK.test(text.charAt(start))) start += 1;
  while (end > start && MARK.test(text.charAt(end - 1))) end -= 1;
  return text.slice(start, end);
}

/** A property as models change it when they repeat it: quotes, dashes, blanks, marks of a list, case. */
const plain = (text: string): string =>
  withoutMarks(
    text
      .normalize('NFKC')
      .replaceAll(/[‘’‚‛]/g, "'")
      .replaceAll(/[“”„‟]/g, '"')
      .replaceAll(/[‐‑‒–—―−]/g, '-')
      .replaceAll(/\s+/g, ' '),
  ).toLowerCase();
