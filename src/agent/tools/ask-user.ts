import type { Tool } from '../definition/tool.ts';

const waits = { needsConfirmation: false, longRunning: true } as const;

/**
 * Shows the user options and waits for the choice, which comes as the function response of a later request (ADK
 * `get_user_choice`).
 */
export const getUserChoice: Tool = {
  name: 'get_user_choice',
  description: 'Shows the user some options and waits until one is chosen.',
  parameters: {
    type: 'object',
    properties: {
      options: { type: 'array', items: { type: 'string', maxLength: 500 }, minItems: 1, maxItems: 50 },
    },
    required: ['options'],
    additionalProperties: false,
  },
  ...waits,
  run: async () => undefined,
};

/** Asks the user for something in free words and waits for it. */
export const requestInput: Tool = {
  name: 'request_input',
  description: 'Asks the user for something that you need to go on, and waits for the answer.',
  parameters: {
    type: 'object',
    properties: { message: { type: 'string', minLength: 1, maxLength: 2_000, description: 'What you need.' } },
    required: ['message'],
    additionalProperties: false,
  },
  ...waits,
  run: async () => undefined,
};
