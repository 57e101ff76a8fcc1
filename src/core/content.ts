import { z } from 'zod';

/**
 * Content and Part as the specification's "Content" and "Part" sections list them. Every object is loose: members that the
 * specification does not name are kept. Enumerations whose values are "not shown" stay open strings. Members may be `null`
 * on the way in, as pydantic clients send them; answers leave nulls out.
 */

const text = () => z.string().nullish();
const flag = () => z.boolean().nullish();
const number = () => z.number().nullish();
/** A free-form JSON object: its keys are data and are never renamed. */
export const jsonObject = z.record(z.string(), z.unknown());
export type JsonObject = Record<string, unknown>;

/** An open enumeration: the specification shows only `sample`; any other string is accepted and kept. */
export const openEnum = (sample: string) =>
  z.string().nullish().describe(`Open enumeration; the specification shows the value ${sample}.`);

const inlineData = z
  .looseObject({
    data: text().describe('The bytes, base64.'),
    displayName: text(),
    mimeType: text(),
  })
  .describe('Bytes carried inside the part.');

const fileData = z
  .looseObject({ displayName: text(), fileUri: text(), mimeType: text() })
  .describe('A reference to a file elsewhere.');

export const functionCallSchema = z
  .looseObject({
    id: text().describe('Pairs the call with its response.'),
    name: text(),
    args: jsonObject.nullish(),
    partialArgs: z
      .array(
        z.looseObject({
          jsonPath: text(),
          boolValue: flag(),
          nullValue: openEnum('NULL_VALUE'),
          numberValue: number(),
          stringValue: text(),
          willContinue: flag(),
        }),
      )
      .nullish(),
    willContinue: flag(),
  })
  .describe('A tool call that the model asks for.');

export const functionResponseSchema = z
  .looseObject({
    id: text().describe('The id of the call that this answers.'),
    name: text(),
    response: jsonObject.nullish(),
    willContinue: flag(),
    scheduling: openEnum('SCHEDULING_UNSPECIFIED'),
    parts: z.array(z.looseObject({ inlineData: inlineData.nullish(), fileData: fileData.nullish() })).nullish(),
  })
  .describe("A tool's answer to one call.");

export const partSchema = z
  .looseObject({
    text: text(),
    thought: flag().describe('True for text that is reasoning and not an answer.'),
    thoughtSignature: text().describe("The provider's signature of a thought; sent back unchanged."),
    inlineData: inlineData.nullish(),
    fileData: fileData.nullish(),
    functionCall: functionCallSchema.nullish(),
    functionResponse: functionResponseSchema.nullish(),
    executableCode: z.looseObject({ code: text(), language: openEnum('LANGUAGE_UNSPECIFIED'), id: text() }).nullish(),
    codeExecutionResult: z
      .looseObject({ outcome: openEnum('OUTCOME_UNSPECIFIED'), output: text(), id: text() })
      .nullish(),
    mediaResolution: z.looseObject({ level: openEnum('MEDIA_RESOLUTION_UNSPECIFIED'), numTokens: number() }).nullish(),
    videoMetadata: z.looseObject({ startOffset: text(), endOffset: text(), fps: number() }).nullish(),
    toolCall: z
      .looseObject({ id: text(), toolType: openEnum('TOOL_TYPE_UNSPECIFIED'), args: jsonObject.nullish() })
      .nullish(),
    toolResponse: z
      .looseObject({ id: text(), toolType: openEnum('TOOL_TYPE_UNSPECIFIED'), response: jsonObject.nullish() })
      .nullish(),
    partMetadata: jsonObject.nullish(),
  })
  .describe('One piece of a content; it carries the members it uses.');

export const contentSchema = z
  .looseObject({
    parts: z.array(partSchema).nullish(),
    role: text().describe('`user` or `model`.'),
  })
  .describe('A message: parts by one role.');

export type FunctionCall = z.infer<typeof functionCallSchema>;
export type FunctionResponse = z.infer<typeof functionResponseSchema>;
export type Part = z.infer<typeof partSchema>;
export type Content = z.infer<typeof contentSchema>;

/** The parts of a content, `[]` where it has none. */
export const partsOf = (content: Content | null | undefined): Part[] => content?.parts ?? [];

/** The function calls of a content, in order. */
export const functionCallsOf = (content: Content | null | undefined): FunctionCall[] =>
  partsOf(content).flatMap((part) => (part.functionCall ? [part.functionCall] : []));

/** The function responses of a content, in order. */
export const functionResponsesOf = (content: Content | null | undefined): FunctionResponse[] =>
  partsOf(content).flatMap((part) => (part.functionResponse ? [part.functionResponse] : []));

/** All text of a content that is an answer: thoughts left out, parts joined without a separator; `''` where there is none. */
export const answerTextOf = (content: Content | null | undefined): string =>
  partsOf(content)
    .filter((part) => part.thought !== true)
    .map((part) => part.text ?? '')
    .join('');
