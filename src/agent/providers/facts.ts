/**
 * What one provider takes of a request. The records of the providers stand beside this file; what they say is known
 * from published API descriptions and from refusals that others reported (docs/agents.md has the table).
 */
export interface ProviderFacts {
  callIds: CallIdFacts;
  /** Names of tools. */
  toolName: RegExp;
  /** Names of arguments, at any depth. */
  argumentName: RegExp;
  /** Names of tools that the provider's package makes itself where answers have a form. */
  formTools: readonly string[];
  /** Maximum length of a tool's description in characters; the rest goes into the instruction. */
  description: number;
  /** Maximum number of tools. */
  tools: number;
  /** False: a tool cannot be chosen by its name, only that one has to be called. */
  choosesByName: boolean;
  /** Which words a schema of arguments may have: those of JSON Schema, or Google's closed list. */
  schemas: 'json-schema' | 'google';
  /** Files in what the user says. */
  files: FileFacts;
  /** Files in results of tools [they follow as the user's]. */
  resultFiles: FileFacts | undefined;
  /** Files that the model made, sent back to it [they are told in words]. */
  answerFiles: FileFacts | undefined;
  /** The model's words between results and what the user says next, where these must not follow each other. */
  afterResults: string | undefined;
  /** False where thoughts that came from this wire are refused on it. */
  takesThoughts: boolean;
  /** Least `maxOutputTokens`. */
  outputTokens: number;
  /** Maximum number of texts that end an answer. */
  stops: number;
  /** Members of the request that the server knows by another name, or not at all [all are known]. */
  members?: Readonly<Record<string, string | undefined>>;
}

/** Ids that pair calls with their results. They are unique in a request. */
interface CallIdFacts {
  fits: RegExp;
  /** Length of one that is made. */
  length: number;
}

/** Files that are sent as such; all others go as text where they are text, else as name, type and size in words. */
export interface FileFacts {
  /** Media types, `audio/*` for all of a kind. Images count by their bytes. */
  types: ReadonlySet<string>;
  /** Media types that may be an address. */
  addressTypes: ReadonlySet<string>;
  /** The schemes of addresses. */
  addresses: RegExp;
  /** Maximum length of one file in characters of base64. */
  size: number;
  /** Maximum number of files in a request. */
  count: number;
}

/** The images that all providers with images take. */
export const IMAGES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];
export const PDF = 'application/pdf';

/** Letters, digits, `_`, `.` and `-`: what OpenAI and Anthropic take as names of arguments. */
export const LOOSE_NAME = /^[a-zA-Z0-9_.-]{1,64}$/;
/** What all providers take as the name of a tool. */
export const TOOL_NAME = /^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$/;
/** What all providers take as the name of an argument. */
export const ARGUMENT_NAME = /^[a-zA-Z_][a-zA-Z0-9_]{0,63}$/;
