import { z } from 'zod';
import { isExactInteger } from './exact-json.ts';
import {
  BODY_VALUES,
  bodyList,
  bytes,
  flag,
  name,
  number,
  openEnum,
  optional,
  text,
  texts,
  strictObject,
  objects,
} from './members.ts';

/**
 * Content and Part of the specification, with the further members of ADK 2.13. An unknown member is refused, as by ADK:
 * a misspelt one would leave the model without input, and ADK's clients could no longer read the session.
 */

/** A free-form JSON object. Its keys are data, so they are never renamed. */
export const jsonObject = z.record(z.string(), z.unknown()).meta({ maxProperties: BODY_VALUES });
/** An object of JSON with any members. */
export type JsonObject = Record<string, unknown>;
/** Returns a value from outside as an object; an empty object if the value is not an object. */
export const toMembers = (value: unknown): JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !isExactInteger(value)
    ? (value as JsonObject)
    : {};
export const freeForm = (meaning: string) => jsonObject.nullish().describe(meaning);

const inlineData = strictObject('Bytes carried inside the part.', {
  data: bytes('The bytes, base64; in either alphabet, with or without padding.'),
  displayName: name('File name to show and to send to the provider; not unique.'),
  mimeType: name('IANA media type of the bytes, for example `image/png`.'),
});

const fileData = strictObject('A reference to a file elsewhere.', {
  displayName: name('File name to show and to send to the provider; not unique.'),
  fileUri: text('Where the file is; this runtime never fetches it.'),
  mimeType: name('IANA media type of the file.'),
});

/**
 * Media metadata of a part, which is stored and passed on, never interpreted. The specification has only the resolution
 * and the video clip; clients of later ADK versions (google-genai 3.4) send the other members.
 */

const layers = (meaning: string) => texts(`${meaning} Open enumeration.`);
const startOffset = name('Where it begins, seconds with an `s`, for example `3.5s`.');
const endOffset = name('Where it ends, written as `startOffset` is.');

const mediaResolution = z.strictObject({
  level: openEnum('MEDIA_RESOLUTION_UNSPECIFIED', 'How finely the model looks.'),
  numTokens: number('Number of tokens that the media is turned into.'),
});

const videoMetadata = z.strictObject({
  startOffset: name('Where the clip begins, seconds with an `s`, for example `3.5s`.'),
  endOffset: name('Where the clip ends, written as `startOffset` is.'),
  fps: number('Frames per second that the model sees; without it the provider chooses.'),
  contentLayers: layers('What of the video the model is given: frames, audio, a transcript.'),
});

const mediaProcessing = z.string().max(1_024);

const documentMetadata = z.strictObject({
  startPage: z.int().nullish().describe('First page, from 1.'),
  endPage: z.int().nullish().describe('Last page, inclusive.'),
  contentLayers: layers('What of the pages the model is given: images, text.'),
});

const spreadsheetMetadata = z.strictObject({
  visibleCells: text('The cells that the model sees, for example `A1:D10`; without it all of the sheet.'),
  sheetIndex: z.int().nullish().describe('The sheet, from 1.'),
  contentLayers: layers('What of the cells the model is given: data, formulas, an image.'),
});

const audioMetadata = z.strictObject({ startOffset, endOffset });

const speechMetadata = z.strictObject({
  speaker: name('Who speaks, as the configuration of the voices names it.'),
  style: text('How it is spoken, in words.'),
});

const word = z.strictObject({ word: text('A word of the transcription, as it was heard.'), startOffset, endOffset });

/** A transcription of speech, in a part or in an event of a live session. */
export const transcriptionSchema = z.strictObject({
  text: text('What was heard, as text.'),
  finished: flag('True on the last part of an utterance.'),
  languageCode: name('Language as a BCP 47 tag, for example `en-US`.'),
  speakerLabel: name('Who speaks, for example `spk_1`.'),
  words: bodyList(word).nullish().describe('The words one by one, with their times.'),
  startOffset,
  endOffset,
});

/** Media members of a content's parts and of a function response's parts. */
const mediaMembers = {
  mediaResolution: mediaResolution.nullish().describe('Resolution of the media of this part; kept as sent.'),
  videoMetadata: videoMetadata.nullish().describe('The clip of a video in this part; kept as sent.'),
  mediaProcessing: mediaProcessing.nullish().describe('How the provider prepares the media; kept as sent.'),
  documentMetadata: documentMetadata.nullish().describe('The pages of a document in this part; kept as sent.'),
  spreadsheetMetadata: spreadsheetMetadata.nullish().describe('The cells of a spreadsheet; kept as sent.'),
  audioMetadata: audioMetadata.nullish().describe('The clip of a recording in this part; kept as sent.'),
};

const partialArgument = z.strictObject({
  jsonPath: name('The argument that this fragment belongs to, a JSON path (RFC 9535) such as `$.city`.'),
  boolValue: flag('The value of a boolean argument.'),
  nullValue: openEnum('NULL_VALUE', 'Set where the argument is null.'),
  numberValue: number('The value of a numeric argument.'),
  stringValue: text('The next characters of a string argument.'),
  willContinue: flag('True where more fragments of the same `jsonPath` follow.'),
});

export const functionCallSchema = strictObject('A tool call that the model requests.', {
  id: name('Pairs the call with its response.'),
  name: name('The tool to call.'),
  args: freeForm("The arguments, by the tool's JSON Schema."),
  partialArgs: optional(
    bodyList(partialArgument),
    'Fragments of arguments while a provider streams them; kept as sent, this runtime writes none.',
  ),
  willContinue: flag('True where further fragments of this call follow; this runtime stores whole calls only.'),
});

export const functionResponseSchema = strictObject("A tool's answer to one call.", {
  id: name('The id of the call that this answers.'),
  name: name('The tool that was called.'),
  response: freeForm('The result; a failure is `{"error": …}`, which the model reads and may recover from.'),
  willContinue: flag('True where the tool answers again later; kept as sent, this runtime writes none.'),
  scheduling: openEnum('SCHEDULING_UNSPECIFIED', 'When a live session reads a response that it did not wait for.'),
  parts: objects('Media beside `response`.', {
    inlineData: inlineData.nullish().describe('Media that the tool returns as bytes.'),
    fileData: fileData.nullish().describe('Media that the tool returns as a reference.'),
    ...mediaMembers,
  }),
});

const executableCode = z.strictObject({
  code: text('The source text.'),
  language: openEnum('LANGUAGE_UNSPECIFIED', 'Programming language of `code`.'),
  id: name('Pairs the code with its `codeExecutionResult`.'),
});

const codeExecutionResult = z.strictObject({
  outcome: openEnum('OUTCOME_UNSPECIFIED', 'Whether the code succeeded, failed or ran out of time.'),
  output: text('Standard output on success, else the error.'),
  id: name('The id of the `executableCode` that this is the result of.'),
});

const toolCall = z.strictObject({
  id: name('Pairs the call with its `toolResponse`.'),
  toolType: openEnum('TOOL_TYPE_UNSPECIFIED', "Which of the provider's tools is called."),
  args: freeForm('The arguments, as the provider defines them.'),
});

const toolResponse = z.strictObject({
  id: name('The id of the `toolCall` that this answers.'),
  toolType: openEnum('TOOL_TYPE_UNSPECIFIED', "Which of the provider's tools answers."),
  response: freeForm('The result, as the provider defines it.'),
});

export const partSchema = strictObject('One piece of a content; it carries the members it uses.', {
  text: text('Plain text or Markdown; an answer or, with `thought`, reasoning.'),
  thought: flag('True for text that is reasoning and not an answer.'),
  thoughtSignature: bytes("The provider's signature of a thought, base64; sent back unchanged."),
  inlineData: optional(inlineData, 'Media as bytes; in a stored event too, so artifacts suit large files better.'),
  fileData: fileData.nullish().describe('Media as a reference, handed on to providers that can read it.'),
  functionCall: optional(functionCallSchema, 'A tool call that the model requests; the runtime runs the tool.'),
  functionResponse: optional(
    functionResponseSchema,
    'The answer to a call: of its tool, or of a person where the call waits for one.',
  ),
  executableCode: executableCode.nullish().describe('Code that a provider wrote to run itself; never run here.'),
  codeExecutionResult: codeExecutionResult.nullish().describe('What such code gave when the provider ran it.'),
  ...mediaMembers,
  audioTranscription: transcriptionSchema.nullish().describe('Text of the audio in this part; kept as sent.'),
  speechMetadata: speechMetadata.nullish().describe('Who speaks in this part, and how; kept as sent.'),
  toolCall: toolCall.nullish().describe('A call of a tool that the provider runs on its side; kept as sent.'),
  toolResponse: toolResponse.nullish().describe('The answer to such a `toolCall`; kept as sent.'),
  partMetadata: freeForm(
    'Free-form notes about the part; `invalidArguments` holds call arguments that were no JSON object, `clientTool` ' +
      'is true of a call that the client answers.',
  ),
});

export const contentSchema = strictObject('What one side says: parts by one role.', {
  parts: bodyList(partSchema).nullish().describe('What is said, in order; absent is the same as `[]`.'),
  role: name('`user` or `model`; function responses have `user`.'),
});

/** A call without an id gets one from the agent loop. */
export type FunctionCall = z.infer<typeof functionCallSchema>;
/** A tool's response to a call. If the tool failed, `response` has the member `error`. */
export type FunctionResponse = z.infer<typeof functionResponseSchema>;
/** A piece of a message: a text, a file, a call of a tool or its response. */
export type Part = z.infer<typeof partSchema>;
/** A message: its role and its parts. */
export type Content = z.infer<typeof contentSchema>;

export const getParts = (content: Content | null | undefined): Part[] => content?.parts ?? [];

export function getFunctionCalls(content: Content | null | undefined): FunctionCall[] {
  // `flatMap` takes twice as long, and this runs several times in an invocation for each event of its session.
  const calls: FunctionCall[] = [];
  for (const { functionCall } of getParts(content)) if (functionCall) calls.push(functionCall);
  return calls;
}

export function getFunctionResponses(content: Content | null | undefined): FunctionResponse[] {
  const responses: FunctionResponse[] = [];
  for (const { functionResponse } of getParts(content)) if (functionResponse) responses.push(functionResponse);
  return responses;
}

/** Returns the text of a content without thoughts, because these are not part of the answer. */
export function getAnswerText(content: Content | null | undefined): string {
  let answer = '';
  for (const part of getParts(content)) if (part.thought !== true) answer += part.text ?? '';
  return answer;
}
