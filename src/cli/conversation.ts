import type { Content, FunctionCall, FunctionResponse, Part } from '../core/content.ts';
import type { Event } from '../core/event.ts';
import { CONFIRMATION_CALL } from '../core/names.ts';
import { type Api, type GlobalOptions, readFrames, sessionPath } from './api.ts';
import { style, toLine, toShown } from './output.ts';

/** Maximum number of characters of a tool's arguments or response that are printed. */
const TOOL_TEXT = 200;

/** A server-sent event of `POST /run_sse`: an event of the session, or the error that ended the run. */
type Frame = Event | { error: string };

const isError = (frame: Frame): frame is { error: string } => 'error' in frame && typeof frame.error === 'string';

/** A tool call that waits until a person confirms it. */
export interface Confirmation {
  id: string;
  hint: string;
  call: { name: string; args: unknown };
}

export interface RunEnd {
  /** The text of the agent's last answer. */
  output: string;
  error?: string;
  confirmations: Confirmation[];
  invocationId?: string | undefined;
}

export interface Message {
  sessionId: string;
  /** The paused invocation that the message answers, which then goes on. Default: the message starts a new one. */
  invocationId?: string | undefined;
  parts: Part[];
}

/**
 * Sends a message. `show.onText` receives chunks of the answer as they come; `show.onLine` tool calls and responses.
 * @throws {CommandError} if the service refuses the message
 */
export async function runMessage(
  api: Api,
  options: GlobalOptions,
  message: Message,
  show: { onFrame?: (frame: Frame) => void; onText: (text: string) => void; onLine: (line: string) => void },
  signal?: AbortSignal,
): Promise<RunEnd> {
  const { sessionId, invocationId: answeredId, parts } = message;
  const body = {
    appName: options.app,
    userId: options.user,
    sessionId,
    newMessage: { role: 'user', parts },
    streaming: true,
    ...(answeredId !== undefined && { invocationId: answeredId }),
  };
  const end: RunEnd = { output: '', confirmations: [], invocationId: answeredId };
  const cancel = () => void cancelRun(api, options, sessionId, end.invocationId);
  signal?.addEventListener('abort', cancel, { once: true });
  let hasPieces = false;
  try {
    for await (const frame of readFrames<Frame>(await api.open('POST', '/run_sse', body))) {
      show.onFrame?.(frame);
      if (isError(frame)) end.error = frame.error;
      else {
        end.invocationId ??= frame.invocationId ?? undefined;
        hasPieces = showEvent(frame, hasPieces, end, show);
      }
    }
  } finally {
    signal?.removeEventListener('abort', cancel);
  }
  return end;
}

const cancelRun = (api: Api, options: GlobalOptions, sessionId: string, invocationId: string | undefined) =>
  invocationId === undefined
    ? undefined
    : api.send('POST', `${sessionPath(options, sessionId)}/invocations/${invocationId}/cancel`).catch(() => undefined);

/** Shows one event. @returns true if chunks of an answer were shown and its complete event has not arrived */
function showEvent(
  event: Event,
  hasPieces: boolean,
  end: RunEnd,
  show: { onText: (text: string) => void; onLine: (line: string) => void },
): boolean {
  const text = toText(event.content);
  if (event.partial === true) {
    show.onText(text);
    return hasPieces || text !== '';
  }
  if (text !== '') {
    if (!hasPieces) show.onText(text);
    end.output = text;
  }
  for (const { functionCall, functionResponse } of event.content?.parts ?? []) {
    if (functionCall?.name === CONFIRMATION_CALL) end.confirmations.push(toConfirmation(functionCall));
    else if (functionCall) show.onLine(toCallLine(functionCall));
    if (functionResponse && functionResponse.name !== CONFIRMATION_CALL) show.onLine(toResponseLine(functionResponse));
  }
  return false;
}

const toCallLine = ({ name, args }: FunctionCall) =>
  `→ ${toLine(name ?? '')} ${toLine(JSON.stringify(args ?? {}), TOOL_TEXT)}`;
const toResponseLine = ({ name, response }: FunctionResponse) =>
  `← ${toLine(name ?? '')} ${toLine(JSON.stringify(response ?? {}), TOOL_TEXT)}`;

/** Returns the text of a content without the model's thoughts. */
const toText = (content: Content | null | undefined): string =>
  (content?.parts ?? []).flatMap(({ text, thought }) => (text && thought !== true ? [text] : [])).join('');

function toConfirmation({ id, args }: NonNullable<Part['functionCall']>): Confirmation {
  const { originalFunctionCall, toolConfirmation } = (args ?? {}) as {
    originalFunctionCall?: { name?: string; args?: unknown };
    toolConfirmation?: { hint?: string };
  };
  const call = { name: originalFunctionCall?.name ?? '', args: originalFunctionCall?.args ?? {} };
  return { id: id ?? '', hint: toolConfirmation?.hint ?? '', call };
}

export const toAnswer = ({ id }: Confirmation, confirmed: boolean): Part => ({
  functionResponse: { id, name: CONFIRMATION_CALL, response: { confirmed } },
});

/** Formats a stored event as lines: the author with the text, each tool call and tool response, and an error. */
export function toLines(event: Event): string[] {
  const who = style('bold', event.author ?? 'user');
  const lines: string[] = [];
  const text = toText(event.content);
  if (text !== '') lines.push(`${who}: ${toShown(text)}`);
  for (const { functionCall, functionResponse } of event.content?.parts ?? []) {
    if (functionCall) lines.push(`${who} ${toCallLine(functionCall)}`);
    if (functionResponse) lines.push(`${who} ${toResponseLine(functionResponse)}`);
  }
  if (event.errorCode) lines.push(`${who}: ${style('red', `${event.errorCode}: ${event.errorMessage ?? ''}`)}`);
  return lines;
}
