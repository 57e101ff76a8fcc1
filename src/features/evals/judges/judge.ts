import { LimitError } from '../../../core/errors.ts';
import type { TurnScore } from '../metrics/status.ts';
import { parseExactJson } from '../../../core/exact-json.ts';

/** A model that judges: gives the text of its answer to a prompt, `''` without text; rejects where the call failed. */
export type Judge = (prompt: string) => Promise<string>;

/** How often a judge answers one prompt, and how many of these calls may be open at once. */
export interface Sampling {
  numSamples: number;
  parallelismLimit: number;
}

/** The readable answers in the order of the samples, and the reason why the others are left out. */
export interface Samples<Reading> {
  readings: Reading[];
  wanted: number;
  problem?: string | undefined;
}

/** One answer of a judge; a call that failed is made once more. @throws {LimitError} where a budget has nothing left */
export async function callJudge(judge: Judge, prompt: string): Promise<string> {
  try {
    return await judge(prompt);
  } catch (error) {
    if (error instanceof LimitError) throw error;
    return judge(prompt);
  }
}

/** Several readable answers of a judge to one prompt. @throws {LimitError} where a budget has nothing left */
export async function takeSamples<Reading>(
  judge: Judge,
  prompt: string,
  { numSamples, parallelismLimit }: Sampling,
  read: (answer: string) => Reading | undefined,
): Promise<Samples<Reading>> {
  const answers: (Reading | undefined)[] = [];
  let [next, problem]: [number, string | undefined] = [0, undefined];
  const work = async () => {
    while (next < numSamples) {
      const place = next;
      next += 1;
      try {
        answers[place] = read(await callJudge(judge, prompt));
        if (answers[place] === undefined) problem = 'the answer could not be read';
      } catch (error) {
        if (error instanceof LimitError) throw error;
        problem = error instanceof Error ? error.message : String(error);
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(parallelismLimit, numSamples) }, work));
  return { readings: answers.filter((answer) => answer !== undefined), wanted: numSamples, problem };
}

/** The verdict that most samples give, 1 or 0; a tie is 0. */
export const majority = (votes: number[]): number =>
  votes.filter((vote) => vote === 1).length * 2 > votes.length ? 1 : 0;

/** The score that `decide` makes of readable samples; with fewer than half readable a turn is not evaluated. */
export function toTurnScore<Reading>(
  { readings, wanted, problem }: Samples<Reading>,
  decide: (readings: Reading[]) => TurnScore,
): TurnScore {
  if (readings.length > 0 && readings.length * 2 >= wanted) return decide(readings);
  const reason = problem === undefined ? '' : ` (${problem})`;
  return {
    score: null,
    explanation: `${readings.length} of ${wanted} samples of the judge were readable, fewer than half${reason}.`,
  };
}

type JsonObject = Record<string, unknown>;

/** The JSON object in a judge's answer: the whole text, in a fence, or in the outermost braces. */
export function readJsonAnswer(answer: string): JsonObject | undefined {
  const fenced = fencedIn(answer);
  const braced = answer.slice(answer.indexOf('{'), answer.lastIndexOf('}') + 1);
  for (const candidate of [answer, fenced, braced]) {
    const value = parsed(candidate);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as JsonObject;
  }
  return undefined;
}

/** The text in the first fence. No pattern: one that looks for its end takes quadratic time where there is none. */
function fencedIn(answer: string): string | undefined {
  const start = answer.indexOf('```');
  const end = answer.indexOf('```', start + 3);
  return start < 0 || end < 0 ? undefined : answer.slice(start + 3, end).replace(/^json/, '');
}

function parsed(text: string | undefined): unknown {
  try {
    return text === undefined ? undefined : parseExactJson(text);
  } catch {
    return undefined;
  }
}

/** A member of a judge's answer as a word in lower case; `undefined` for other than text and booleans. */
export function toWord(value: unknown): string | undefined {
  if (typeof value === 'boolean') return String(value);
  return typeof value === 'string' ? value.trim().toLowerCase() : undefined;
}

/** A member of a judge's answer that is a list of objects; `undefined` for anything else. */
export function toObjects(value: unknown): JsonObject[] | undefined {
  if (!Array.isArray(value)) return undefined;
  return value.filter((each): each is JsonObject => typeof each === 'object' && each !== null);
}
