import { z } from 'zod';
import { bodyList, looseObject, name, optional } from '../../../core/members.ts';
import { chosenIdentifierSchema } from '../../../core/session.ts';

const part = looseObject('A part of a message; its `type` says which members it has.', {
  type: z.string().max(256).describe('For instance `text`, `file`, `dynamic-tool`.'),
});
export const messageSchema = looseObject('A `UIMessage`.', {
  id: name('Id of the message; that of an answer is the id of its invocation.'),
  role: z.enum(['system', 'user', 'assistant']).describe('Its speaker.'),
  parts: bodyList(part).describe('What is said, in order.'),
});

export const chatSchema = looseObject('A request of `useChat`.', {
  id: chosenIdentifierSchema.nullish().describe('The chat, which is the id of its session [a new one].'),
  messages: bodyList(messageSchema).min(1).describe('All messages, or the last one: only that is read.'),
  trigger: optional(z.enum(['submit-message', 'regenerate-message']), 'An answer is not made again.'),
  messageId: name('The message that is answered or changed; of a prompt none.'),
});

export type Chat = z.input<typeof chatSchema>;
