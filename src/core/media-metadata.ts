import { z } from 'zod';
import { flag, number, openEnum, text, texts } from './members.ts';

/**
 * Media metadata of a part. The specification names the resolution and the clip of a video; the others came with later
 * versions of ADK (google-genai 3.4), whose clients send them. All are passed on and never interpreted here.
 */

const layers = (meaning: string) => texts(`${meaning} Open enumeration.`);
const startOffset = text('Where it begins, seconds with an `s`, for example `3.5s`.');
const endOffset = text('Where it ends, written as `startOffset` is.');

/** Member `mediaResolution` of a part. */
export const mediaResolution = z.strictObject({
  level: openEnum('MEDIA_RESOLUTION_UNSPECIFIED', 'How finely the model looks.'),
  numTokens: number('Number of tokens that the media is turned into.'),
});

/** Member `videoMetadata` of a part. */
export const videoMetadata = z.strictObject({
  startOffset: text('Where the clip begins, seconds with an `s`, for example `3.5s`.'),
  endOffset: text('Where the clip ends, written as `startOffset` is.'),
  fps: number('Frames per second that the model sees; without it the provider chooses.'),
  contentLayers: layers('What of the video the model is given: frames, audio, a transcript.'),
});

/** Member `mediaProcessing` of a part. */
export const mediaProcessing = z.string();

/** Member `documentMetadata` of a part. */
export const documentMetadata = z.strictObject({
  startPage: z.int().nullish().describe('First page, from 1.'),
  endPage: z.int().nullish().describe('Last page, inclusive.'),
  contentLayers: layers('What of the pages the model is given: images, text.'),
});

/** Member `spreadsheetMetadata` of a part. */
export const spreadsheetMetadata = z.strictObject({
  visibleCells: text('The cells that the model sees, for example `A1:D10`; without it all of the sheet.'),
  sheetIndex: z.int().nullish().describe('The sheet, from 1.'),
  contentLayers: layers('What of the cells the model is given: data, formulas, an image.'),
});

/** Member `audioMetadata` of a part. */
export const audioMetadata = z.strictObject({ startOffset, endOffset });

/** Member `speechMetadata` of a part. */
export const speechMetadata = z.strictObject({
  speaker: text('Who speaks, as the configuration of the voices names it.'),
  style: text('How it is spoken, in words.'),
});

const word = z.strictObject({ word: text('A word of the transcription, as it was heard.'), startOffset, endOffset });

/** Member `audioTranscription` of a part. */
export const partTranscription = z.strictObject({
  text: text('What was heard, as text.'),
  finished: flag('True on the last part of an utterance.'),
  languageCode: text('Language as a BCP 47 tag, for example `en-US`.'),
  speakerLabel: text('Who speaks, for example `spk_1`.'),
  words: z.array(word).nullish().describe('The words one by one, with their times.'),
  startOffset,
  endOffset,
});
