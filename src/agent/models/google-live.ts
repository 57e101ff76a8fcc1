import { type RawData, WebSocket } from 'ws';
import { abortError } from '../../core/abort.ts';
import { AgentError } from '../../core/errors.ts';
import { INPUT_LIMITS } from '../../core/limits.ts';
import { WaitingQueue } from '../../platform/work/waiting-queue.ts';
import type { LiveConnection, LiveInput, LiveMessage, LiveModel, LiveRequest } from '../definition/model.ts';
import { ModelFailure, type ModelOrigin, toFailure, toModelError } from '../providers/model-error.ts';
import type { Provider, ProviderFacts } from '../providers/provider.ts';
import { type FittedTools, fitTools } from './fit-tools.ts';
import { z } from 'zod';
import { type Content, jsonObject, type Part, getParts } from '../../core/content.ts';
import { usageMetadataSchema } from '../../core/model-metadata.ts';
import { parseExactJson } from '../../core/exact-json.ts';

interface GoogleLiveSettings {
  provider: Provider;
  modelName: string;
  apiKey: string | undefined;
  /** Base URL of the provider; its path is ignored. */
  baseUrl: string;
  origin: ModelOrigin;
  /** Maximum time to open a session, in milliseconds. */
  timeoutMs: number;
}

/** API version `v1alpha` as in ADK, because other versions lack `proactivity` and `enableAffectiveDialog`. */
const PATH = '/ws/google.ai.generativelanguage.v1alpha.GenerativeService.BidiGenerateContent';
/** Maximum number of received messages that nobody has read yet; at it, nothing more is read from the socket. */
const { bytes: MAX_MESSAGE_BYTES, count: MAX_WAITING } = INPUT_LIMITS.modelLiveMessage;
/** Maximum number of bytes that wait to be sent, if the provider does not read them. */
const MAX_BUFFERED_BYTES = 8 * 1024 * 1024;

/**
 * Google's Live API, called over its documented WebSocket protocol. Google's package `@google/genai` (3.1) is not used,
 * because it brings 41 packages, 32 MB on disk, 101 ms of load time and 30 MB of memory.
 */
export const googleLive = (settings: GoogleLiveSettings): LiveModel => ({
  modelName: settings.modelName,
  connect: async (request) => {
    const connection = new Connection(settings);
    try {
      await connection.open(request);
      return connection;
    } catch (error) {
      connection.close();
      throw error;
    }
  },
});

class Connection implements LiveConnection {
  readonly #settings: GoogleLiveSettings;
  readonly #messages = new WaitingQueue<LiveMessage>();
  readonly #isSetUp = Promise.withResolvers<void>();
  #calls: { ids: string[]; cancelled: AbortController } | undefined;
  #socket: WebSocket | undefined;
  readonly #facts: ProviderFacts;
  #tools: FittedTools;
  #hasAnswered = false;
  #hasEnded = false;

  constructor(settings: GoogleLiveSettings) {
    this.#settings = settings;
    this.#facts = settings.provider.facts(settings.baseUrl, settings.modelName);
    this.#tools = fitTools({ tools: [] }, this.#facts);
  }

  /** @throws {AgentError} if the WebSocket or the session cannot be opened */
  async open(request: LiveRequest): Promise<void> {
    const { provider, baseUrl, apiKey, timeoutMs, modelName } = this.#settings;
    const address = new URL(PATH, baseUrl.replace(/^http/, 'ws'));
    // The API key is in a header, and not in the URL where Google's package puts it, because URLs are logged.
    const headers = apiKey === undefined ? {} : provider.toKeyHeaders(apiKey);
    const socket = new WebSocket(address, {
      headers,
      maxPayload: MAX_MESSAGE_BYTES,
      handshakeTimeout: timeoutMs,
      perMessageDeflate: false,
    });
    this.#socket = socket;
    this.#tools = fitTools(request, this.#facts);
    const onAbort = () => this.#end(abortError(request.signal));
    const timer = setTimeout(() => this.#end(this.#failed(new ModelFailure('model_timeout'))), timeoutMs);
    request.signal.addEventListener('abort', onAbort, { once: true });
    if (request.signal.aborted) onAbort();
    socket.on('open', () => socket.send(JSON.stringify(toSetup(modelName, request, this.#tools))));
    socket.on('message', (data) => this.#receive(data));
    socket.on('unexpected-response', (_request, { statusCode }) => {
      this.#end(this.#failed(toFailure({ name: 'AI_APICallError', statusCode }, false)));
    });
    socket.on('error', (error) => {
      this.#end(error instanceof AgentError ? error : this.#failed(toFailure(error, this.#hasAnswered)));
    });
    socket.on('close', (code, reason) => this.#end(this.#failed(this.#fromClose(code, reason.toString()))));
    try {
      await this.#isSetUp.promise;
    } finally {
      clearTimeout(timer);
      request.signal.removeEventListener('abort', onAbort);
    }
    const history = toHistory(request.contents);
    if (history) socket.send(JSON.stringify(history));
  }

  send(input: LiveInput): void {
    if (!this.#socket || this.#hasEnded) return;
    this.#socket.send(JSON.stringify(toClientMessage(input, this.#tools)));
    if (this.#socket.bufferedAmount > MAX_BUFFERED_BYTES)
      throw this.#failed(new ModelFailure('model_unavailable', { detail: 'it does not read what it is sent' }));
  }

  ready(): Promise<void> {
    return this.#messages.ready();
  }

  peek(): LiveMessage | undefined {
    return this.#messages.peek();
  }

  shift(): LiveMessage | undefined {
    const message = this.#messages.shift();
    if (this.#messages.size < MAX_WAITING) this.#socket?.resume();
    return message;
  }

  cancelled(ids: string[]): AbortSignal {
    const cancelled = new AbortController();
    this.#calls = { ids, cancelled };
    return cancelled.signal;
  }

  close(): void {
    this.#hasEnded = true;
    this.#socket?.terminate();
  }

  #receive(data: RawData): void {
    if (this.#hasEnded) return;
    try {
      // The server sends JSON in binary messages; the package `ws` delivers each as one Buffer.
      const message = readServerMessage((data as Buffer).toString());
      if (message.setupComplete) this.#isSetUp.resolve();
      this.#cancel(message.toolCallCancellation?.ids ?? []);
      const live = toLiveMessage(message);
      if (live) {
        this.#hasAnswered = true;
        const calls = live.calls?.map((call) => this.#tools.readCall(call));
        this.#messages.push(calls ? { ...live, calls } : live);
        if (this.#messages.size >= MAX_WAITING) this.#socket?.pause();
      }
    } catch (error) {
      this.#end(this.#failed(new ModelFailure('model_bad_response', { cause: error })));
    }
  }

  #cancel(ids: string[]): void {
    if (this.#calls && ids.some((id) => this.#calls?.ids.includes(id)))
      this.#calls.cancelled.abort(new AgentError('interrupted', 'The model took the call back.'));
  }

  #end(error: AgentError): void {
    if (this.#hasEnded) return;
    this.close();
    this.#isSetUp.reject(error);
    this.#messages.push({ closed: error });
  }

  /** Classifies the server's reason for closing. Its text is not passed on, because it may quote what was sent. */
  #fromClose(code: number, reason: string): ModelFailure {
    const options = { detail: `closed with ${code}`, cause: reason };
    if (/api key|credential|permission/i.test(reason)) return new ModelFailure('model_unauthorized', options);
    if (/not found|not supported/i.test(reason)) return new ModelFailure('model_not_found', options);
    if (/quota|exhausted/i.test(reason)) return new ModelFailure('model_rate_limited', options);
    if (code === 1007 || code === 1008) return new ModelFailure('model_rejected', options);
    return new ModelFailure(this.#hasAnswered ? 'model_stream_cut' : 'model_unavailable', options);
  }

  #failed(failure: ModelFailure): AgentError {
    const { provider, modelName, origin } = this.#settings;
    return toModelError(failure, provider.name, modelName, origin);
  }
}

/**
 * Messages of Google's Live API (`BidiGenerateContent`), https://ai.google.dev/api/live. Each is a JSON object with a
 * single member, whose name is the type of the message.
 */

/** First message of a session: the model, and all settings that are fixed for the session. */
function toSetup(modelName: string, request: LiveRequest, fitted: FittedTools): object {
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
function toHistory(contents: Content[]): object | undefined {
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

function toClientMessage(input: LiveInput, fitted: Pick<FittedTools, 'toName'>): object {
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
type ServerMessage = z.output<typeof serverMessageSchema>;

/** @throws {Error} for an invalid message */
const readServerMessage = (text: string): ServerMessage => serverMessageSchema.parse(parseExactJson(text));

/** Converts a server message; `undefined` if it is only about the connection. */
function toLiveMessage({ serverContent, toolCall, usageMetadata }: ServerMessage): LiveMessage | undefined {
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
