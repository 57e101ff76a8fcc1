/**
 * Limits of one provider's requests. Each provider has a record beside this file, based on published API descriptions
 * and on rejections that others reported (table in docs/agents.md).
 */
export interface ProviderFacts {
  callIds: CallIdFacts;
  toolName: RegExp;
  /** Allowed names of arguments, at any depth. */
  argumentName: RegExp;
  /** Tool names that the provider's package uses itself for structured answers. */
  formTools: readonly string[];
  /** Maximum length of a tool's description, in characters; the rest goes into the instruction. */
  description: number;
  tools: number;
  /** False: a call can be forced, but not of a specific tool. */
  choosesByName: boolean;
  /** Keywords allowed in argument schemas: all of JSON Schema, or Google's closed list. */
  schemas: 'json-schema' | 'google';
  /** Files in user messages. */
  files: FileFacts;
  /** Files in tool results [sent as a user message after the result]. */
  resultFiles: FileFacts | undefined;
  /** Files made by the model, sent back to it [described in words]. */
  answerFiles: FileFacts | undefined;
  /** Model text inserted between tool results and a user message, for models that reject that order. */
  afterResults: string | undefined;
  /** False if the provider rejects its own thoughts in a history. */
  takesThoughts: boolean;
  outputTokens: number;
  stops: number;
  /** Members that the server knows by another name (string) or not at all (undefined) [all are known]. */
  members?: Readonly<Record<string, string | undefined>>;
}

/** Ids that pair calls with results; unique within a request. */
interface CallIdFacts {
  fits: RegExp;
  length: number;
}

/** Files that are sent as files; others become text if they are text, else a description with name, type and size. */
export interface FileFacts {
  /** Media types; `audio/*` for a whole kind. An image's type is detected from its bytes. */
  types: ReadonlySet<string>;
  /** Media types that may be sent as a URL. */
  addressTypes: ReadonlySet<string>;
  addresses: RegExp;
  /** Maximum length of one file, in characters of base64. */
  size: number;
  count: number;
}

/** Image types that all providers with images accept. */
export const IMAGES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];
export const PDF = 'application/pdf';

/** Argument names that OpenAI and Anthropic accept: letters, digits, `_`, `.` and `-`. */
export const LOOSE_NAME = /^[a-zA-Z0-9_.-]{1,64}$/;
/** Tool names that all providers accept. */
export const TOOL_NAME = /^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$/;
/** Argument names that all providers accept. */
export const ARGUMENT_NAME = /^[a-zA-Z_][a-zA-Z0-9_]{0,63}$/;
