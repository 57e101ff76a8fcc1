import { z } from 'zod';
import { EFFECTS } from '../agent/definition/tool.ts';

export const toolCallSchema = z
  .looseObject({
    operationId: z.string().describe('Names the call to who carries it out; every attempt has the same.'),
    callId: z.string().describe('Id of the function call in its event.'),
    sessionId: z.string().describe('The session.'),
    invocationId: z.string().describe('The invocation.'),
    tool: z.string().describe('Name of the tool.'),
    effect: z
      .enum([...EFFECTS, 'transactional'])
      .describe('What a second run would do: nothing, nothing more, all of it again; `transactional`: there is none.'),
    state: z
      .enum(['started', 'done', 'unknown', 'settled'])
      .describe('`unknown`: it may have acted. `settled`: a check or a person has said what became of it.'),
    attempt: z.int().describe('How often it was begun.'),
    createTime: z.number().describe('When it was begun, Unix seconds.'),
    updateTime: z.number().describe('Last change, Unix seconds.'),
  })
  .describe('A call of a tool, as the ledger has it.');

export const TOOL_CALL_EXAMPLE = {
  operationId: '5d0c1f3a-6f7e-8b21-8c44-9a3f0e1d2b6c',
  callId: 'call-1',
  sessionId: 's1',
  invocationId: 'e-0c2f',
  tool: 'charge',
  effect: 'once',
  state: 'unknown',
  attempt: 1,
  createTime: 1_767_225_600.25,
  updateTime: 1_767_225_615.5,
} satisfies z.input<typeof toolCallSchema>;
