import { LimitError } from '../../../core/errors.ts';
import type { TurnScore } from '../metrics/status.ts';
import { parseExactJson } from '../../../core/exact-json.ts';

/** Asks the judge model. The answer may be empty; rejects if the call fails. */
export type Judge = (prompt: string) => Promise<string>;

/** Number of samples (answers of the judge) per prompt, and maximum number of concurrent calls. */
export interface Sampling {
  numSamples: number;
  parallelismLimit: number;
}

/** The samples that could be parsed, in order, and the reason why other samples could not be parsed. */
export interface Samples<Reading> {
  readings: Reading[];
  requestedCount: number;
  problem?: string | undefined;
}

/** Calls the judge, and retries once if the call fails. @throws {LimitError} if a budget is exhausted */
export async function callJudge(judge: Judge, prompt: string): Promise<string> {
  try {
    return await judge(prompt);
  } catch (error) {
    if (error instanceof LimitError) throw error;
    return judge(prompt);
  }
}

/** The answers of several calls with the same prompt, parsed. @throws {LimitError} if a budget is exhausted */
export async function takeSamples<Reading>(
  judge: Judge,
  prompt: string,
  { numSamples, parallelismLimit }: Sampling,
  read: (answer: string) => Reading | undefined,
): Promise<Samples<Reading>> {
  const answers: (Reading | undefined)[] = [];
  let next = 0;
  let problem: string | undefined;
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
  return { readings: answers.filter((answer) => answer !== undefined), requestedCount: numSamples, problem };
}

/** The majority of votes, 1 or 0; a tie is 0. */
export const majority = (votes: number[]): number =>
  votes.filter((vote) => vote === 1).length * 2 > votes.length ? 1 : 0;

/** Scores a turn from the parsed samples. The turn has no score if fewer than half of the samples could be parsed. */
export function toTurnScore<Reading>(
  { readings, requestedCount, problem }: Samples<Reading>,
  decide: (readings: Reading[]) => TurnScore,
): TurnScore {
  if (readings.length > 0 && readings.length * 2 >= requestedCount) return decide(readings);
  const reason = problem === undefined ? '' : ` (${problem})`;
  return {
    score: null,
    explanation: `${readings.length} of ${requestedCount} samples of the judge were readable, fewer than half${reason}.`,
  };
}

type JsonObject = Record<string, unknown>;

/** Finds the JSON object in a judge's answer: the whole text, a code fence, or the outermost braces. */
export function readJsonAnswer(answer: string): JsonObject | undefined {
  const fenced = findFence(answer);
  const braced = answer.slice(answer.indexOf('{'), answer.lastIndexOf('}') + 1);
  for (const candidate of [answer, fenced, braced]) {
    const value = tryParse(candidate);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as JsonObject;
  }
  return undefined;
}

/** Finds a code fence without a regular expression, which takes quadratic time if the closing fence is missing. */
function findFence(answer: string): string | undefined {
  const start = answer.indexOf('```');
  const end = answer.indexOf('```', start + 3);
  return start < 0 || end < 0 ? undefined : answer.slice(start + 3, end).replace(/^json/, '');
}

function tryParse(text: string | undefined): unknown {
  try {
    return text === undefined ? undefined : parseExactJson(text);
  } catch {
    return undefined;
  }
}

/** Converts a text or boolean to a lower-case word; `undefined` for other values. */
export function toWord(value: unknown): string | undefined {
  if (typeof value === 'boolean') return String(value);
  return typeof value === 'string' ? value.trim().toLowerCase() : undefined;
}

export function toObjects(value: unknown): JsonObject[] | undefined {
  if (!Array.isArray(value)) return undefined;
  return value.filter((each): each is JsonObject => typeof each === 'object' && each !== null);
}
