/**
 * Values of an event's `errorCode` and an invocation's `error.code`, described for the OpenAPI document. Clients
 * compare codes, so none is renamed. Events that a client appends may have other codes.
 */
export const ERROR_CODES = {
  cancelled: 'A request cancelled the invocation, or its client left where that cancels it.',
  interrupted: 'A newer prompt took its place, the service stopped, or the process that ran it is gone.',
  time_limit: 'The invocation took longer than INVOCATION_TIMEOUT_MS.',
  llm_calls_limit: 'The invocation needed more model calls than it may make.',
  tool_calls_limit: 'The invocation needed more tool calls than MAX_TOOL_CALLS.',
  budget_exceeded:
    'A budget of the user or the application has nothing left; the message says which, and when it opens.',
  event_too_large: 'The agent made an event of more than MAX_EVENT_BYTES.',
  session_too_large: 'The events of the session would be more than MAX_SESSION_BYTES.',
  storage_full: 'What is kept of the user would be more than MAX_USER_BYTES.',
  too_many_tasks: 'The user would have more open tasks than MAX_OPEN_TASKS.',
  answer_refused: 'Nothing waits for what the message answers, it was answered before, or it is for others to answer.',
  state_too_large: 'The agent wrote a state of more than MAX_STATE_BYTES.',
  empty_answer: 'The model answered with neither text nor a function call.',
  invalid_output: 'The answers of the model do not fit the output schema, also when it was asked again.',
  hook_failed: 'A hook of the agent failed or took too long.',
  instruction_unset: 'The instruction names a state key or an artifact that does not exist.',
  instruction_too_large: 'The instruction is larger than 256 KB once its state keys and artifacts are filled in.',
  unknown_agent: 'The model handed over to an agent that does not exist.',
  unknown_tool: 'The request or the configuration names a tool that does not exist.',
  unsupported_override: 'The request names a part of an agent that this runtime does not have.',
  unknown_skill: 'A skill does not exist or cannot be read.',
  mcp_failed: 'An MCP server could not be reached or does not follow its protocol.',
  remote_failed: 'An agent of another service could not be reached, or did not succeed.',
  egress_denied: 'An address is outside what the runtime may call.',
  tool_failed: 'A tool could not store or read its artifact or memory.',
  unavailable: 'The database was away while a tool needed it.',
  model_unauthorized: 'The model provider refused the key.',
  model_not_found: 'The model provider does not know the model.',
  model_rejected: 'The model provider refused the request.',
  model_rate_limited: 'The model provider limits the rate of calls, or the quota is used up.',
  model_unavailable: 'The model provider could not be reached or failed.',
  model_timeout: 'The model provider sent nothing for too long.',
  model_bad_response: 'The answer of the model provider cannot be read.',
  model_stream_cut: 'The answer of the model provider broke off.',
  model_failed: 'The model failed in a way that the runtime does not know; the log says more.',
  internal: 'The runtime itself failed; the log says more.',
} as const;

export type ErrorCode = keyof typeof ERROR_CODES;

export const toErrorCode = (code: string): ErrorCode => (isErrorCode(code) ? code : 'internal');

const isErrorCode = (code: string): code is ErrorCode => Object.hasOwn(ERROR_CODES, code);

/** Markdown, for the OpenAPI document. */
export const errorCodeList = (): string =>
  Object.entries(ERROR_CODES)
    .map(([code, sentence]) => `- \`${code}\`: ${sentence}`)
    .join('\n');

const REFUSALS = new Set<string | null | undefined>([
  'model_rejected',
  'model_not_found',
  'unknown_tool',
  'unknown_skill',
  'unsupported_override',
]);

/** True if the request itself caused the error, so that a retry fails too. */
export const isRefusal = (code: string | null | undefined): boolean => REFUSALS.has(code);
