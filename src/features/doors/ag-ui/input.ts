import { z } from 'zod';
import { clientToolsSchema } from '../../../agent/definition/client-tools.ts';
import { readDataUrl } from '../../../core/base64.ts';
import { base64, bodyList, bodyText, looseObject, optional, text } from '../../../core/members.ts';
import { identifierSchema } from '../../../core/session.ts';
import { textFormat } from '../../../core/text-format.ts';

const mimeType = z.string().max(256).describe('IANA media type, for example `image/png`.');
const MAX_ADDRESS = 8_192;
const isAddress = (sent: string) =>
  sent.startsWith('data:') ? readDataUrl(sent) !== undefined : sent.length <= MAX_ADDRESS;
const address = textFormat(
  'address',
  (sent) =>
    isAddress(sent) ? undefined : `an address of at most ${MAX_ADDRESS} characters, or a data URL with base64`,
  bodyText,
);
const source = z
  .discriminatedUnion('type', [
    looseObject('Bytes.', {
      type: z.literal('data').describe('The bytes stand here.'),
      value: base64.describe('The bytes, base64.'),
      mimeType,
    }),
    looseObject('An address, which the model may read and this runtime does not.', {
      type: z.enum(['url', 'file']).describe('The bytes stand elsewhere, or with the provider.'),
      value: address.describe("The address, a data URL, or the provider's own name."),
      mimeType: mimeType.optional(),
    }),
  ])
  .describe('Where the bytes are.');
const textPart = looseObject('Text.', {
  type: z.literal('text').describe('The part is text.'),
  text: bodyText.describe('What is said, as plain text or Markdown.'),
});
const mediaPart = looseObject('Media.', {
  type: z.enum(['image', 'audio', 'video', 'document']).describe('The kind of media.'),
  source,
});
const binaryPart = looseObject('A file, as clients before 1.0 send one.', {
  type: z.literal('binary').describe('The part is a file.'),
  mimeType,
  data: optional(base64, 'Its bytes, base64.'),
  url: optional(address, 'Its address, or a data URL.'),
  filename: text('Its name.', 1_024),
}).refine(({ data, url }) => data || url, '`data` or `url`: there is no store of files');
const content = z
  .union([bodyText, bodyList(z.union([textPart, mediaPart, binaryPart]))])
  .describe('A text, or parts in order.');
const id = z.string().min(1).max(256).describe('Unique in the thread.');
const message = z.discriminatedUnion('role', [
  looseObject('What the user says.', { id, role: z.literal('user').describe('The user speaks.'), content }),
  looseObject('The answer of a tool.', {
    id,
    role: z.literal('tool').describe('A tool of the front end answers.'),
    content,
    toolCallId: z.string().max(1_024).describe('The call that it answers.'),
    error: text('Why it failed.'),
  }),
  looseObject('What the thread has already, or nothing that a client may say: not read.', {
    id,
    role: z.enum(['assistant', 'system', 'developer', 'reasoning', 'activity']).describe('Who else speaks.'),
  }),
]);
const fact = looseObject('A fact.', {
  description: bodyText.describe('What it is about.'),
  value: bodyText.describe('The fact itself, as text.'),
});
const answer = looseObject('The answer to an interrupt.', {
  interruptId: z.string().max(1_024).describe('The `id` of the interrupt.'),
  status: z.enum(['resolved', 'cancelled']).describe('`cancelled` is a no.'),
  payload: z.unknown().optional().describe('`{"approved": true}` for a confirmation, else the answer.'),
});

/** Body of a request that starts a run: AG-UI's `RunAgentInput`. Unknown properties and `state` are ignored. */
export const runInputSchema = looseObject('One run of a thread.', {
  threadId: identifierSchema.describe('The session, which is made where it is absent.'),
  runId: identifierSchema.describe('Names the run: the same one again is attached to the first.'),
  messages: bodyList(message).describe('The whole history; what the thread has of it is left out.'),
  tools: optional(clientToolsSchema, 'Tools of the front end, for this run.'),
  context: optional(bodyList(fact), 'Facts that the model is told before the new message.'),
  resume: optional(bodyList(answer), 'Answers to all interrupts that the thread waits for.'),
});

export type RunInput = z.input<typeof runInputSchema>;
