/** What a client does after an error. `retry`: the same request fails again (`no`), may succeed at once or after a while. */
export interface ErrorAdvice {
  /** What happened, one sentence. */
  meaning: string;
  retry: 'no' | 'again' | 'later';
  /** What a client or an operator does, one sentence. */
  remedy: string;
  /** True: the request itself caused the error, so its message does not stay in the session. Default: false. */
  isRefusal?: true;
}

/**
 * Values of an event's `errorCode` and an invocation's `error.code`, described for the OpenAPI document and
 * `docs/errors.md`. Clients compare codes, so none is renamed. Events that a client appends may have other codes.
 */
export const ERROR_CODES = {
  cancelled: {
    meaning: 'A request cancelled the invocation, or its client left where that cancels it.',
    retry: 'again',
    remedy: 'Send the prompt again if it is still wanted.',
  },
  interrupted: {
    meaning: 'A newer prompt took its place, the service stopped, or the process that ran it is gone.',
    retry: 'again',
    remedy: 'Read the session first, because tools may have acted; then send the prompt again.',
  },
  time_limit: {
    meaning: 'The invocation took longer than INVOCATION_TIMEOUT_MS.',
    retry: 'no',
    remedy: 'Ask for less at once, or raise INVOCATION_TIMEOUT_MS.',
  },
  llm_calls_limit: {
    meaning: 'The invocation needed more model calls than it may make.',
    retry: 'no',
    remedy:
      'Raise `max_llm_calls` of the agent or the request; look in the session for a tool that the model calls in a circle.',
  },
  tool_calls_limit: {
    meaning: 'The invocation needed more tool calls than MAX_TOOL_CALLS.',
    retry: 'no',
    remedy: 'Raise MAX_TOOL_CALLS; look in the session for a tool that the model calls in a circle.',
  },
  loop_detected: {
    meaning: 'The agent made the same calls with the same answers again and again, though its model was told.',
    retry: 'no',
    remedy:
      'Look in the session for what the tool answers; a tool that is meant to repeat has `mayRepeat`, or stands in `loop_stop.except`.',
  },
  budget_exceeded: {
    meaning: 'A budget of the user or the application has nothing left; the message says which, and when it opens.',
    retry: 'later',
    remedy: 'Wait for the time in the message, or have an operator with the scope `admin` raise the budget.',
  },
  event_too_large: {
    meaning: 'The agent made an event of more than MAX_EVENT_BYTES.',
    retry: 'no',
    remedy: 'Make the tool or the model return less, save large results as artifacts, or raise MAX_EVENT_BYTES.',
  },
  session_too_large: {
    meaning: 'The events of the session would be more than MAX_SESSION_BYTES.',
    retry: 'no',
    remedy: 'Go on in a new session, or raise MAX_SESSION_BYTES.',
  },
  storage_full: {
    meaning: 'What is kept of the user would be more than MAX_USER_BYTES.',
    retry: 'no',
    remedy: 'Delete sessions, artifacts or memories of the user, or raise MAX_USER_BYTES.',
  },
  too_many_tasks: {
    meaning: 'The user would have more open tasks than MAX_OPEN_TASKS.',
    retry: 'later',
    remedy: 'Answer or cancel open tasks of the user, or raise MAX_OPEN_TASKS.',
  },
  answer_refused: {
    meaning: 'Nothing waits for what the message answers, it was answered before, or it is for others to answer.',
    retry: 'no',
    remedy: 'Read the open tasks (`GET /tasks`, or those of the session) and answer one of them.',
  },
  state_too_large: {
    meaning: 'The agent wrote a state of more than MAX_STATE_BYTES.',
    retry: 'no',
    remedy: 'Make the agent keep large values as artifacts, or raise MAX_STATE_BYTES.',
  },
  context_full: {
    meaning: 'The prompt is larger than the context window of the model, even with all left out that may be.',
    retry: 'no',
    remedy:
      'Send a shorter prompt, name a model with a larger window, or correct `context_tokens` of the model; the instruction and the tools count too.',
  },
  empty_answer: {
    meaning: 'The model answered with neither text nor a function call.',
    retry: 'again',
    remedy: 'If it comes back, choose another model or raise `max_tokens` of the sampling.',
  },
  invalid_output: {
    meaning: 'The answers of the model do not fit the output schema, also when it was asked again.',
    retry: 'again',
    remedy:
      'If it comes back, make the schema simpler or choose another model; the events have each answer and what is wrong with it.',
  },
  hook_failed: {
    meaning: 'A hook of the agent failed or took too long.',
    retry: 'no',
    remedy: 'Mend the hook: the log has its error at this invocation. One that is late needs a longer `timeoutMs`.',
  },
  instruction_unset: {
    meaning: 'The instruction names a state key or an artifact that does not exist.',
    retry: 'no',
    remedy: 'Set the key, or write `{key?}` in the instruction, which may be absent.',
  },
  instruction_too_large: {
    meaning: 'The instruction is larger than 256 KB once its state keys and artifacts are filled in.',
    retry: 'no',
    remedy: 'Name fewer or smaller keys and artifacts in the instruction.',
  },
  unknown_agent: {
    meaning: 'The model handed over to an agent that does not exist.',
    retry: 'again',
    remedy: 'If it comes back, describe the sub-agents better, because the model invents one.',
  },
  unknown_tool: {
    meaning: 'The request or the configuration names a tool that does not exist.',
    retry: 'no',
    remedy: 'Mend the name; the message lists the tools that there are.',
    isRefusal: true,
  },
  unsupported_override: {
    meaning: 'The request names a part of an agent that this runtime does not have.',
    retry: 'no',
    remedy: 'Leave the member out of `harness` of the request; the message names it.',
    isRefusal: true,
  },
  unknown_skill: {
    meaning: 'A skill does not exist or cannot be read.',
    retry: 'no',
    remedy: 'Mend the name, or set SKILLS_DIR to the directory that has the skill.',
    isRefusal: true,
  },
  mcp_failed: {
    meaning: 'An MCP server could not be reached or does not follow its protocol.',
    retry: 'later',
    remedy: 'Check that the server runs, its URL and its key; `agent-runtime doctor` connects to each.',
  },
  remote_failed: {
    meaning: 'An agent of another service could not be reached, or did not succeed.',
    retry: 'later',
    remedy: 'Check that the other service runs, its URL and its key, and what its own log says.',
  },
  egress_denied: {
    meaning: 'An address is outside what the runtime may call.',
    retry: 'no',
    remedy:
      'Use a public https address, or have an operator name the origin in MCP_ALLOWED_HOSTS or WEBHOOKS_ALLOWED_HOSTS.',
  },
  tool_failed: {
    meaning: 'A tool could not store or read its artifact or memory.',
    retry: 'later',
    remedy: 'If it comes back, an operator reads the log, which has the error of the database.',
  },
  unavailable: {
    meaning: 'The database was away while a tool needed it.',
    retry: 'later',
    remedy: 'An operator checks the database: `GET /ready` and `agent-runtime doctor` say what is wrong.',
  },
  model_unauthorized: {
    meaning: 'The model provider refused the key.',
    retry: 'no',
    remedy: 'Check MODEL_API_KEY, or the key in `model` of the agent, and that it may use this model.',
  },
  model_not_found: {
    meaning: 'The model provider does not know the model.',
    retry: 'no',
    remedy:
      'Check MODEL_NAME and MODEL_BASE_URL, or what the message names: `name` and `baseUrl` of a model of the agent.',
    isRefusal: true,
  },
  model_rejected: {
    meaning: 'The model provider refused the request.',
    retry: 'no',
    remedy:
      'Change the request: the message has the reason of the provider, such as a prompt that is too long or against its policy.',
    isRefusal: true,
  },
  model_rate_limited: {
    meaning: 'The model provider limits the rate of calls, or the quota is used up.',
    retry: 'later',
    remedy: 'Wait, raise the limit at the provider, or name `fallbacks` for the model.',
  },
  model_unavailable: {
    meaning: 'The model provider could not be reached or failed.',
    retry: 'later',
    remedy: 'Wait, check the base URL that the message names, or name `fallbacks` for the model.',
  },
  model_timeout: {
    meaning: 'The model provider sent nothing for too long.',
    retry: 'later',
    remedy: 'Raise MODEL_TIMEOUT_MS for a slow model, or name `fallbacks` for it.',
  },
  model_bad_response: {
    meaning: 'The answer of the model provider cannot be read.',
    retry: 'no',
    remedy: 'Check that MODEL_PROVIDER is what the server at MODEL_BASE_URL speaks.',
  },
  model_stream_cut: {
    meaning: 'The answer of the model provider broke off.',
    retry: 'again',
    remedy: 'If it comes back, check proxies on the way to the provider, which may end long answers.',
  },
  model_failed: {
    meaning: 'The model failed in a way that the runtime does not know; the log says more.',
    retry: 'later',
    remedy: 'If it comes back, an operator reads the log.',
  },
  internal: {
    meaning: 'The runtime itself failed; the log says more.',
    retry: 'later',
    remedy: 'If it comes back, an operator reads the log, and reports it.',
  },
} as const satisfies Record<string, ErrorAdvice>;

export type ErrorCode = keyof typeof ERROR_CODES;

export const toErrorCode = (code: string): ErrorCode => (isErrorCode(code) ? code : 'internal');

const isErrorCode = (code: string): code is ErrorCode => Object.hasOwn(ERROR_CODES, code);

/** Markdown, for the OpenAPI document. */
export const errorCodeList = (): string =>
  Object.entries(ERROR_CODES)
    .map(([code, { meaning, retry }]) => `- \`${code}\` (retry: ${retry}): ${meaning}`)
    .join('\n');

/** True if the request itself caused the error, so that a retry fails too. */
export const isRefusal = (code: string | null | undefined): boolean =>
  typeof code === 'string' && isErrorCode(code) && 'isRefusal' in ERROR_CODES[code];
