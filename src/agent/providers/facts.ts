/**
 * What one provider's API accepts in a request. Each provider has such a record in this folder. The values come from
 * published API descriptions and from rejections that others have reported (table in docs/agents.md).
 */
export interface ProviderFacts {
  callIds: CallIdFacts;
  toolName: RegExp;
  /** Argument names that the provider accepts, at any depth of the arguments. */
  argumentName: RegExp;
  /** Names of tools that the provider's AI SDK package adds itself for structured output. */
  formTools: readonly string[];
  /** Maximum length of a tool's description, in characters. The text beyond it is put into the system instruction. */
  description: number;
  tools: number;
  /** False: the provider can force a tool call, but not the call of a specific tool. */
  choosesByName: boolean;
  /** Keywords allowed in schemas of arguments: all of JSON Schema, or only those of Google's closed list. */
  schemas: 'json-schema' | 'google';
  /** Which files the provider accepts in user messages. */
  files: FileFacts;
  /** Which files it accepts in tool results. Default: files are sent as a user message after the result. */
  resultFiles: FileFacts | undefined;
  /** Which files made by a model may be sent back to it. Default: such files are described in words. */
  answerFiles: FileFacts | undefined;
  /** Text of a model message to insert between tool results and a user message, for models that reject that order. */
  afterResults: string | undefined;
  /** False: the provider rejects a conversation with its model's earlier thoughts, so they are not sent. */
  takesThoughts: boolean;
  outputTokens: number;
  stops: number;
  /** Request members that the server calls by another name (string), or does not accept (undefined). */
  members?: Readonly<Record<string, string | undefined>>;
}

/** Format of the ids that pair function calls with their results. Ids are unique within a request. */
interface CallIdFacts {
  fits: RegExp;
  length: number;
}

/** Accepted files. Any other is sent as text if it is a text file, else as a description with name, type and size. */
export interface FileFacts {
  /** Accepted media types; `audio/*` means all of that kind. The type of an image is detected from its first bytes. */
  types: ReadonlySet<string>;
  /** Media types of files that may be sent as a URL. */
  addressTypes: ReadonlySet<string>;
  addresses: RegExp;
  /** Maximum length of one file, in characters of base64. */
  size: number;
  count: number;
}

/** Image types that every provider with image input accepts. */
export const IMAGES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];
export const PDF = 'application/pdf';

/** Argument names that OpenAI and Anthropic accept: letters, digits, `_`, `.` and `-`. */
export const LOOSE_NAME = /^[a-zA-Z0-9_.-]{1,64}$/;
/** Tool names that all providers accept. */
export const TOOL_NAME = /^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$/;
/** Argument names that all providers accept. */
export const ARGUMENT_NAME = /^[a-zA-Z_][a-zA-Z0-9_]{0,63}$/;
