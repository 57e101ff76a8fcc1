import { z } from 'zod';
import { type JsonObject, jsonObject } from '../../core/content.ts';

/** The version of the protocol that is spoken. */
export const VERSION = '1.0';
/** The version that is understood beside it. */
export const OLD_VERSION = '0.3';

/** States of a task. */
const STATES = [
  'SUBMITTED',
  'WORKING',
  'INPUT_REQUIRED',
  'AUTH_REQUIRED',
  'COMPLETED',
  'FAILED',
  'CANCELED',
  'REJECTED',
].map((name) => `TASK_STATE_${name}` as const);

const RUNNING = new Set<string>(STATES.slice(0, 2));
const WAITING = new Set<string>(STATES.slice(2, 4));

/** Returns true for a task that works. */
export const isRunning = ({ status }: Pick<A2aTask, 'status'>): boolean => RUNNING.has(status.state);
/** Returns true for a task that waits for its client. */
export const isWaiting = ({ status }: Pick<A2aTask, 'status'>): boolean => WAITING.has(status.state);

/** The member of the metadata of a message that lists the agents which wait for its answer, outermost first. */
export const CHAIN = 'agent-runtime/chain';
/** The key of the state under which an invocation has that list. */
export const CHAIN_STATE = 'temp:a2a_chain';
/** The member of the metadata of a message with the model calls that its answer may take, of a task with those made. */
export const CALLS = 'agent-runtime/modelCalls';
/** Such a number. */
export const callsSchema = z.int().min(0).max(1_000_000);
/** Most agents that wait for one another. */
export const MAX_CHAIN = 8;
/** Such a list. */
export const chainSchema = z.array(z.string().max(2_048)).max(MAX_CHAIN);

/** A text that is left out where it is empty, as in the JSON of protocol buffers. */
const text = z
  .string()
  .max(4_096)
  .nullish()
  .transform((value) => value || undefined);

const partSchema = z
  .looseObject({
    text: z.string().nullish(),
    raw: z.base64().nullish(),
    url: z.string().nullish(),
    data: z.unknown().optional(),
    mediaType: text,
    filename: text,
    metadata: jsonObject.nullish(),
  })
  .refine((part) => ['text', 'raw', 'url', 'data'].filter((name) => part[name] != null).length === 1, {
    error: 'a part has one of text, raw, url and data',
  });

/** A message as it comes in. */
export const messageSchema = z.looseObject({
  messageId: z.string().min(1).max(1_024),
  contextId: text,
  taskId: text,
  role: z.enum(['ROLE_USER', 'ROLE_AGENT']),
  parts: z.array(partSchema).min(1),
  metadata: jsonObject.nullish(),
});

/** A message: parts by one side. */
export type A2aMessage = z.output<typeof messageSchema>;
/** A piece of a message or an artifact: `text`, bytes (`raw`), an address (`url`) or a value (`data`). */
export type A2aPart = z.output<typeof partSchema>;

const statusSchema = z.looseObject({
  state: z.enum(STATES),
  message: messageSchema.nullish(),
  timestamp: z.string().nullish(),
});
const artifactSchema = z.looseObject({ artifactId: z.string(), name: text, parts: z.array(partSchema) });
/** An output of a task. */
export type A2aArtifact = z.output<typeof artifactSchema>;

const taskSchema = z.looseObject({
  id: z.string().min(1).max(4_096),
  contextId: text,
  status: statusSchema,
  artifacts: z.array(artifactSchema).nullish(),
  history: z.array(messageSchema).nullish(),
  metadata: jsonObject.nullish(),
});
/** A piece of work of an agent. */
export type A2aTask = z.output<typeof taskSchema>;

/** The schema of the answer to a message. */
export const replySchema = z.looseObject({ task: taskSchema.nullish(), message: messageSchema.nullish() });
type Place = { taskId: string; contextId: string };
/** An event of a stream. */
export type A2aUpdate =
  | { task: A2aTask }
  | { statusUpdate: Place & { status: A2aTask['status'] } }
  | { artifactUpdate: Place & { artifact: object; append: boolean; lastChunk: boolean } };

/** Joins the texts of parts. */
export const joinText = (parts: readonly A2aPart[]): string => parts.map((part) => part.text ?? '').join('');

/** The members of a value that came from outside; none where it is no object. */
export const toMembers = (value: unknown): JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as JsonObject) : {};
