import { abortError } from '../../core/abort.ts';
import { type Content, getAnswerText, getFunctionCalls, getParts, type Part } from '../../core/content.ts';
import { AgentError } from '../../core/errors.ts';
import type { Event, NewEvent } from '../../core/event.ts';
import { INPUT_LIMITS } from '../../core/limits.ts';
import { parseJson } from '../../core/parse-json.ts';
import type { OutputSchema } from '../definition/output-schema.ts';
import type { AgentTurn } from './invocation-state.ts';

/** How often in one turn the model is called again because its answer violated the output schema. */
export const MAX_REPAIRS = 2;

const NO_JSON = 'it is no JSON';

/**
 * Member of `partMetadata` that says why the output schema rejected a text. Such a text is marked as a thought, so that
 * clients do not show it as the answer.
 */
const REJECTED = 'rejected';

/**
 * Sets the value (`output`) of the model's answer. An answer that violates the output schema gets no value; the reason
 * is noted with its text. Answers with tool calls, which are not final, and blocked answers are not changed.
 */
export async function withOutput(event: NewEvent, { agent, signal }: AgentTurn): Promise<NewEvent> {
  const isBlocked = event.finishReason === 'SAFETY';
  if (!agent.outputSchema || event.errorCode || isBlocked || getFunctionCalls(event.content).length > 0) return event;
  const { text, value, problem } = await findValue(getAnswerText(event.content), agent.outputSchema, signal);
  // After an abort the check has no result to use.
  if (signal.aborted) throw abortError(signal);
  if (problem !== undefined) return { ...event, content: mapAnswer(event.content, reject(problem)) };
  let rest = text;
  const content = mapAnswer(event.content, (part) => {
    const answerPart = { ...part, text: rest };
    rest = '';
    return answerPart;
  });
  const parts = getParts(content).filter((part) => part.text !== '' || part.thoughtSignature);
  return { ...event, content: { ...content, parts }, output: value };
}

function parse(text: string): unknown {
  try {
    return parseJson(Buffer.from(text), INPUT_LIMITS.argumentsOfACall, { exact: false });
  } catch {
    return undefined;
  }
}

/** Maximum number of JSON values in one answer that are checked against the output schema. */
const MAX_VALUES = 10;

interface Candidate {
  text: string;
  value?: unknown;
  problem: string | undefined;
}

/**
 * Finds the value in an answer: the whole text, or else the last JSON value that fits the schema, because models put
 * JSON into code blocks or explanations.
 */
async function findValue(answer: string, schema: OutputSchema, signal: AbortSignal): Promise<Candidate> {
  const whole = answer.trim();
  let candidate: Candidate = { text: whole, problem: NO_JSON };
  for (const text of listTexts(whole)) {
    const value = parse(text);
    if (value === undefined) continue;
    const problem = await schema.check(value, signal);
    if (problem === undefined || signal.aborted) return { text, value, problem };
    if (candidate.problem === NO_JSON) candidate = { text, value, problem };
  }
  return candidate;
}

/** Returns the texts within an answer that may be its JSON value, the likeliest first. */
function listTexts(whole: string): string[] {
  if (parse(whole) !== undefined) return [whole];
  const fences = [...whole.matchAll(/```[^\n`]*\n(.*?)```/gs)].map(([, code = '']) => code.trim());
  return [...fences.toReversed(), ...listValues(whole).toReversed()].slice(0, MAX_VALUES);
}

/** Maximum number of opening brackets in one answer that are tried as the start of a JSON value. */
const MAX_STARTS = 200;

/** Returns the outermost JSON objects and lists in a text, in order. */
function listValues(text: string): string[] {
  const values: string[] = [];
  let starts = 0;
  for (let at = text.search(/[{[]/); at >= 0 && starts < MAX_STARTS; starts += 1) {
    const end = findEnd(text, at);
    const value = end === undefined ? undefined : text.slice(at, end);
    const isValue = value !== undefined && parse(value) !== undefined;
    if (isValue) values.push(value);
    const from = isValue ? (end as number) : at + 1;
    const next = text.slice(from).search(/[{[]/);
    at = next < 0 ? -1 : from + next;
  }
  return values;
}

/** Returns the index after the bracket that closes the one at `start`, if there is any. */
function findEnd(text: string, start: number): number | undefined {
  let depth = 0;
  for (const { 0: token, index } of text.slice(start).matchAll(/"(?:[^"\\]|\\.)*"|[{}[\]]/gs)) {
    if (token === '{' || token === '[') depth += 1;
    else if (token === '}' || token === ']') depth -= 1;
    if (depth === 0) return start + index + 1;
  }
  return undefined;
}

const mapAnswer = (content: Content | null | undefined, change: (part: Part) => Part): Content => ({
  ...content,
  parts: getParts(content).map((part) => (part.text && part.thought !== true ? change(part) : part)),
});

const reject =
  (problem: string) =>
  (part: Part): Part => ({
    ...part,
    thought: true,
    partMetadata: { ...part.partMetadata, [REJECTED]: problem },
  });

const getProblem = ({ partMetadata }: Part): string | undefined => {
  const problem = partMetadata?.[REJECTED];
  return typeof problem === 'string' ? problem : undefined;
};

/** Returns why the output schema rejected an answer; `undefined` if it did not. */
export function findProblem(content: Content | null | undefined): string | undefined {
  for (const part of getParts(content)) {
    const problem = getProblem(part);
    if (problem !== undefined) return problem;
  }
  return undefined;
}

/** True for an event whose answer violated the output schema. */
export const isRejected = ({ content }: Event): boolean => findProblem(content) !== undefined;

/** Returns a content as the model produced it, without the marks of a rejected answer. */
export function toOriginal<Original extends Content | null | undefined>(content: Original): Original {
  if (!content || !isRejected({ content })) return content;
  const parts = getParts(content).map((part) => {
    if (getProblem(part) === undefined) return part;
    const { thought: _, partMetadata, ...rest } = part;
    const { [REJECTED]: __, ...metadata } = partMetadata ?? {};
    return Object.keys(metadata).length > 0 ? { ...rest, partMetadata: metadata } : rest;
  });
  return { ...content, parts };
}

/** Returns a message that asks the model to correct a rejected answer. */
export function toCorrection(problem: string): Content {
  const text = `This is not what was asked for: ${problem}. Answer again with one JSON value that fits the schema.`;
  return { role: 'user', parts: [{ text }] };
}

export function noOutput({ content }: Event, modelName: string): AgentError {
  const text = `The answers of \`${modelName}\` do not fit the output schema: ${findProblem(content)}.`;
  return new AgentError('invalid_output', text);
}
