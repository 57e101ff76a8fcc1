import type { Content, FunctionCall, FunctionResponse, Part } from '../../core/content.ts';
import type { AgentError } from '../../core/errors.ts';
import type { Event } from '../../core/event.ts';
import type { Sampling, ToolDeclaration } from './model.ts';

/** The set-up of a live session, which cannot change while it is open. */
export interface LiveRequest {
  instruction: string;
  /** The conversation so far, text and calls only. */
  contents: Content[];
  tools: ToolDeclaration[];
  sampling: Sampling;
  /** In what the model answers. */
  modality: 'TEXT' | 'AUDIO';
  /** The model may leave unanswered what is not meant for it. */
  proactiveAudio: boolean;
  /** The model answers in the tone of what it hears. */
  affectiveDialog: boolean;
  /** Aborted where the session is no longer wanted while it opens. */
  signal: AbortSignal;
}

/** Bytes of a medium; `data` is base64. */
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

/** One message from the model; it has only some of the members. */
export interface LiveMessage {
  /** New pieces of the answer: text to append, media as they are. */
  parts?: Part[];
  /** New text of what the user spoke, and whether more of it follows. */
  inputTranscription?: { text: string; finished: boolean };
  /** New text of what the model spoke, and whether more of it follows. */
  outputTranscription?: { text: string; finished: boolean };
  calls?: FunctionCall[];
  /** Totals of the turn so far. */
  usageMetadata?: NonNullable<Event['usageMetadata']>;
  groundingMetadata?: Event['groundingMetadata'];
  /** The user spoke into the answer, which ends here. */
  interrupted?: boolean;
  /** All of the answer is made, though not spoken yet. */
  generationComplete?: boolean;
  turnComplete?: boolean;
  /** The connection has ended, and why; nothing follows. */
  closed?: AgentError;
}

/** An open connection to a model's live API, for one reader. */
export interface LiveConnection {
  /** @throws {AgentError} `model_unavailable` when the provider does not take what is sent. */
  send(input: LiveInput): void;
  /** Settles when a message waits. */
  ready(): Promise<void>;
  /** The oldest message, which stays. */
  peek(): LiveMessage | undefined;
  /** Takes the oldest message. */
  shift(): LiveMessage | undefined;
  /** Aborted when the provider takes one of these calls back; those of an earlier message count no more. */
  cancelled(callIds: string[]): AbortSignal;
  /** Ends the connection; safe to call twice. */
  close(): void;
}

/** A model's live API: sound and pictures go in as they are made, and the answer comes as it is spoken. */
export interface LiveModel {
  modelName: string;
  /** @throws {AgentError} when the provider refuses or cannot be reached; without key and prompt in it. */
  connect(request: LiveRequest): Promise<LiveConnection>;
}
