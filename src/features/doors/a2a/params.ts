import { z } from 'zod';
import { base64Error } from '../../../core/base64.ts';
import { CALLS, callsSchema, CHAIN, chainSchema, TIME, TOKENS } from '../../../agent/a2a/wire.ts';
import { type JsonObject, jsonObject } from '../../../core/content.ts';
import { identifierSchema } from '../../../core/session.ts';
import { camelCase } from '../../../platform/http/operation/paths.ts';

/** Converts property names to camelCase, because the JSON form of protocol buffers allows snake_case and camelCase. */
export const toCamel = (members: JsonObject): JsonObject =>
  Object.fromEntries(Object.entries(members).map(([name, value]) => [camelCase(name), value]));

/** An optional text. An empty text counts as absent, as in the JSON form of protocol buffers. */
const text = z
  .string()
  .max(4_096)
  .nullish()
  .transform((value) => value || undefined);

const partSchema = z
  .looseObject({
    text: z.string().nullish(),
    // The JSON form of protocol buffers accepts the standard and the URL-safe base64 alphabet, with or without padding.
    raw: z
      .string()
      .refine((data) => base64Error(data) === undefined, 'Invalid base64-encoded string')
      .nullish(),
    url: z.string().nullish(),
    data: z.unknown().optional(),
    mediaType: text,
    filename: text,
    metadata: jsonObject.nullish(),
  })
  .refine((part) => ['text', 'raw', 'url', 'data'].filter((name) => part[name] != null).length === 1, {
    error: 'a part has one of text, raw, url and data',
  });
/** A part of a message: `text`, bytes (`raw`), an address (`url`) or a value (`data`). */
export type A2aPart = z.output<typeof partSchema>;

const messageSchema = z.looseObject({
  messageId: z.string().min(1).max(1_024),
  contextId: text.pipe(identifierSchema.optional()),
  taskId: text,
  role: z.enum(['ROLE_USER', 'ROLE_AGENT']),
  parts: z.array(partSchema).min(1),
  metadata: z
    .looseObject({
      [CHAIN]: chainSchema.optional(),
      [CALLS]: callsSchema.min(1).optional(),
      [TOKENS]: z.int().min(1).optional(),
      [TIME]: z.int().min(1).optional(),
    })
    .nullish(),
});
export type A2aMessage = z.output<typeof messageSchema>;

const historyLength = z.int().min(0).max(2_147_483_647).nullish().describe('Most messages of the history [all].');

const taskId = z.string().min(1).max(4_096);
export const taskParams = z.looseObject({ id: taskId });
export const getParams = taskParams.extend({ historyLength });

/** A text that is valid as an HTTP header value. */
const inHeader = text.pipe(z.stringFormat('header', /^[!-~](?:[ -~]*[!-~])?$/).optional());
const pushSchema = z.looseObject({
  id: inHeader,
  url: z.string().min(1).max(1_024),
  token: inHeader,
  // A2A 0.3 allows several authentication schemes. The first scheme is used.
  authentication: z
    .looseObject({ scheme: inHeader, schemes: z.array(inHeader).nullish(), credentials: inHeader })
    .transform(({ scheme, schemes, credentials }) => ({ scheme: scheme ?? schemes?.[0], credentials }))
    .nullish(),
});
/** The URL that receives updates of a task, and the credentials with which this service authenticates to that URL. */
export type A2aPush = z.output<typeof pushSchema>;
export const createPushParams = pushSchema.extend({ taskId });
export const pushParams = z.looseObject({ taskId, id: text });

export const sendParams = z.looseObject({
  message: messageSchema,
  configuration: z
    .looseObject({
      historyLength,
      returnImmediately: z.boolean().nullish(),
      taskPushNotificationConfig: pushSchema.nullish(),
    })
    .nullish(),
});

export const listParams = z.object({
  contextId: z.string().max(256).optional().describe('Only tasks of this context.'),
  status: z.string().max(64).optional().describe('Only tasks in this state, such as `TASK_STATE_WORKING`.'),
  pageSize: z.int().min(1).max(100).default(50).describe('Most tasks of the page.'),
  pageToken: z.string().max(2_048).optional().describe('`nextPageToken` of the page before.'),
  historyLength: z.int().min(0).max(2_147_483_647).default(0).describe('Most messages of each history.'),
  statusTimestampAfter: z.string().max(64).optional().describe('Only tasks that changed at this time or later.'),
  includeArtifacts: z.boolean().default(false).describe('True: with what they made.'),
});
