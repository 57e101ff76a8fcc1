/**
 * The model that answers at once, the same for everybody that is measured: a prompt with the word "tool" leads to one
 * call of `lookup`, and its response, or any other prompt, to the answer.
 */
export const ANSWER = 'It is 21 degrees and sunny.';

/** The parts that the model answers to contents of the wire, and the event's usage. */
export function answerTo(contents) {
  const parts = contents.at(-1)?.parts ?? [];
  if (parts.some((part) => part.functionResponse)) return [{ text: ANSWER }];
  if (parts.some((part) => part.text?.includes('tool'))) {
    return [{ functionCall: { name: 'lookup', args: { city: 'Paris' } } }];
  }
  return [{ text: ANSWER }];
}

/** True for a prompt that the model over HTTP answers (`model.js`). */
export const isForHttp = (contents) => contents.at(-1)?.parts?.some((part) => part.text?.includes(' words')) === true;

export const USAGE = { promptTokenCount: 10, candidatesTokenCount: 5, totalTokenCount: 15 };

export const LOOKUP = {
  name: 'lookup',
  description: 'The weather of a city.',
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
};

export const LOOKED_UP = { degrees: 21, sky: 'sunny' };
