import {
  type Content,
  type FunctionCall,
  getFunctionCalls,
  type FunctionResponse,
  getFunctionResponses,
  type JsonObject,
  type Part,
  getParts,
} from '../../../core/content.ts';
import { isRuntimeCall } from '../../../core/names.ts';
import type { UsageMetadata } from '../../../core/model-metadata.ts';

/** An event between the user's message and the final response. Only answers of a model have the last two properties. */
export interface TurnEvent {
  author?: string | null | undefined;
  content?: Content | null | undefined;
  usageMetadata?: UsageMetadata | null | undefined;
  modelVersion?: string | null | undefined;
}

/** A turn's events before its final response: a list (ADK 2.x), or lists of calls, responses and texts (ADK 1.x). */
export interface IntermediateData {
  invocationEvents?: TurnEvent[] | null | undefined;
  toolUses?: FunctionCall[] | null | undefined;
  toolResponses?: FunctionResponse[] | null | undefined;
  intermediateResponses?: unknown[] | null | undefined;
}

/** A rubric: a statement about an answer that a judge confirms or denies. */
export interface Rubric {
  rubricId: string;
  rubricContent: { textProperty?: string | null | undefined };
  /** Selects the metric that judges the rubric. A turn's rubric without a type is judged by no metric. */
  type?: string | null | undefined;
}

/** A turn of a conversation, expected or actual. Durations are in seconds. */
export interface Turn {
  invocationId?: string | null | undefined;
  userContent: Content;
  finalResponse?: Content | null | undefined;
  intermediateData?: IntermediateData | null | undefined;
  rubrics?: Rubric[] | null | undefined;
  /** Instructions and tools of each agent that spoke: `{agentDetails: {<agent>: {instructions, toolDeclarations}}}`. */
  appDetails?: JsonObject | null | undefined;
  duration?: number | null | undefined;
  modelDuration?: number | null | undefined;
  toolDuration?: number | null | undefined;
}

/** An actual turn, with the expected turn if there is one. Simulated conversations have no expected turns. */
export interface TurnPair {
  actual: Turn;
  expected?: Turn | undefined;
  rubrics?: Rubric[] | undefined;
}

/**
 * Returns a turn's function calls in order: `toolUses` if present, otherwise the calls in `invocationEvents`. Requests
 * for a confirmation or a credential are omitted, because the runtime makes them, with a random id.
 */
export function getCalls(data: IntermediateData | null | undefined): FunctionCall[] {
  const calls = data?.toolUses ?? (data?.invocationEvents ?? []).flatMap(({ content }) => getFunctionCalls(content));
  return calls.filter(({ name }) => !isRuntimeCall(name));
}

export function getResponses(data: IntermediateData | null | undefined): FunctionResponse[] {
  return data?.toolResponses ?? (data?.invocationEvents ?? []).flatMap(({ content }) => getFunctionResponses(content));
}

/** A turn's contents between the user's message and the final response, in order; for ADK 1.x only texts. */
export function getContents(data: IntermediateData | null | undefined): { author: string; content: Content }[] {
  if (data?.invocationEvents) {
    return data.invocationEvents.flatMap(({ author, content }) =>
      content ? [{ author: author ?? 'agent', content }] : [],
    );
  }
  return (data?.intermediateResponses ?? []).flatMap((pair) => {
    const [author, parts] = Array.isArray(pair) ? (pair as unknown[]) : [];
    return Array.isArray(parts) ? [{ author: String(author), content: { parts: parts as Part[] } }] : [];
  });
}

/** Joins the texts of all parts by line feeds, thoughts included as in ADK. */
export const getText = (content: Content | null | undefined): string =>
  getParts(content)
    .flatMap(({ text }) => (text ? [text] : []))
    .join('\n');

/** Converts a turn to ADK 1.x's form: calls, responses and texts separately. */
export const toToolUses = (data: IntermediateData | null | undefined) => ({
  toolUses: getCalls(data),
  toolResponses: getResponses(data),
  intermediateResponses: getContents(data).flatMap(({ author, content }): [author: string, parts: Part[]][] => {
    const texts = getParts(content).filter((part) => part.text != null);
    return texts.length > 0 ? [[author, texts]] : [];
  }),
});
