import { answerTextOf } from '../../core/content.ts';
import type { Tool } from '../definition/tool.ts';

/** Maximum number of memories that one call gives. */
const MAX_MEMORIES = 20;

/** Looks up what was said in earlier sessions of the same user. */
export const loadMemory: Tool = {
  name: 'load_memory',
  description: 'Looks for what was said in earlier conversations with this user. Use a few words of what you look for.',
  parameters: {
    type: 'object',
    properties: { query: { type: 'string', minLength: 1, maxLength: 500 } },
    required: ['query'],
    additionalProperties: false,
  },
  needsConfirmation: false,
  async run(args, { services }) {
    const found = await services.searchMemory(String(args['query']));
    return {
      memories: found
        .slice(0, MAX_MEMORIES)
        .map(({ author, timestamp, content }) => ({ author, timestamp, text: answerTextOf(content) })),
    };
  },
};
