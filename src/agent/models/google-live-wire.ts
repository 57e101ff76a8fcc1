import { z } from 'zod';
import { type Content, jsonObject, type Part, getParts } from '../../core/content.ts';
import { usageMetadataSchema } from '../../core/model-metadata.ts';
import type { FittedTools } from './fit-tools.ts';
import type { LiveInput, LiveMessage, LiveRequest } from '../definition/model.ts';
import { parseExactJson } from '../../core/exact-json.ts';

/**
 * Messages of Google's Live API (`BidiGenerateContent`), https://ai.google.dev/api/live. Each is a JSON object with a
 * single member, whose name is the type of the message.
 */

/** First message of a session: the model, and all settings that are fixed for the session. */
export function toSetup(modelName: string, request: LiveRequest, fitted: FittedTools): object {
  const { instruction, sampling, modality, proactiveAudio, affectiveDialog } = request;
  const text = [instruction, fitted.notes].filter((each) => each.trim() !== '').join('\n\n');
  return {
    setup: {
      model: `models/${modelName}`,
      generationConfig: {
        responseModalities: [modality],
        ...sampling,
        ...(affectiveDialog ? { enableAffectiveDialog: true } : {}),
      },
      ...(text === '' ? {} : { systemInstruction: { parts: [{ text }] } }),
      ...(fitted.tools.length === 0 ? {} : { tools: [{ functionDeclarations: fitted.tools.flatMap(toDeclaration) }] }),
      ...(proactiveAudio ? { proactivity: { proactiveAudio: true } } : {}),
      inputAudioTranscription: {},
      ...(modality === 'AUDIO' ? { outputAudioTranscription: {} } : {}),
    },
  };
}

const toDeclaration = (tool: FittedTools['tools'][number]) =>
  tool.type === 'function'
    ? [{ name: tool.name, description: tool.description, parametersJsonSchema: tool.inputSchema }]
    : [];

/** Message with the earlier conversation. If that ends with a message of the user, the model responds at once. */
export function toHistory(contents: Content[]): object | undefined {
  const turns = contents.map(toTurn).filter(({ parts }) => parts.length > 0);
  if (turns.length === 0) return undefined;
  return { clientContent: { turns, turnComplete: turns.at(-1)?.role === 'user' } };
}

/** Converts an earlier content without its media, which the API does not accept there (ADK `_filter_media_parts`). */
const toTurn = (content: Content) => ({
  role: content.role ?? 'user',
  parts: getParts(content).flatMap((part): Part[] => {
    if (part.text && part.thought !== true) return [{ text: part.text }];
    if (part.functionCall) return [{ functionCall: part.functionCall }];
    return part.functionResponse ? [{ functionResponse: part.functionResponse }] : [];
  }),
});

export function toClientMessage(input: LiveInput, fitted: Pick<FittedTools, 'toName'>): object {
  if (input.kind === 'content') return { clientContent: { turns: [toTurn(input.content)], turnComplete: true } };
  if (input.kind === 'responses') {
    const functionResponses = input.responses.map((each) => ({ ...each, name: fitted.toName(each.name ?? '') }));
    return { toolResponse: { functionResponses } };
  }
  if (input.kind === 'activityStart') return { realtimeInput: { activityStart: {} } };
  if (input.kind === 'activityEnd') return { realtimeInput: { activityEnd: {} } };
  const isAudio = input.blob.mimeType.startsWith('audio/');
  return { realtimeInput: { [isAudio ? 'audio' : 'video']: input.blob } };
}

const partSchema = z.object({
  text: z.string().optional(),
  thought: z.boolean().optional(),
  inlineData: z.object({ mimeType: z.string(), data: z.base64() }).optional(),
});
const transcriptionSchema = z.object({ text: z.string().default(''), finished: z.boolean().default(false) });
const callSchema = z.object({ id: z.string().optional(), name: z.string(), args: jsonObject.default({}) });

const serverMessageSchema = z.object({
  setupComplete: z.object({}).optional(),
  serverContent: z
    .object({
      modelTurn: z.object({ parts: z.array(partSchema).default([]) }).optional(),
      inputTranscription: transcriptionSchema.optional(),
      outputTranscription: transcriptionSchema.optional(),
      groundingMetadata: jsonObject.optional(),
      interrupted: z.boolean().default(false),
      generationComplete: z.boolean().default(false),
      turnComplete: z.boolean().default(false),
    })
    .optional(),
  toolCall: z.object({ functionCalls: z.array(callSchema).default([]) }).optional(),
  toolCallCancellation: z.object({ ids: z.array(z.string()).default([]) }).optional(),
  usageMetadata: usageMetadataSchema
    .extend({ responseTokenCount: z.number().optional(), responseTokensDetails: z.array(jsonObject).optional() })
    .strip()
    .optional()
    // Token counts of an unknown form are ignored, so that they do not end the session.
    .catch(undefined),
});

/** The members of a server message that this runtime reads. */
export type ServerMessage = z.output<typeof serverMessageSchema>;

/** @throws {Error} for an invalid message */
export const readServerMessage = (text: string): ServerMessage => serverMessageSchema.parse(parseExactJson(text));

/** Converts a server message; `undefined` if it is only about the connection. */
export function toLiveMessage({ serverContent, toolCall, usageMetadata }: ServerMessage): LiveMessage | undefined {
  if (!serverContent && !toolCall && !usageMetadata) return undefined;
  const { modelTurn, inputTranscription, outputTranscription, groundingMetadata, ...flags } = serverContent ?? {};
  return {
    ...(modelTurn ? { parts: modelTurn.parts } : {}),
    ...(inputTranscription ? { inputTranscription } : {}),
    ...(outputTranscription ? { outputTranscription } : {}),
    ...(groundingMetadata ? { groundingMetadata } : {}),
    ...(toolCall && toolCall.functionCalls.length > 0 ? { calls: toolCall.functionCalls } : {}),
    ...(usageMetadata ? { usageMetadata: toUsage(usageMetadata) } : {}),
    ...flags,
  };
}

function toUsage(usage: NonNullable<ServerMessage['usageMetadata']>): NonNullable<LiveMessage['usageMetadata']> {
  const { responseTokenCount, responseTokensDetails, ...rest } = usage;
  return {
    ...rest,
    ...(responseTokenCount === undefined ? {} : { candidatesTokenCount: responseTokenCount }),
    ...(responseTokensDetails === undefined ? {} : { candidatesTokensDetails: responseTokensDetails }),
  };
}
