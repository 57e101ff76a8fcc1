import type { Content, FunctionCall, FunctionResponse, Part } from '../../core/content.ts';
import type { AgentError } from '../../core/errors.ts';
import type { Event } from '../../core/event.ts';
import type { Sampling, ToolDeclaration } from './model.ts';

/** The settings of a live session (speech); they cannot change while the session is open. */
export interface LiveRequest {
  instruction: string;
  /** The conversation before the live session, without media. */
  contents: Content[];
  tools: ToolDeclaration[];
  sampling: Sampling;
  modality: 'TEXT' | 'AUDIO';
  /** True: the model may leave speech that is not addressed to it without a response. */
  proactiveAudio: boolean;
  /** True: the model adapts its tone to the tone of the user's voice. */
  affectiveDialog: boolean;
  /** Aborted if the session is not needed any more while it is being opened. */
  signal: AbortSignal;
}

/** Audio or video; `data` is base64. */
export interface LiveBlob {
  mimeType: string;
  data: string;
}

/** Input for the model, sent at once and in order. `responses` answer all tool calls of one message together. */
export type LiveInput =
  | { kind: 'content'; content: Content }
  | { kind: 'blob'; blob: LiveBlob }
  | { kind: 'activityStart' }
  | { kind: 'activityEnd' }
  | { kind: 'responses'; responses: FunctionResponse[] };

export interface LiveMessage {
  /** New pieces of the model's output: text that continues the earlier text, or complete media. */
  parts?: Part[];
  /** New part of the transcript of the user's speech; `finished` is false if more of it follows. */
  inputTranscription?: { text: string; finished: boolean };
  /** New part of the transcript of the model's speech. */
  outputTranscription?: { text: string; finished: boolean };
  calls?: FunctionCall[];
  /** Token counts of the current turn, summed up to this message. */
  usageMetadata?: NonNullable<Event['usageMetadata']>;
  groundingMetadata?: Event['groundingMetadata'];
  /** True: the user interrupted the model, and its output ends here. */
  interrupted?: boolean;
  /** True: the model has generated its whole output, but the speech is still being played. */
  generationComplete?: boolean;
  turnComplete?: boolean;
  /** Why the connection ended; only in the last message. */
  closed?: AgentError;
}

/** An open connection to a provider's live API. Only one reader may read its messages. */
export interface LiveConnection {
  /** @throws {AgentError} `model_unavailable` if the provider does not read fast enough what is sent */
  send(input: LiveInput): void;
  /** Settles when a message of the model can be read. */
  ready(): Promise<void>;
  peek(): LiveMessage | undefined;
  shift(): LiveMessage | undefined;
  /**
   * Returns a signal that aborts when the provider cancels one of these tool calls. It replaces the previous signal.
   */
  cancelled(callIds: string[]): AbortSignal;
  close(): void;
}

/** A provider's live API: audio and video stream to the model, and its speech comes back while it is generated. */
export interface LiveModel {
  modelName: string;
  /** @throws {AgentError} whose message has no API key or prompt, if the provider refuses or cannot be reached */
  connect(request: LiveRequest): Promise<LiveConnection>;
}
