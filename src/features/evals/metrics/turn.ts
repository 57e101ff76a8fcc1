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
import type { UsageMetadata } from '../../../core/model-metadata.ts';

/** One event between the user's content and the final response. The last two members stand on answers of a model. */
export interface TurnEvent {
  author?: string | null | undefined;
  content?: Content | null | undefined;
  usageMetadata?: UsageMetadata | null | undefined;
  modelVersion?: string | null | undefined;
}

/** The course of a turn before its final response: events (ADK 2.x), or calls, responses and texts apart (1.x). */
export interface IntermediateData {
  invocationEvents?: TurnEvent[] | null | undefined;
  toolUses?: FunctionCall[] | null | undefined;
  toolResponses?: FunctionResponse[] | null | undefined;
  intermediateResponses?: unknown[] | null | undefined;
}

/** A property that a judge answers with yes or no. */
export interface Rubric {
  rubricId: string;
  rubricContent: { textProperty?: string | null | undefined };
  /** Names the metric that it is for; without one a turn's rubric is for none. */
  type?: string | null | undefined;
}

/** One turn of a conversation, expected or actual. Durations in seconds. */
export interface Turn {
  invocationId?: string | null | undefined;
  userContent: Content;
  finalResponse?: Content | null | undefined;
  intermediateData?: IntermediateData | null | undefined;
  rubrics?: Rubric[] | null | undefined;
  /** The material of each agent that spoke: `{agentDetails: {<agent>: {instructions, toolDeclarations}}}`. */
  appDetails?: JsonObject | null | undefined;
  duration?: number | null | undefined;
  modelDuration?: number | null | undefined;
  toolDuration?: number | null | undefined;
}

/** A turn that happened beside the one that the case expects; a simulated conversation expects none. */
export interface TurnPair {
  actual: Turn;
  expected?: Turn | undefined;
  /** Those of the case and of the expected turn. */
  rubrics?: Rubric[] | undefined;
}

/** The function calls of a turn, in order: `toolUses`, else those in `invocationEvents`; `[]` without data. */
export function getCalls(data: IntermediateData | null | undefined): FunctionCall[] {
  return data?.toolUses ?? (data?.invocationEvents ?? []).flatMap(({ content }) => getFunctionCalls(content));
}

/** The function responses of a turn, in order. */
export function getResponses(data: IntermediateData | null | undefined): FunctionResponse[] {
  return data?.toolResponses ?? (data?.invocationEvents ?? []).flatMap(({ content }) => getFunctionResponses(content));
}

/** The contents between question and answer, in order, each with its author; of ADK 1.x's form the texts only. */
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

/** The texts of a content's parts, thoughts included as in ADK, joined by line feeds; `''` where there is none. */
export const getText = (content: Content | null | undefined): string =>
  getParts(content)
    .flatMap(({ text }) => (text ? [text] : []))
    .join('\n');

/** The course of a turn in the form of ADK 1.x: calls, responses and texts, each on its own. */
export const toToolUses = (data: IntermediateData | null | undefined) => ({
  toolUses: getCalls(data),
  toolResponses: getResponses(data),
  intermediateResponses: getContents(data).flatMap(({ author, content }): [author: string, parts: Part[]][] => {
    const texts = getParts(content).filter((part) => part.text != null);
    return texts.length > 0 ? [[author, texts]] : [];
  }),
});
