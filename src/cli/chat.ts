import { randomUUID } from 'node:crypto';
import { type Api, type GlobalOptions, sessionsPath, withApi } from './api.ts';
import { CommandError } from './command-error.ts';
import { type Confirmation, type Message, type RunEnd, runMessage, toAnswer, toLines } from './conversation.ts';
import { type Lines, readLines } from './lines.ts';
import { style } from './output.ts';
import type { Event } from '../core/event.ts';

/** Events of a resumed session that are shown again. */
const RESUMED_EVENTS = 20;

/** Options of a message or a conversation. */
type TalkOptions = GlobalOptions & { session?: string };

/** Sends one message and prints the answer. @throws {CommandError} when it fails */
export async function invoke(words: string[], options: TalkOptions): Promise<void> {
  const sessionId = options.session ?? randomUUID();
  await withApi(options, async (api) => {
    const message = { sessionId, parts: [{ text: words.join(' ') }] };
    await ensureSession(api, options, sessionId);
    const print = (frame: unknown) => (options.json ? console.log(JSON.stringify(frame)) : undefined);
    const quiet = { onFrame: print, onText: () => undefined, onLine: () => undefined };
    const end = await runMessage(api, options, message, quiet);
    if (end.error !== undefined) throw new CommandError(end.error);
    if (options.json) return;
    const waiting = end.confirmations.map(({ call }) => `Waits for a confirmation of ${call.name}: use chat.`);
    console.log([end.output, ...waiting].filter((line) => line !== '').join('\n'));
  });
}

/**
 * A conversation in the terminal: each line is a message, calls that need it are confirmed with y. Ctrl-C cancels what
 * runs, and ends the conversation where nothing does.
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
      console.log(style('dim', `Go on with: agent-runtime chat --session ${sessionId}`));
  });
}

async function converse(api: Api, options: GlobalOptions, sessionId: string, lines: Lines): Promise<void> {
  const next = () => lines.next(style('green', '> '));
  for (let line = await next(); line !== undefined; line = await next())
    if (line.trim() !== '') await talk(api, options, { sessionId, parts: [{ text: line }] }, lines);
}

/** One message and what follows from it: the answer, and confirmations until no call waits any more. */
async function talk(api: Api, options: GlobalOptions, message: Message, lines: Lines): Promise<void> {
  let next: Message | undefined = message;
  while (next) {
    const end: RunEnd = await show(api, options, next, lines);
    if (end.error !== undefined) console.log(style('red', end.error));
    const parts = [];
    for (const each of end.confirmations) parts.push(toAnswer(each, await confirm(each, lines)));
    next = parts.length > 0 ? { sessionId: message.sessionId, parts } : undefined;
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
          process.stdout.write(text);
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
  const question = `${style('yellow', 'Confirm')} ${call.name} ${JSON.stringify(call.args)}${about}? [y/N] `;
  return /^y(es)?$/i.test((await lines.next(question))?.trim() ?? '');
}

/** The events of the session, which is created where it is not there. */
async function ensureSession(api: Api, options: GlobalOptions, sessionId: string): Promise<Event[]> {
  const path = `${sessionsPath(options)}/${encodeURIComponent(sessionId)}`;
  const found = await api.send<{ events: Event[] }>('GET', path).catch(() => undefined);
  if (found) return found.events;
  await api.send('POST', path, {});
  return [];
}
