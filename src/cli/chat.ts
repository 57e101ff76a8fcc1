import { randomUUID } from 'node:crypto';
import { createInterface } from 'node:readline';
import type { Event } from '../core/event.ts';
import { type Api, type GlobalOptions, sessionPath, toOptions, withApi } from './api.ts';
import { type Confirmation, type Message, type RunEnd, runMessage, toAnswer, toLines } from './conversation.ts';
import { CommandError, print, style, toShown } from './output.ts';

/** Maximum number of events that are printed again when a session is resumed. */
const RESUMED_EVENTS = 20;

type TalkOptions = GlobalOptions & { session?: string };

/** Sends one message and prints the agent's answer. @throws {CommandError} if the invocation fails */
export async function invoke(words: string[], options: TalkOptions): Promise<void> {
  const sessionId = options.session ?? randomUUID();
  await withApi(options, async (api) => {
    const message = { sessionId, parts: [{ text: words.join(' ') }] };
    await ensureSession(api, options, sessionId);
    const onFrame = (frame: unknown) => (options.json ? print(JSON.stringify(frame)) : undefined);
    const quiet = { onFrame, onText: () => undefined, onLine: () => undefined };
    const end = await runMessage(api, options, message, quiet);
    if (end.error !== undefined) throw new CommandError(end.error);
    if (options.json) return;
    const waiting = end.confirmations.map(({ call }) => `Waits for a confirmation of ${call.name}.`);
    const given = toOptions(options);
    const how = `Answer in the console, or: agent-runtime ${given}tasks answer <id> (agent-runtime ${given}tasks list)`;
    print([end.output, ...waiting, ...(waiting.length > 0 ? [how] : [])].filter((line) => line !== '').join('\n'));
  });
}

/**
 * A chat in the terminal: a line is a message, `y` confirms a tool call. Ctrl-C cancels the running invocation, or ends
 * the chat.
 */
export async function chat(options: TalkOptions): Promise<void> {
  const sessionId = options.session ?? randomUUID();
  await withApi(options, async (api) => {
    const events = await ensureSession(api, options, sessionId);
    console.log(style('dim', `Session ${sessionId} of ${options.user} with ${options.app}. Ctrl-D ends.`));
    for (const line of events.slice(-RESUMED_EVENTS).flatMap(toLines)) console.log(line);
    const lines = readLines();
    try {
      await converse(api, options, sessionId, lines);
    } finally {
      lines.close();
    }
    if (options.session === undefined)
      console.log(style('dim', `Go on with: agent-runtime chat ${toOptions(options)}--session ${sessionId}`));
  });
}

async function converse(api: Api, options: GlobalOptions, sessionId: string, lines: Lines): Promise<void> {
  const next = () => lines.next(style('green', '> '));
  for (let line = await next(); line !== undefined; line = await next())
    if (line.trim() !== '') await talk(api, options, { sessionId, parts: [{ text: line }] }, lines);
}

/** Sends a message. As long as tool calls wait for a confirmation, asks the person and sends the decisions. */
async function talk(api: Api, options: GlobalOptions, message: Message, lines: Lines): Promise<void> {
  let next: Message | undefined = message;
  while (next) {
    const end: RunEnd = await show(api, options, next, lines);
    if (end.error !== undefined) console.log(style('red', end.error));
    const parts = [];
    for (const each of end.confirmations) parts.push(toAnswer(each, await confirm(each, lines)));
    const { sessionId } = message;
    next = parts.length > 0 ? { sessionId, invocationId: end.invocationId, parts } : undefined;
  }
}

async function show(api: Api, options: GlobalOptions, message: Message, lines: Lines): Promise<RunEnd> {
  const cancelled = new AbortController();
  const restore = lines.onInterrupt(() => cancelled.abort());
  let isLineOpen = false;
  const endLine = () => {
    if (isLineOpen) process.stdout.write('\n');
    isLineOpen = false;
  };
  try {
    return await runMessage(
      api,
      options,
      message,
      {
        onText: (text) => {
          process.stdout.write(toShown(text));
          isLineOpen = true;
        },
        onLine: (line) => {
          endLine();
          console.log(style('dim', line));
        },
      },
      cancelled.signal,
    );
  } finally {
    endLine();
    restore();
  }
}

async function confirm({ call, hint }: Confirmation, lines: Lines): Promise<boolean> {
  const about = hint === '' ? '' : ` (${hint})`;
  const callText = toShown(`${call.name} ${JSON.stringify(call.args)}${about}`);
  const question = `${style('yellow', 'Confirm')} ${callText}? [y/N] `;
  return /^y(es)?$/i.test((await lines.next(question))?.trim() ?? '');
}

/** The session's events; a missing session is created. */
async function ensureSession(api: Api, options: GlobalOptions, sessionId: string): Promise<Event[]> {
  const path = sessionPath(options, sessionId);
  const session = await api.send<{ events: Event[] }>('GET', path).catch(() => undefined);
  if (session) return session.events;
  await api.send('POST', path, {});
  return [];
}

/** The lines of standard input, typed or piped. */
interface Lines {
  /** Shows the prompt and returns the next line. Returns `undefined` at the end of the input. */
  next(prompt: string): Promise<string | undefined>;
  /** Sets what Ctrl-C does until the returned function is called. Default: Ctrl-C ends the input. */
  onInterrupt(call: () => void): () => void;
  close(): void;
}

/** Reads standard input. Lines are buffered until they are needed, because a pipe sends all at once. */
function readLines(): Lines {
  const terminal = process.stdin.isTTY;
  const input = createInterface({ input: process.stdin, output: process.stdout, terminal });
  const waiting: string[] = [];
  let give: ((line: string | undefined) => void) | undefined;
  let isOver = false;
  let interrupt = () => input.close();
  input.on('SIGINT', () => interrupt());
  input.on('line', (line) => {
    if (!give) waiting.push(line);
    give?.(line);
    give = undefined;
  });
  input.on('close', () => {
    isOver = true;
    give?.(undefined);
  });
  return {
    next: async (prompt) => {
      if (waiting.length > 0 || isOver) return waiting.shift();
      if (terminal) input.setPrompt(prompt);
      if (terminal) input.prompt();
      return new Promise((resolve) => (give = resolve));
    },
    onInterrupt: (call) => {
      const before = interrupt;
      interrupt = call;
      return () => (interrupt = before);
    },
    close: () => input.close(),
  };
}
