import type { JsonObject } from '../../core/content.ts';
import type { Tool } from '../definition/tool.ts';

/** Maximum size of a value in characters of JSON. */
const MAX_VALUE = 32_000;

/** Reads keys of the state, or lists them. */
export const readState: Tool = {
  name: 'read_state',
  description: 'Reads values that were kept in the state of this conversation; without keys it lists the keys.',
  parameters: {
    type: 'object',
    properties: { keys: { type: 'array', items: { type: 'string' }, maxItems: 50 } },
    additionalProperties: false,
  },
  needsConfirmation: false,
  async run(args, { state }) {
    const keys = args['keys'] as string[] | undefined;
    if (!keys || keys.length === 0) return { keys: Object.keys(state).sort() };
    const values = Object.create(null) as JsonObject;
    for (const key of keys) values[key] = Object.hasOwn(state, key) ? state[key] : null;
    return { values };
  },
};

/**
 * Keeps a value in the state of the session (`user:` in front: of the user, `temp:`: of this invocation). What all
 * users share (`app:`) is out of a model's reach: one user's prompt must not change another's session (reliability B8).
 */
export const writeState: Tool = {
  name: 'write_state',
  description:
    'Keeps a value in the state of this conversation under a key; ' +
    '`user:` in front of the key keeps it for all conversations of the user.',
  parameters: {
    type: 'object',
    properties: {
      key: {
        type: 'string',
        minLength: 1,
        maxLength: 200,
        pattern: '^(?!app:)',
        description: 'Not with `app:` in front.',
      },
      value: { description: 'Any JSON value; null clears it.' },
    },
    required: ['key', 'value'],
    additionalProperties: false,
  },
  needsConfirmation: false,
  async run(args, { actions }) {
    const key = String(args['key']);
    if (JSON.stringify(args['value']).length > MAX_VALUE)
      throw new Error(`The value is larger than ${MAX_VALUE} characters.`);
    actions.stateDelta = Object.assign(Object.create(null) as JsonObject, { [key]: args['value'] });
    return { kept: key };
  },
};
