import type { JsonObject, Part } from '../../core/content.ts';
import { AppError } from '../../core/errors.ts';
import { withoutRewound } from '../../core/event.ts';
import { isResultArtifact, READ_RESULT, resultArtifact } from '../../core/names.ts';
import type { OpenCall } from './call-ledger.ts';
import { givesHandle } from './handle.ts';
import { dropsResults, isInBranch } from './build-contents.ts';
import { deriveId, type AgentTurn, type InvocationState } from './invocation-state.ts';
import { findTool } from './record-calls.ts';
import { type Answer, failed, toJsonText } from './tool-answer.ts';

/*
 * A function response above a bound is kept as an artifact of the session; the model gets its head and a handle, the id
 * of the call, with which the tool `read_result` reads it in pieces.
 */

/** Maximum length of a function response as JSON in a prompt, if its tool has no other (`maxResultCharacters`). */
const MAX_IN_PROMPT = 100_000;
/** The same in a live session, where the model cannot be given the tool that reads a kept result. */
const MAX_LIVE = 500_000;
/** Share of the model's context that one result may take, and characters of a token. */
const CONTEXT_SHARE = 1 / 8;
const TOKEN_CHARACTERS = 4;

export const getBound = ({ agent: { contextTokens = Infinity } }: AgentTurn): number =>
  Math.min(MAX_IN_PROMPT, Math.floor(contextTokens * TOKEN_CHARACTERS * CONTEXT_SHARE));

/** Length of the head of a kept result, in characters. */
const HEAD = 2_000;

const HOW =
  `The result is too large to be shown whole. \`${READ_RESULT}\` with this handle gives pieces of it by \`offset\` and ` +
  '`length`, lines with a text by `search`, and values of JSON by `path`.';

/** Name of the artifact that holds a kept result. A handle that is no name, as a model may choose, is hashed. */
export function toArtifactName(handle: string): string {
  const name = resultArtifact(handle);
  return isResultArtifact(name) ? name : resultArtifact(deriveId([handle]));
}

/** A function response as text: that of its only member `result`, if that is a text, else its JSON. */
export function toResultText(response: JsonObject): { text: string; kind: 'text' | 'json' } {
  const { result } = response;
  const isText = typeof result === 'string' && Object.keys(response).length === 1 && result.isWellFormed();
  return isText ? { text: result, kind: 'text' } : { text: toJsonText(response), kind: 'json' };
}

/** True if the history that the agent sees gives it a handle. */
export function seesHandle(invocation: InvocationState, { branch }: AgentTurn): boolean {
  const held = (invocation.handles ??= withoutRewound(invocation.events).filter(
    (event) => givesHandle(event) || dropsResults(event),
  ));
  return held.some((event) => isInBranch(event, branch));
}

/** Text up to `end`, without half of a pair of surrogates. */
export function cutText(text: string, start: number, end: number): string {
  const isHalf = end < text.length && end > start + 1 && /[\uD800-\uDBFF]/.test(text[end - 1] ?? '');
  return text.slice(start, isHalf ? end - 1 : end);
}

/** A piece of a text keeps the whole text in memory (V8), and a head stays as long as its invocation runs. */
const copyOf = (piece: string): string => JSON.parse(JSON.stringify(piece)) as string;

/** Replaces a response that is too large for the prompt or for the event of its step. Answers that fit stay. */
export type Fit = (call: OpenCall, answer: Answer) => Promise<Answer>;

/**
 * Makes the {@link Fit} of one step.
 * @param maximum - maximum size of all responses of the step, because they are one event, in characters of JSON
 */
export function fitWithin(invocation: InvocationState, turn: AgentTurn, maximum: number, isLive: boolean): Fit {
  let room = maximum;
  const fitted = new WeakSet<JsonObject>();
  const take = (answer: Answer): Answer => {
    room -= getSize(answer);
    if (answer.response) fitted.add(answer.response);
    return answer;
  };
  return async (call, answer) => {
    const { response, attachments } = answer;
    if (!response || fitted.has(response)) return answer;
    const own = findTool(turn, call)?.limits?.maxResultCharacters;
    const bound = own ?? (isLive ? MAX_LIVE : getBound(turn));
    const characters = toJsonText(response).length;
    const isLarge = characters > bound;
    if (!isLarge && getSize(answer) <= room) return take(answer);
    const { text, kind } = toResultText(response);
    const handle = invocation.input.parentCall ? invocation.toOperationId(call) : call.id;
    const stub = {
      handle,
      characters: text.length,
      kind,
      head: copyOf(cutText(text, 0, Math.min(HEAD, Math.floor(bound / 2)))),
      note: HOW,
    };
    const kept = { ...answer, response: stub };
    const smallest = { ...kept, response: { ...stub, head: '' } };
    if (isLive || bound === Infinity || attachments.length > 0 || getSize(smallest) > Math.min(room, characters)) {
      const what = isLarge ? `The tool's result is` : 'The results of this step are together';
      const error = `${what} larger than ${isLarge ? bound : maximum} characters. Ask for less${isLarge ? '' : ' at once'}.`;
      return take({ ...answer, ...failed(error), actions: answer.actions });
    }
    return keep(invocation, call, take(getSize(kept) <= room ? kept : smallest), text);
  };
}

/** Keeps the text of an answer that has its head. If it cannot be kept, the model is told why, and has the head. */
async function keep(invocation: InvocationState, call: OpenCall, answer: Answer, text: string): Promise<Answer> {
  const { ledger, services } = invocation.input;
  const { handle, kind, ...rest } = answer.response ?? {};
  const name = toArtifactName(String(handle));
  const part: Part =
    kind === 'text'
      ? { text }
      : { inlineData: { mimeType: 'application/json', data: Buffer.from(text).toString('base64') } };
  const metadata = { tool: call.name, callId: call.id };
  try {
    // The events of an agent that is used as a tool are not stored, so that its results are stored at once.
    const result = await ledger?.keepResult(name, part, metadata);
    const version = ledger ? 0 : await services.saveArtifact(name, part, metadata);
    const artifactDelta = { ...answer.actions.artifactDelta, [name]: version };
    return { ...answer, actions: { ...answer.actions, artifactDelta }, ...(result && { result }) };
  } catch (error) {
    if (!(error instanceof AppError) || ledger?.isFailure(error)) throw error;
    const note = `Only the head of the result is here. The whole could not be kept: ${error.message}`;
    return { ...answer, response: { kind, ...rest, note } };
  }
}

const getSize = ({ response, attachments }: Answer): number =>
  (response ? toJsonText(response).length : 0) +
  attachments.reduce((sum, { inlineData, text }) => sum + (inlineData?.data?.length ?? 0) + (text?.length ?? 0), 0);
