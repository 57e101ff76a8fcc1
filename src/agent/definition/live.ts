import type { Content, FunctionCall, FunctionResponse, Part } from '../../core/content.ts';
import type { AgentError } from '../../core/errors.ts';
import type { Event } from '../../core/event.ts';
import type { Sampling, ToolDeclaration } from './model.ts';

/** The set-up of a live session; fixed while the session is open. */
export interface LiveRequest {
  instruction: string;
  /** The conversation so far, text and calls only. */
  contents: Content[];
  tools: ToolDeclaration[];
  sampling: Sampling;
  /** Form of the model's answers. */
  modality: 'TEXT' | 'AUDIO';
  /** The model may ignore input that is not addressed to it. */
  proactiveAudio: boolean;
  /** The model adapts its tone to the tone that it hears. */
  affectiveDialog: boolean;
  /** Aborted if the session is no longer wanted while it is opening. */
  signal: AbortSignal;
}

/** `data` is base64. */
export interface LiveBlob {
  mimeType: string;
  data: string;
}

/** One input to the model, sent at once and in order. `responses` answer the calls of one message. */
export type LiveInput =
  | { kind: 'content'; content: Content }
  | { kind: 'blob'; blob: LiveBlob }
  | { kind: 'activityStart' }
  | { kind: 'activityEnd' }
  | { kind: 'responses'; responses: FunctionResponse[] };

/** One message from the model; only some members are present. */
export interface LiveMessage {
  /** New pieces of the answer: text to append, or whole media. */
  parts?: Part[];
  /** New text of the user's speech; `finished` is false if more follows. */
  inputTranscription?: { text: string; finished: boolean };
  /** New text of the model's speech; `finished` is false if more follows. */
  outputTranscription?: { text: string; finished: boolean };
  calls?: FunctionCall[];
  /** Totals of the turn so far. */
  usageMetadata?: NonNullable<Event['usageMetadata']>;
  groundingMetadata?: Event['groundingMetadata'];
  /** The user interrupted the answer, which ends here. */
  interrupted?: boolean;
  /** The answer is complete, though not fully spoken yet. */
  generationComplete?: boolean;
  turnComplete?: boolean;
  /** Why the connection ended; the last message. */
  closed?: AgentError;
}

/** An open connection to a model's live API, for one reader. */
export interface LiveConnection {
  /** @throws {AgentError} `model_unavailable` if the provider does not accept the input */
  send(input: LiveInput): void;
  /** Settles when a message is waiting. */
  ready(): Promise<void>;
  peek(): LiveMessage | undefined;
  shift(): LiveMessage | undefined;
  /**
   * Returns a signal that aborts when the provider cancels one of these calls. Calls of earlier messages are forgotten.
   */
  cancelled(callIds: string[]): AbortSignal;
  close(): void;
}

/** A model's live API: audio and video stream in, and the answer streams out while it is spoken. */
export interface LiveModel {
  modelName: string;
  /** @throws {AgentError} if the provider refuses or cannot be reached; the error never contains key or prompt */
  connect(request: LiveRequest): Promise<LiveConnection>;
}
